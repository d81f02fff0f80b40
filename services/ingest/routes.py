"""`POST /v1/events`: events from senders without Kafka (docs/http.md).

1. a place is taken: what is held at a time is bounded
2. the body is read, decompressed and split into events
3. the inbox sends them, and the answer waits until the broker has them all
"""

from __future__ import annotations

import asyncio
import hashlib
from collections import Counter
from http import HTTPStatus
from typing import TYPE_CHECKING

import numpy as np
from fastapi import APIRouter, FastAPI, Request, Response
from fastapi.responses import JSONResponse
from prometheus_client.registry import Collector
from starlette.requests import ClientDisconnect

from dovetail.errors import Unavailable
from dovetail.pipeline.spec import Format
from dovetail.service import declared
from dovetail.service.stage import Annex
from dovetail.stream.events.splitting import NotEventsError, TooManyError, split
from services.access.gate import WHO
from services.access.roles import Role, needs
from services.access.stage import guard_stage
from services.ingest import settings
from services.ingest.body import LINES, Body, media_type
from services.ingest.inbox import Delivery, Inbox, RefusedError, ReusedKeyError
from services.ingest.markers import marker_key
from services.ingest.refusal import RefusalError, again_later
from services.ingest.room import Room

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from dovetail.join.columns import Column
    from dovetail.service.declared import Family
    from dovetail.service.stage import Context
    from services.access.roles import Who
    from services.ingest.room import Place

_MOST_KEY_LENGTH = 200


class EventsByHttp(Annex):
    def __init__(self, context: Context) -> None:
        self._settings = context.settings
        self._source = context.pipeline.source
        self._room = Room(settings.MOST_REQUESTS, settings.MOST_HELD_BYTES)
        takes = self._source.format is Format.JSON
        self._inbox = Inbox(context.settings, context.topology) if takes else None
        self._counts = Counts()
        context.metrics.registry.register(self._counts)

    def guard(self, app: FastAPI, routes: APIRouter) -> None:
        # What is held of bodies is bounded by the room, for all of them together.
        guard_stage(app, routes, self._settings, None, settings.REQUESTS_TIMES)

    def start(self, failed: Callable[[BaseException], None]) -> None:
        if self._inbox:
            self._inbox.start(failed)

    def stop(self) -> None:
        if self._inbox:
            self._inbox.stop()

    def waiting_for(self) -> str:
        return self._inbox.reason if self._inbox else ""

    def routes(self) -> APIRouter:
        router = APIRouter()

        @router.post("/v1/events", status_code=HTTPStatus.ACCEPTED)
        @needs(Role.SEND)
        async def post_events(request: Request) -> Response:
            """Send events to the pipeline: a JSON object, an array of them, or NDJSON."""
            body = Body(request)
            try:
                with self._room.place() as place:
                    response = await self._accept(request, body, place)
            except RefusalError as refusal:
                response = refusal.response()
                await body.discard()
            except ClientDisconnect:  # nobody is there to be told
                response = Response(status_code=HTTPStatus.BAD_REQUEST)
            self._counts.requests[str(response.status_code)] += 1
            return response

        return router

    async def _accept(self, request: Request, body: Body, place: Place) -> Response:
        inbox = self._open_inbox()
        kind, key = media_type(request), _key(request)
        text = await body.read(place)
        digest, events = await asyncio.to_thread(_taken, text, kind)
        place.hold(events.nbytes)
        delivery = Delivery(key, digest, events)
        _give_in(inbox, delivery)
        try:
            receipt = await asyncio.wrap_future(delivery.receipt)
        except ReusedKeyError as error:
            raise RefusalError(HTTPStatus.UNPROCESSABLE_ENTITY, f"{error}; use a new one") from None
        except RefusedError as error:
            raise RefusalError(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, str(error)) from None
        except Unavailable as error:
            raise _unfinished(error, key) from None
        if not receipt.repeated:
            self._counts.events += receipt.accepted
        return JSONResponse(
            {
                "accepted": receipt.accepted,
                "topic": self._source.topic,
                "partitions": receipt.partitions,
            },
            HTTPStatus.ACCEPTED,
            {"Idempotent-Replayed": "true"} if receipt.repeated else None,
        )

    def _open_inbox(self) -> Inbox:
        if self._inbox is None:
            raise RefusalError(
                HTTPStatus.CONFLICT,
                f"this pipeline's events are {self._source.format}, and only JSON is taken by HTTP;"
                f" send them to the Kafka topic {self._source.topic}",
            )
        return self._inbox


def _key(request: Request) -> bytes:
    """Give the key of the request's marker; nothing if its sender gave none."""
    key = request.headers.get("idempotency-key")
    if key is None:
        return b""
    if not 1 <= len(key) <= _MOST_KEY_LENGTH or not (key.isascii() and key.isprintable()):
        raise RefusalError(
            HTTPStatus.BAD_REQUEST,
            f"the Idempotency-Key has to be 1 to {_MOST_KEY_LENGTH} printable ASCII characters",
        )
    who: Who = getattr(request.state, WHO)
    return marker_key(who.token, key.encode())


def _taken(text: bytearray, kind: str) -> tuple[bytes, Column]:
    """Give what tells the body from another, and its events."""
    digest = hashlib.blake2b(text, digest_size=16, person=kind.encode()[-16:]).digest()
    return digest, _events(text, lines=kind == LINES)


def _events(text: bytearray, *, lines: bool) -> Column:
    try:
        events = split(text, lines=lines, most=settings.MOST_EVENTS)
    except NotEventsError as error:
        raise RefusalError(HTTPStatus.BAD_REQUEST, str(error), place=error.place) from None
    except TooManyError:
        raise RefusalError(
            HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
            f"the body has more than {settings.MOST_EVENTS} events; send them in several requests",
        ) from None
    sizes = np.diff(events.bounds)
    if sizes.max() > settings.MOST_EVENT_BYTES:
        number = int(sizes.argmax()) + 1
        raise RefusalError(
            HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
            f"event {number} has {sizes.max()} bytes; one has at most {settings.MOST_EVENT_BYTES}",
            place={"event": number},
        )
    return events


def _give_in(inbox: Inbox, delivery: Delivery) -> None:
    try:
        inbox.deliver(delivery)
    except Unavailable as error:
        raise again_later(
            HTTPStatus.SERVICE_UNAVAILABLE,
            f"the Kafka broker takes no events now ({error}); nothing of the request was sent, send"
            " it again",
            2,
        ) from None


def _unfinished(error: Unavailable, key: bytes) -> RefusalError:
    again = (
        "send the request again with the same Idempotency-Key, and nothing is there twice"
        if key
        else "its events may be on the topic, all or none; give an Idempotency-Key, and a request"
        " can be sent again safely"
    )
    return again_later(
        HTTPStatus.SERVICE_UNAVAILABLE, f"the Kafka broker did not finish it ({error}); {again}", 2
    )


class Counts(Collector):
    def __init__(self) -> None:
        self.requests: Counter[str] = Counter()
        """By the answer's status."""
        self.events = 0

    def collect(self) -> Iterator[Family]:
        requests = self.requests.copy()
        yield declared.HTTP_REQUESTS.family(((status,), n) for status, n in requests.items())
        yield declared.HTTP_EVENTS.family([((), self.events)])
