"""Reads R for a disk half, and is patient while R is away."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from dovetail.errors import Unavailable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from dovetail.node.disk import DiskHalf
    from dovetail.node.step import Part

log = logging.getLogger(__name__)

_PAUSES_S = (0.1, 0.5, 1.0, 2.0, 5.0)


class Reading:
    """What waits goes on waiting while R is away, and R is tried again after pauses."""

    def __init__(self, half: DiskHalf, clock: Callable[[], float]) -> None:
        self._half = half
        self._clock = clock
        self._failures = 0
        self._retry_at = 0.0
        self.trouble = ""
        """Why R cannot be read; empty while it can."""

    @property
    def due(self) -> bool:
        """Whether R may be tried."""
        return self._clock() >= self._retry_at

    def forget(self) -> None:
        """Begin anew: what waited is read again, perhaps by another node."""
        self.trouble, self._failures, self._retry_at = "", 0, 0.0

    def read(self) -> Iterator[Part] | None:
        """Read R once; None if nothing waits for it, or it is away."""
        try:
            answered = self._half.read()
        except Unavailable as error:
            pause = _PAUSES_S[min(self._failures, len(_PAUSES_S) - 1)]
            self._failures += 1
            self._retry_at = self._clock() + pause
            if str(error) != self.trouble:
                log.warning("master data away, trying again", extra={"reason": str(error)})
            self.trouble = str(error)
            return None
        self._failures, self.trouble = 0, ""
        return answered
