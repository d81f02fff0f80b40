"""A request's body as it is read: within its bounds, in time, and decompressed."""

from __future__ import annotations

import asyncio
import contextlib
import zlib
from http import HTTPStatus
from typing import TYPE_CHECKING

from starlette.requests import ClientDisconnect

from services.ingest import settings
from services.ingest.refusal import RefusalError

if TYPE_CHECKING:
    from fastapi import Request

    from services.ingest.room import Place

JSON, LINES = "application/json", "application/x-ndjson"
_GZIP = 16 + zlib.MAX_WBITS
"""Has zlib read gzip's framing."""
_PIECE = 4096


def media_type(request: Request) -> str:
    """Give the one of both types that the body is said to be of."""
    given = request.headers.get("content-type", "")
    kind, _, parameters = given.partition(";")
    kind = kind.strip().lower()
    charset = parameters.strip().lower().replace('"', "").replace(" ", "")
    if kind not in (JSON, LINES) or charset not in ("", "charset=utf-8"):
        raise RefusalError(
            HTTPStatus.UNSUPPORTED_MEDIA_TYPE,
            f"the content type is {given or 'not given'!r}; send {JSON} (one event, or an array)"
            f" or {LINES} (one event a line), in UTF-8",
            headers={"Accept-Post": f"{JSON}, {LINES}"},
        )
    return kind


class Body:
    """One request's body, read once."""

    def __init__(self, request: Request) -> None:
        self._encoding = request.headers.get("content-encoding", "identity").strip().lower()
        self._expects = "expect" in request.headers
        self._chunks = request.stream()
        self._begun = self._ended = False

    async def read(self, place: Place) -> bytearray:
        """Read it all; it is refused as soon as it is too large or comes too slowly."""
        if self._encoding not in ("identity", "gzip"):
            raise RefusalError(
                HTTPStatus.UNSUPPORTED_MEDIA_TYPE,
                f"the content encoding is {self._encoding!r}; send gzip, or leave it out",
                headers={"Accept-Encoding": "gzip"},
            )
        body = _Inflating(place) if self._encoding == "gzip" else _Plain(place)
        self._begun = True
        try:
            async with asyncio.timeout(settings.BODY_WITHIN_S):
                async for chunk in self._chunks:
                    body.take(chunk)
        except TimeoutError:
            self._ended = True
            raise RefusalError(
                HTTPStatus.REQUEST_TIMEOUT,
                f"the body did not arrive within {settings.BODY_WITHIN_S:.0f} s; send less at once",
            ) from None
        self._ended = True
        return body.whole()

    async def discard(self) -> None:
        """Let the sender finish within bounds: few clients read an answer before they have."""
        if self._ended or (self._expects and not self._begun):
            return
        left = settings.MOST_DISCARDED_BYTES
        with contextlib.suppress(TimeoutError, ClientDisconnect):
            async with asyncio.timeout(settings.BODY_WITHIN_S):
                async for chunk in self._chunks:
                    left -= len(chunk)
                    if left < 0:
                        return


class _Plain:
    def __init__(self, place: Place) -> None:
        self._place = place
        self._data = bytearray()

    def take(self, chunk: bytes) -> None:
        if len(self._data) + len(chunk) > settings.MOST_BODY_BYTES:
            raise _too_large()
        self._place.hold(len(chunk))
        self._data += chunk

    def whole(self) -> bytearray:
        return self._data


class _Inflating(_Plain):
    """Decompresses as it goes, never further than what is allowed.

    One gzip file may follow another. Each costs a decompressor and the copy of what follows it, so
    they are counted, and what is handed over at a time is short.
    """

    def __init__(self, place: Place) -> None:
        super().__init__(place)
        self._inflate = zlib.decompressobj(_GZIP)
        self._taken = 0
        self._files = 1

    def take(self, chunk: bytes) -> None:
        self._taken += len(chunk)
        if self._taken > settings.MOST_BODY_BYTES:
            raise _too_large()
        for start in range(0, len(chunk), _PIECE):
            self._inflated(chunk[start : start + _PIECE])

    def _inflated(self, piece: bytes) -> None:
        while piece:
            if self._inflate.eof:
                self._files += 1
                if self._files > settings.MOST_GZIP_FILES:
                    raise _too_many_files()
                self._inflate = zlib.decompressobj(_GZIP)
            room = settings.MOST_BODY_BYTES - len(self._data) + 1
            try:
                inflated = self._inflate.decompress(piece, room)
            except zlib.error as error:
                raise _not_gzip(str(error)) from None
            super().take(inflated)
            piece = self._inflate.unconsumed_tail or self._inflate.unused_data

    def whole(self) -> bytearray:
        if not self._inflate.eof:
            raise _not_gzip("it breaks off")
        return self._data


def _too_large() -> RefusalError:
    return RefusalError(
        HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
        f"the body has more than {settings.MOST_BODY_BYTES} bytes, decompressed; send the events"
        " in several requests",
    )


def _too_many_files() -> RefusalError:
    return RefusalError(
        HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
        f"the body is more than {settings.MOST_GZIP_FILES} gzip files one behind the other;"
        " compress it as one",
    )


def _not_gzip(why: str) -> RefusalError:
    return RefusalError(
        HTTPStatus.BAD_REQUEST, f"the content encoding is gzip, but the body is not: {why}"
    )
