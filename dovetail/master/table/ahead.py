"""The next pages are read on a thread while the last ones are joined: one read at most."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor, wait
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable
    from concurrent.futures import Future

    from dovetail.join.exchange import Read

_WORTHWHILE = 256 << 10
"""Bytes below which two halves, one read ahead, are slower than a whole."""

_WAITED_S = 1.0
"""So long a read that nobody wants is waited for: its connection need not be made anew."""


class Ahead:
    """Whoever starts a read leaves its session alone until it is taken or forgotten."""

    def __init__(self, cancel: Callable[[], None]) -> None:
        """`cancel` ends the statement of a read that nobody wants any more."""
        self._cancel = cancel
        self._thread = ThreadPoolExecutor(1, "read-ahead")
        self._first = 0
        self._reading: Future[Read] | None = None

    def share(self, most: int, page_bytes: int) -> int:
        """What a read may take of so many bytes: half of them, unless that is too little."""
        return most // 2 if most >= max(_WORTHWHILE, 4 * page_bytes) else most

    def start(self, first: int, read: Callable[[], Read]) -> None:
        self._first = first
        self._reading = self._thread.submit(read)

    def take(self, first: int) -> Read | None:
        """Wait for what was read ahead; it is dropped unless it begins with this page."""
        reading, self._reading = self._reading, None
        if reading is None:
            return None
        read = reading.result()
        return read if self._first == first else None

    def forget(self) -> bool:
        """Drop what is on its way; tell whether it came.

        Who rebalances cannot wait as long as a slow statement may take: it is ended.
        """
        reading, self._reading = self._reading, None
        if reading is None:
            return True
        if wait([reading], _WAITED_S).not_done:
            self._cancel()
            wait([reading])
            return False
        return reading.exception() is None

    def close(self) -> None:
        self.forget()
        self._thread.shutdown()
