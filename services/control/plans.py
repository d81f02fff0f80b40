"""The cache plans of the pipeline, with the reasons for every key that is listed.

GET /v1/pipelines/{name}/plans                     the latest, the newest first
GET /v1/pipelines/{name}/plans/latest
GET /v1/pipelines/{name}/plans/{version}           one of them, and its first keys
GET /v1/pipelines/{name}/plans/{version}/keys      listed keys, by verdict
GET /v1/pipelines/{name}/plans/{version}/keys/{key}
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, TypeVar

from fastapi import APIRouter, HTTPException, Query

from dovetail.errors import Unavailable
from dovetail.join.keys import SEPARATOR
from dovetail.plan.ranking import Verdict
from services.access.roles import Role, needs
from services.control.shapes import Whole
from services.spark.plan_tables import PlanTables

if TYPE_CHECKING:
    from collections.abc import Callable

    import sqlalchemy as sa

    from dovetail.pipeline.spec import Pipeline
    from services.spark.plan_tables import PlanKey, PlanRow

Found = TypeVar("Found")

LATEST = "latest"
_MOST_PLANS = 100
_MOST_KEYS = 10_000
_SHOWN_KEYS = 20
_MOST_DIGITS = 18
"""Of a plan's number: what a bigint takes, and Python reads."""

Most = Annotated[Whole, Query(ge=1, le=_MOST_KEYS)]


def plan_routes(pipeline: Pipeline, engine: sa.Engine) -> APIRouter:
    app = APIRouter(prefix="/v1/pipelines/{name}/plans", tags=["plans"])
    plans = _Plans(pipeline, engine)

    @app.get("")
    def show_plans(
        name: str, most: Annotated[Whole, Query(ge=1, le=_MOST_PLANS)] = 20
    ) -> list[dict[str, Any]]:
        """Show what the latest plans were made for, and what they promise."""
        return [_shown(plan) for plan in plans.latest(name, most)]

    @app.get("/{version}")
    @needs(Role.INSPECT)
    def show_plan(name: str, version: str) -> dict[str, Any]:
        plan = plans.find(name, version)
        keys = plans.keys(plan, Verdict.CHOSEN, _SHOWN_KEYS)
        return {**_shown(plan), "first_keys": [_explained(key, plan) for key in keys]}

    @app.get("/{version}/keys")
    @needs(Role.INSPECT)
    def show_keys(
        name: str, version: str, verdict: Verdict | None = None, most: Most = 100
    ) -> list[dict[str, Any]]:
        """Show listed keys, the most worthwhile first, each with its reason."""
        plan = plans.find(name, version)
        return [_explained(key, plan) for key in plans.keys(plan, verdict, most)]

    @app.get("/{version}/keys/{key:path}")
    @needs(Role.INSPECT)
    def show_key(name: str, version: str, key: str) -> dict[str, Any]:
        """Say why a key is in a plan, or is not; the parts of a composite one are set off by |."""
        plan = plans.find(name, version)
        return _explained(plans.key(plan, key), plan)

    return app


class _Plans:
    """Looks plans up; what cannot be found or looked up is told as HTTP tells it."""

    def __init__(self, pipeline: Pipeline, engine: sa.Engine) -> None:
        self._pipeline = pipeline
        self._tables = PlanTables(engine, pipeline.name)

    def latest(self, name: str, most: int) -> list[PlanRow]:
        ours = self._pipeline.name
        if name != ours:
            raise HTTPException(404, f"no pipeline {name!r} runs here; there is {ours!r}")
        return _told(lambda: self._tables.plans(most))

    def find(self, name: str, version: str) -> PlanRow:
        found = next(iter(self.latest(name, 1)), None)
        if version != LATEST:
            if not version.isdecimal() or len(version) > _MOST_DIGITS:
                raise HTTPException(404, f"{version!r} is no plan: write its number, or {LATEST}")
            found = _told(lambda: self._tables.plan(int(version)))
        if found is None:
            raise HTTPException(
                404, f"there is no plan {version} of {name}; `dovetail spark frequency` makes one"
            )
        return found

    def keys(self, plan: PlanRow, verdict: Verdict | None, most: int) -> list[PlanKey]:
        return _told(lambda: self._tables.keys(plan.version, verdict, most))

    def key(self, plan: PlanRow, name: str) -> PlanKey:
        parts = name.split("|", len(self._pipeline.key) - 1)
        canonical = chr(SEPARATOR).join(parts).encode()
        found = _told(lambda: self._tables.key(plan.version, canonical))
        if found is None:
            raise HTTPException(
                404,
                f"key {name!r} is not listed in plan {plan.version}: it was not seen, came too "
                f"seldom, or is beyond the keys that are listed; all are in {plan.facts['folder']}",
            )
        return found


def _told(look: Callable[[], Found]) -> Found:
    try:
        return look()
    except Unavailable as error:
        raise HTTPException(503, str(error)) from error


def _shown(plan: PlanRow) -> dict[str, Any]:
    return {
        "version": plan.version,
        "made_at": plan.made_at,
        "sent_at": plan.sent_at,
        "sent": plan.sent,
        **plan.facts,
    }


def _explained(key: PlanKey, plan: PlanRow) -> dict[str, Any]:
    return {
        "key": key.key.decode(errors="replace").replace(chr(SEPARATOR), "|"),
        "slot": key.slot,
        "events": key.events,
        "rows": key.rows,
        "bytes": key.bytes,
        "worth": key.worth,
        "verdict": key.verdict,
        "reason": _reason(key, plan),
    }


def _reason(key: PlanKey, plan: PlanRow) -> str:
    facts = plan.facts
    seconds = facts["horizon"]["seconds"]
    waiting = key.events * facts["event_bytes"]
    expected = f"{key.events:,.1f} events are expected in {seconds:,.0f} s"
    sizes = f"its entry of {key.rows:,} rows takes {key.bytes:,} bytes"
    if key.verdict == Verdict.TOO_LARGE:
        return f"{sizes}, more than an eighth of a cache, and may push out nobody"
    if key.verdict == Verdict.INEQUALITY:
        return f"{expected}, which would take {waiting:,.0f} bytes; {sizes}: not less"
    saved = f"{expected}; {sizes}: {1024 * key.worth:,.2f} events saved a KiB"
    if key.verdict == Verdict.BUDGET:
        return f"{saved}, and others of slot {key.slot} save more and fill it"
    return f"{saved}, among the best of slot {key.slot}'s {facts['slot_bytes']:,} bytes"
