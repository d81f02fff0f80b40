"""Lets the C library keep freed memory for the next step.

By default glibc gets every larger buffer from the kernel and gives it back when it is freed.
A step needs a dozen of them, each as large as its events, and would pay for every page anew:
that is half of the mapper's time (`python -m bench.stages`).
"""

from __future__ import annotations

import ctypes
import sys

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
_LARGEST_BUFFER = 32 << 20  # more, glibc refuses
_KEPT = 64 << 20


def keep_freed_memory() -> None:
    """Do nothing where the C library is another one."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None) if sys.platform == "linux" else None
    if mallopt is not None:
        mallopt(_M_MMAP_THRESHOLD, _LARGEST_BUFFER)
        mallopt(_M_TRIM_THRESHOLD, _KEPT)
