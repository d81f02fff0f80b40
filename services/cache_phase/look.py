"""What the cache holds, and why: `GET /v1/cache`, `GET /v1/cache/key` (for the control service)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Protocol

from fastapi import APIRouter, FastAPI, HTTPException, Query

from dovetail.errors import Unavailable
from dovetail.join.inspection import By
from dovetail.service.stage import Annex
from services.access.roles import Role, needs
from services.access.stage import guard_stage

if TYPE_CHECKING:
    from collections.abc import Callable

    from dovetail.node.contents import CacheContents
    from dovetail.service.questions import Questions
    from dovetail.service.stage import Context

    class Caches(Protocol):
        @property
        def contents(self) -> CacheContents: ...


MOST_KEYS = 1000


class CacheLook(Annex):
    def __init__(self, context: Context, questions: Questions, handler: Caches) -> None:
        self._context = context
        self._questions = questions
        self._handler = handler

    def start(self, failed: Callable[[BaseException], None]) -> None: ...

    def stop(self) -> None: ...

    def guard(self, app: FastAPI, routes: APIRouter) -> None:
        guard_stage(app, routes, self._context.settings)

    def routes(self) -> APIRouter:
        router = APIRouter()
        contents = self._handler.contents

        @router.get("/v1/cache")
        @needs(Role.PASS)
        def show_cache(
            most: Annotated[int, Query(ge=1, le=MOST_KEYS)] = 100,
            by: By = By.HITS,
            slot: Annotated[int | None, Query(ge=0)] = None,
        ) -> dict[str, Any]:
            return self._asked(lambda: contents.most_of(by, most, slot))

        @router.get("/v1/cache/key")
        @needs(Role.PASS)
        def show_key(name: Annotated[str, Query(max_length=10_000)]) -> dict[str, Any]:
            return self._asked(lambda: {"cached": contents.cached(name)})

        return router

    def _asked(self, question: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        try:
            return self._questions.ask(question)
        except Unavailable as error:
            raise HTTPException(503, str(error)) from error
        except ValueError as error:
            raise HTTPException(422, str(error)) from error
