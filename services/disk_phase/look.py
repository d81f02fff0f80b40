"""Which algorithm runs, why, and what it has measured: `GET /v1/algorithm` (for control)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from fastapi import APIRouter, FastAPI, HTTPException

from dovetail.errors import Unavailable
from dovetail.service.stage import Annex
from services.access.roles import Role, needs
from services.access.stage import guard_stage

if TYPE_CHECKING:
    from collections.abc import Callable

    from dovetail.service.questions import Questions
    from dovetail.service.stage import Context

    class Explains(Protocol):
        def explained(self) -> dict[str, Any]: ...


class AlgorithmLook(Annex):
    def __init__(self, context: Context, questions: Questions, handler: Explains) -> None:
        self._context = context
        self._questions = questions
        self._handler = handler

    def start(self, failed: Callable[[BaseException], None]) -> None: ...

    def stop(self) -> None: ...

    def guard(self, app: FastAPI, routes: APIRouter) -> None:
        guard_stage(app, routes, self._context.settings)

    def routes(self) -> APIRouter:
        router = APIRouter()

        @router.get("/v1/algorithm")
        @needs(Role.PASS)
        def show_algorithm() -> dict[str, Any]:
            try:
                return self._questions.ask(self._handler.explained)
            except Unavailable as error:
                raise HTTPException(503, str(error)) from error

        return router
