"""Nodes, slots, the caches' keys, one key, the algorithm that runs."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated, Any

from fastapi import APIRouter, Query

from dovetail.errors import Unavailable
from dovetail.join.inspection import By
from dovetail.topology import CACHE_PHASE, DISK_PHASE
from services.access.roles import Role, needs
from services.control.asking import Asking
from services.control.lookup import look_up, outcome, parts_of
from services.control.monitor import GONE
from services.control.shapes import LinkNumber, Most, PipelineName, Whole
from services.problem import not_found

if TYPE_CHECKING:
    from dovetail.pipeline.spec import Pipeline
    from dovetail.topology import Topology
    from services.control.hub import Hub

_POLICIES = {
    "auto": "by worth: what a key's hits save, for the bytes that it takes",
    "ssbj": "the cache inequality: a key stays while its events would take more than its rows do",
    "ssbj-index": "the cache inequality, over partitions",
    "srj": "the least recently used makes room",
    "cachejoin": "keys that came often enough, by a threshold that tunes itself",
    "cmeshjoin": "keys that came often enough",
    "pcsrj": "keys that came often enough, by a threshold that tunes itself",
}


def look_routes(hub: Hub) -> APIRouter:
    app = APIRouter(tags=["look"])
    asking = Asking(hub.monitor, hub.places, None if hub.access.local else hub.tokens)

    @app.get("/v1/nodes")
    def list_nodes() -> list[dict[str, Any]]:
        """Show every process, as it last said of itself; one not heard of for 5 s is gone."""
        now = time.monotonic()
        return [member.shown(now) for member in hub.monitor.members()]

    @app.get("/v1/slots")
    def list_slots() -> list[dict[str, Any]]:
        """Show which node owns which slot."""
        return _slots(hub)

    @app.get("/v1/pipelines/{name}/cache")
    @needs(Role.INSPECT)
    def show_cache(
        name: PipelineName,
        most: Most = 100,
        by: By = By.HITS,
        link: LinkNumber = 1,
        slot: Annotated[Whole | None, Query(ge=0, le=1023)] = None,
    ) -> dict[str, Any]:
        """Show the keys that the caches hold, and why."""
        pipeline, topology = _link(hub, name, link)
        query: dict[str, str | int] = {"most": most, "by": str(by)}
        if slot is not None:
            query["slot"] = slot
        heard = asking.phase(topology, CACHE_PHASE, "/v1/cache", query)
        keys = [
            {**key, "node": node} for node, said in heard.answers.items() for key in said["keys"]
        ]
        order = {By.HITS: "hits", By.BYTES: "bytes", By.AGE: "age_s"}[by]
        keys.sort(key=lambda key: -key[order])
        sizes = [said["event_bytes"] for said in heard.answers.values() if said["event_bytes"]]
        return {
            "algorithm": str(pipeline.algorithm),
            "policy": _POLICIES.get(str(pipeline.algorithm), "nothing is cached"),
            "event_bytes": sum(sizes) / len(sizes) if sizes else None,
            "nodes": [
                {
                    "node": node,
                    "keys": said["keys_held"],
                    "used_bytes": said["used_bytes"],
                    "budget_bytes": said["budget_bytes"],
                }
                for node, said in heard.answers.items()
            ],
            "keys": keys[:most],
            "missing": heard.missing,
        }

    @app.get("/v1/pipelines/{name}/lookup")
    @needs(Role.INSPECT)
    def look_key_up(
        name: PipelineName,
        key: Annotated[str, Query(max_length=5000, examples=["4711"])],
        link: LinkNumber = 1,
        most: Most = 20,
    ) -> dict[str, Any]:
        """Say where an event of this key would be answered, and from which rows."""
        pipeline, topology = _link(hub, name, link)
        parts = parts_of(pipeline, key)
        found = look_up(pipeline, hub.settings.database_url, parts, most)
        owners = _owners(hub, topology, found.slot)
        cached = None
        if owners[0] is not None:
            query = {"name": "|".join(parts)}
            heard = asking.phase(topology, CACHE_PHASE, "/v1/cache/key", query, owners[0])
            if owners[0] not in heard.answers:
                raise Unavailable(
                    f"the cache phase of node {owners[0]} cannot be asked: "
                    f"{heard.missing[0]['reason'] if heard.missing else 'try again'}"
                )
            cached = heard.answers[owners[0]]["cached"]
        return {
            "key": key,
            "slot": found.slot,
            "cache_phase": owners[0],
            "disk_phase": owners[1],
            "answered_by": "cache" if cached else "disk",
            "cached": cached,
            "table": pipeline.master.table,
            "row_count": found.row_count,
            "rows": found.rows,
            "outcome": outcome(pipeline, found.row_count),
        }

    @app.get("/v1/pipelines/{name}/algorithm")
    def show_algorithm(name: PipelineName, link: LinkNumber = 1) -> dict[str, Any]:
        """Show which algorithm runs on each node, why, and what it has measured."""
        pipeline, topology = _link(hub, name, link)
        heard = asking.phase(topology, DISK_PHASE, "/v1/algorithm", {})
        return {
            "algorithm": str(pipeline.algorithm),
            "nodes": [{"node": node, **said} for node, said in heard.answers.items()],
            "missing": heard.missing,
        }

    return app


def _link(hub: Hub, name: str, link: int) -> tuple[Pipeline, Topology]:
    hub.require_here(name)
    pipeline = hub.pipeline
    if link > pipeline.links:
        raise not_found(f"{name} joins {pipeline.links} tables, and there is no link {link}")
    return pipeline.link(link), hub.topology.links[link - 1]


def _owners(hub: Hub, topology: Topology, slot: int) -> tuple[int | None, int | None]:
    """The nodes whose cache phase and disk phase hold a slot; None while nobody does.

    Whoever joins what it reads from the source has no slots: they go to Spark's nodes in turn.
    """
    now = time.monotonic()
    if topology.by_spark or topology.alone:
        there = any(member.state(now) != GONE for member in hub.monitor.members())
        node = slot % topology.pipeline.nodes if there else None
        return node, node
    found: dict[str, int] = {
        member.beat.service: member.beat.node
        for member in hub.monitor.members()
        if slot in member.beat.partitions and member.state(now) != GONE
    }
    return found.get(topology.doing(CACHE_PHASE)), found.get(topology.doing(DISK_PHASE))


def _slots(hub: Hub) -> list[dict[str, Any]]:
    shown = []
    for topology in hub.topology.links:
        for slot in range(topology.pipeline.slots):
            cache, disk = _owners(hub, topology, slot)
            shown.append(
                {"slot": slot, "link": topology.number, "cache_phase": cache, "disk_phase": disk}
            )
    return shown
