"""The gate in front of a service's paths: everything is closed but what is named as open.

    1. who is it: a bearer token; or, in local mode, this machine itself
    2. may they: the role of the path, by its endpoint
    3. how often: a bucket for each token or address, a smaller one for those that are refused
    4. how much: a bound for the body

In local mode there is no token to keep a web page out that somebody happens to look at on this
machine. What a browser says does: the name by which it calls us has to be of a loopback address
(another one may have been made to lead here), and a page's own origin has to be ours.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol
from urllib.parse import SplitResult, urlsplit

from starlette.concurrency import run_in_threadpool
from starlette.datastructures import Headers
from starlette.routing import Match

from dovetail.errors import NotAllowedError, Unavailable
from dovetail.web import is_loopback
from services.access.limits import Limits
from services.access.roles import Role, Who, least, needed_by
from services.access.settings import RATE
from services.problem import Kind, ProblemError, again_later

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from starlette.routing import BaseRoute
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

log = logging.getLogger(__name__)

WHO = "who"
"""Where a request's state has who makes it."""
_BURST = 4.0
_REFUSED = 0.2
"""Of the rate: those who are refused."""
_MOST_LOOKUPS = 8
"""Tokens that are looked up at once: however many nobody knows, the pool has threads left."""
OPEN_PATHS = frozenset({"/health", "/ready", "/metrics"})
MOST_BODY_BYTES = 1 << 20
_BODY_WITHIN_S = 30.0


class Known(Protocol):
    """Who has a token; `Tokens` over the control database."""

    def known(self, token: str) -> Who | None: ...

    def find(self, token: str) -> Who | None: ...


@dataclass(frozen=True, slots=True)
class Rules:
    routes: Sequence[BaseRoute]
    """Whose endpoints say which role they need."""
    open_paths: frozenset[str] = OPEN_PATHS
    open_folders: tuple[str, ...] = ()
    local: bool = False
    rate: float = RATE
    most_body_bytes: int | None = MOST_BODY_BYTES
    """None: whoever takes the body bounds it."""
    refused: Callable[[Who, str, str], None] | None = None
    """Told of whoever lacks a role, with method and path, in a thread of the pool."""


