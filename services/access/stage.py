"""The gate in front of what a stage offers beside its loop."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

from dovetail.settings import parts_of
from services.access.gate import MOST_BODY_BYTES, Gate, Rules
from services.access.settings import AccessSettings

if TYPE_CHECKING:
    from fastapi import APIRouter, FastAPI

    from dovetail.settings import Settings
    from services.access.roles import Who
    from services.access.tokens import Tokens


def guard_stage(
    app: FastAPI,
    routes: APIRouter,
    settings: Settings,
    most_body_bytes: int | None = MOST_BODY_BYTES,
    times: float = 1.0,
) -> None:
    """Close all paths of a stage but /health, /ready and /metrics to those without a token.

    `times` as many requests as usual may be made a second.
    """
    access = AccessSettings.from_environment(settings.host)
    rules = Rules(
        routes.routes, local=access.local, rate=times * access.rate, most_body_bytes=most_body_bytes
    )
    parts_of(settings.control_database)  # what is no address is told at the start
    app.add_middleware(Gate, known=_KnownLater(settings.control_database), rules=rules)


class _KnownLater:
    """The tokens in the control database, from the first that is sent here on."""

    def __init__(self, database: str) -> None:
        self._database = database

    def known(self, token: str) -> Who | None:
        return self._tokens.known(token) if "_tokens" in vars(self) else None

    def find(self, token: str) -> Who | None:
        return self._tokens.find(token)

    @cached_property
    def _tokens(self) -> Tokens:
        # SQLAlchemy takes 15 MiB, and on one machine nobody has a token.
        from services.access.tokens import Tokens  # noqa: PLC0415
        from services.spark.runs import control_engine  # noqa: PLC0415

        return Tokens(control_engine(self._database, pooled=True))
