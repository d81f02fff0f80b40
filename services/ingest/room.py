"""How much of requests by HTTP is held at a time, in number and in bytes.

For the event loop's thread alone, so that it needs no lock.
"""

from __future__ import annotations

from contextlib import contextmanager
from http import HTTPStatus
from typing import TYPE_CHECKING

from services.ingest.refusal import again_later

if TYPE_CHECKING:
    from collections.abc import Iterator


class Room:
    def __init__(self, most_requests: int, most_bytes: int) -> None:
        self._most_requests = most_requests
        self._most_bytes = most_bytes
        self.requests = 0
        self.bytes = 0

    @contextmanager
    def place(self) -> Iterator[Place]:
        """Take one request in, or refuse it; what it holds is free again at the end."""
        if self.requests >= self._most_requests:
            raise again_later(
                HTTPStatus.TOO_MANY_REQUESTS,
                f"{self.requests} requests are under way, as many as are taken at a time;"
                " send fewer at once, each with more events",
            )
        self.requests += 1
        place = Place(self)
        try:
            yield place
        finally:
            self.requests -= 1
            self.bytes -= place.held

    def grow(self, size: int) -> None:
        if self.bytes + size > self._most_bytes:
            raise again_later(
                HTTPStatus.TOO_MANY_REQUESTS,
                f"the requests under way have {self.bytes} bytes, and no more than"
                f" {self._most_bytes} are held at a time; send fewer at once",
            )
        self.bytes += size


class Place:
    """What one request holds of the room."""

    def __init__(self, room: Room) -> None:
        self._room = room
        self.held = 0

    def hold(self, size: int) -> None:
        self._room.grow(size)
        self.held += size
