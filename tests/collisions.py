"""Texts that differ and have one 64-bit hash.

They were forged by running the hash backwards: it takes 12 bytes at a time, adds them to its state
and mixes that, so that behind any first 12 bytes there are 12 more that lead to a given state. One
in 150,000 of those is text.
"""

COLLIDING = (
    "the first twelve behind ",
    "sEY9T93NzQNR55Jf@-\\.1sCT",
    "4SiC0hju4yImz8xDpG!:*I,_",
    "jthtJv4Yn8VT/h/NVJ!ZLK/q",
    "Gi64aG75rO21dv2X>kf>]ZTR",
    "0tcFU5DS6leK0~s0))H#GO9f",
)