class Gate:
    """Middleware, in the form that ASGI has it."""

    def __init__(self, app: ASGIApp, known: Known, rules: Rules) -> None:
        self._app = app
        self._known = known
        self._rules = rules
        rate, refused = rules.rate, rules.rate * _REFUSED
        self._limits = Limits(rate, rate * _BURST)
        self._refusals = Limits(refused, refused * _BURST)
        self._lookups = asyncio.Semaphore(_MOST_LOOKUPS)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        try:
            if not self._is_open(scope["path"]):
                who = await self._admitted(scope)
                scope.setdefault("state", {})[WHO] = who
            if self._rules.most_body_bytes is not None:
                receive = await _bounded(scope, receive, self._rules.most_body_bytes)
        except ProblemError as problem:
            await problem.response()(scope, receive, send)
            return
        await self._app(scope, receive, send)

    def _is_open(self, path: str) -> bool:
        return path in self._rules.open_paths or path.startswith(self._rules.open_folders)

    async def _admitted(self, scope: Scope) -> Who:
        address = scope["client"][0] if scope.get("client") else ""
        try:
            who = replace(await self._who(scope), address=address)
        except ProblemError as problem:
            if problem.kind is not Kind.UNAVAILABLE:
                self._take_refusal(address)
            raise
        await self._require_role(scope, who)
        wait = self._limits.take(f"{who.token}" if who.token is not None else address)
        if wait:
            raise _too_often(
                f"more than {self._rules.rate:.0f} requests a second: wait, or ask less often", wait
            )
        return who

    def _take_refusal(self, address: str) -> None:
        """Take one of the refusals that an address has; raises if none is left."""
        wait = self._refusals.take(address)
        if wait:
            raise _too_often("too many requests from there were refused: wait", wait) from None

    async def _who(self, scope: Scope) -> Who:
        headers = Headers(scope=scope)
        given = headers.get("authorization")
        if given is None:
            return self._local(headers)
        scheme, _, token = given.partition(" ")
        if scheme.lower() != "bearer" or not token.strip():
            raise _unauthenticated("write the header as Authorization: Bearer <token>")
        try:
            who = self._known.known(token.strip()) or await self._find(token.strip())
        except (Unavailable, NotAllowedError) as error:
            log.warning("tokens cannot be looked up", extra={"reason": str(error)})
            denied = isinstance(error, NotAllowedError)
            why = "a permission is missing there, which the log names" if denied else "it is away"
            raise again_later(
                Kind.UNAVAILABLE, f"tokens cannot be looked up in the database now: {why}", 2
            ) from None
        if who is None:
            raise _unauthenticated("the token is not known, has expired, or was revoked")
        return who

    async def _find(self, token: str) -> Who | None:
        # Whether it is a good one shows only then: no bucket of refusals can stand before it.
        async with self._lookups:
            return await run_in_threadpool(self._known.find, token)

    def _local(self, headers: Headers) -> Who:
        if not self._rules.local:
            raise _unauthenticated("send the header Authorization: Bearer <token>")
        host, origin = headers.get("host", ""), headers.get("origin")
        if not is_loopback(_split(f"//{host}").hostname or ""):
            raise ProblemError(
                Kind.FORBIDDEN,
                "in local mode call it by 127.0.0.1 or localhost; from elsewhere send a token",
            )
        if origin is not None and _split(origin).netloc != host:
            raise ProblemError(
                Kind.FORBIDDEN, "in local mode no page of another origin may call; send a token"
            )
        return Who("local", Role.ADMIN)

    async def _require_role(self, scope: Scope, who: Who) -> None:
        needed = self._needed(scope)
        if who.role.includes(needed):
            return
        self._take_refusal(who.address)  # first: so many are told of, and no more
        if self._rules.refused is not None:
            await run_in_threadpool(self._rules.refused, who, scope["method"], scope["path"])
        raise ProblemError(
            Kind.FORBIDDEN,
            f"the role {least(needed)} is needed, and this token has {who.role}: ask an admin for "
            "another",
        )

    def _needed(self, scope: Scope) -> Role:
        """The role of the endpoint; for a path that is not there `read`.

        Where something is, and it cannot be seen what, it takes an admin.
        """
        for route in self._rules.routes:
            match, child = route.matches(scope)
            if match is Match.FULL:
                endpoint = child.get("endpoint")
                return Role.ADMIN if endpoint is None else needed_by(endpoint, scope["method"])
        return Role.READ


def _split(url: str) -> SplitResult:
    """The parts of what somebody says is a URL; none of what is not."""
    try:
        return urlsplit(url)
    except ValueError:
        return urlsplit("")


def _unauthenticated(detail: str) -> ProblemError:
    return ProblemError(Kind.UNAUTHENTICATED, detail, headers={"WWW-Authenticate": "Bearer"})


def _too_often(detail: str, wait: float) -> ProblemError:
    return again_later(Kind.TOO_MANY_REQUESTS, detail, wait)


async def _bounded(scope: Scope, receive: Receive, most: int) -> Receive:
    """Read the body, at most so much of it; give what the app is to receive."""
    if scope["method"] in ("GET", "HEAD"):
        return receive
    length = Headers(scope=scope).get("content-length", "0")
    if length.isdecimal() and int(length) > most:
        raise _too_large(most)
    parts: list[Message] = []
    size = 0
    try:
        async with asyncio.timeout(_BODY_WITHIN_S):
            while not parts or parts[-1].get("more_body", False):
                parts.append(await receive())
                size += len(parts[-1].get("body", b""))
                if size > most:
                    raise _too_large(most)
    except TimeoutError:
        raise ProblemError(
            Kind.REQUEST_INVALID, f"the body was not sent within {_BODY_WITHIN_S:.0f} s"
        ) from None
    waiting = iter(parts)

    async def received() -> Any:
        return next(waiting, None) or await receive()

    return received


def _too_large(most: int) -> ProblemError:
    return ProblemError(Kind.TOO_LARGE, f"a body has at most {most:,} bytes; send less")
