"""What is not understood is refused, not half obeyed: a typo must not widen a filter."""

from __future__ import annotations

import json
from collections import Counter
from typing import TYPE_CHECKING, Any

from starlette.requests import Request  # noqa: TC002 - FastAPI reads it

from services.problem import Blame, Kind, ProblemError

if TYPE_CHECKING:
    from fastapi.routing import APIRoute

_REPEATED = ("figure",)


async def require_known(request: Request) -> None:
    # Not in a thread, as all that is asked for is at hand: /health answers when the pool is busy.
    route: APIRoute | None = request.scope.get("route")
    if route is None:
        return
    known = {field.alias for field in route.dependant.query_params}
    given = Counter(name for name, _ in request.query_params.multi_items())
    blames = [
        Blame(f"query.{name[:50]}", "there is no such parameter")
        if name not in known
        else Blame(f"query.{name}", "it is given twice")
        for name, times in given.items()
        if name not in known or (times > 1 and name not in _REPEATED)
    ]
    if blames:
        takes = ", ".join(sorted(known)) or "none"
        told = "; ".join(f"{blame.field}: {blame.text}" for blame in blames[:3])
        raise ProblemError(Kind.REQUEST_INVALID, f"{told}; parameters are {takes}", blames=blames)


async def require_once(request: Request) -> None:
    """Refuse a body that names a field twice: who looked at it before may have taken the other."""
    body = await request.body()
    if body:
        try:
            json.loads(body, object_pairs_hook=_once)
        except (ValueError, RecursionError):
            return  # told by whoever reads it


def _once(members: list[tuple[str, Any]]) -> dict[str, Any]:
    twice = next((name for name, times in Counter(n for n, _ in members).items() if times > 1), "")
    if len(dict(members)) < len(members):
        field = f"body.{twice[:50]}"
        text = "it is given twice"
        raise ProblemError(Kind.REQUEST_INVALID, f"{field}: {text}", blames=[Blame(field, text)])
    return dict(members)
