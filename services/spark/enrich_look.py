"""What runs and what is cached where Spark runs the pipeline, for the control service.

`GET /v1/algorithm`, `GET /v1/cache` and `GET /v1/cache/key`, as the phases have them, but for all
nodes at once. Both are in Spark's Python workers, any of which may answer a node's next events: a
question goes to all of them between two batches, and what one of them holds is held.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from itertools import cycle, islice
from typing import TYPE_CHECKING, Annotated, Any

from fastapi import APIRouter, HTTPException, Query

from dovetail.errors import Unavailable
from dovetail.join.inspection import By
from services.access.roles import Role, needs
from services.cache_phase.look import MOST_KEYS

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from services.spark.enrich_join import TableJoin

Said = dict[str, Any]


class Question(ABC):
    """Is asked of one table, in every worker."""

    link: int

    @abstractmethod
    def asked_of(self, table: TableJoin) -> Said: ...

    def gathered(self, said: Sequence[Said], nodes: int) -> list[Said]:
        """What is told of each node, out of what every worker said."""
        return list(islice(cycle(said), nodes))


@dataclass(frozen=True)
class WhatRuns(Question):
    link: int

    def asked_of(self, table: TableJoin) -> Said:
        return table.explained()


@dataclass(frozen=True)
class WhatIsCached(Question):
    link: int
    by: By
    most: int
    slot: int | None

    def asked_of(self, table: TableJoin) -> Said:
        return table.contents.most_of(self.by, self.most, self.slot)

    def gathered(self, said: Sequence[Said], nodes: int) -> list[Said]:
        """Each key once, at the node of its slot, as the worker has it that it helped most."""
        best: dict[str, Said] = {}
        for key in (key for one in said for key in one["keys"]):
            if key["key"] not in best or best[key["key"]]["hits"] < key["hits"]:
                best[key["key"]] = key
        return [
            {**one, "keys": [key for key in best.values() if key["slot"] % nodes == node]}
            for node, one in enumerate(islice(cycle(said), nodes))
        ]


@dataclass(frozen=True)
class OneKey(Question):
    link: int
    name: str

    def asked_of(self, table: TableJoin) -> Said:
        return {"cached": table.contents.cached(self.name)}

    def gathered(self, said: Sequence[Said], nodes: int) -> list[Said]:
        found = next((one["cached"] for one in said if one["cached"]), None)
        return [{"cached": found}] * nodes


def look_routes(ask: Callable[[Question], Sequence[Said]]) -> APIRouter:
    """What `ask` is asked is told of each node in turn."""
    router = APIRouter()

    def asked(question: Question) -> dict[str, Any]:
        try:
            said = ask(question)
        except Unavailable as error:
            raise HTTPException(503, str(error)) from error
        return {"nodes": [{"node": node, **one} for node, one in enumerate(said)]}

    @router.get("/v1/algorithm")
    @needs(Role.PASS)
    def show_algorithm(link: Annotated[int, Query(ge=1)] = 1) -> dict[str, Any]:
        return asked(WhatRuns(link))

    @router.get("/v1/cache")
    @needs(Role.PASS)
    def show_cache(
        most: Annotated[int, Query(ge=1, le=MOST_KEYS)] = 100,
        by: By = By.HITS,
        slot: Annotated[int | None, Query(ge=0)] = None,
        link: Annotated[int, Query(ge=1)] = 1,
    ) -> dict[str, Any]:
        return asked(WhatIsCached(link, by, most, slot))

    @router.get("/v1/cache/key")
    @needs(Role.PASS)
    def show_key(
        name: Annotated[str, Query(max_length=10_000)],
        link: Annotated[int, Query(ge=1)] = 1,
    ) -> dict[str, Any]:
        return asked(OneKey(link, name))

    return router
