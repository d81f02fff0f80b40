"""The gate in front of what a stage offers beside its loop."""

from __future__ import annotations

from typing import TYPE_CHECKING

from services.access.gate import MOST_BODY_BYTES, Gate, Rules
from services.access.settings import AccessSettings
from services.access.tokens import Tokens
from services.spark.runs import control_engine

if TYPE_CHECKING:
    from fastapi import APIRouter, FastAPI

    from dovetail.settings import Settings


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
    tokens = Tokens(control_engine(settings.control_database, pooled=True))
    app.add_middleware(Gate, known=tokens, rules=rules)
