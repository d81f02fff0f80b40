"""What a node offers beside its loop: what each stage does whose work it does, behind one gate."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fastapi import APIRouter, FastAPI

from dovetail.service.stage import Annex
from services.access.stage import guard_stage
from services.ingest.settings import REQUESTS_TIMES

if TYPE_CHECKING:
    from collections.abc import Callable

    from dovetail.service.stage import Context


class Offered(Annex):
    def __init__(self, context: Context, *annexes: Annex) -> None:
        self._context = context
        self._annexes = annexes

    def guard(self, app: FastAPI, routes: APIRouter) -> None:
        guard_stage(app, routes, self._context.settings, None, REQUESTS_TIMES)

    def start(self, failed: Callable[[BaseException], None]) -> None:
        for annex in self._annexes:
            annex.start(failed)

    def stop(self) -> None:
        for annex in self._annexes:
            annex.stop()

    def waiting_for(self) -> str:
        return next(filter(None, (annex.waiting_for() for annex in self._annexes)), "")

    def routes(self) -> APIRouter:
        router = APIRouter()
        for annex in self._annexes:
            # Not included: the gate has to see each of them.
            router.routes += annex.routes().routes
        return router
