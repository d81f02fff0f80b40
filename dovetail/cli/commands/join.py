"""`dovetail cache`, `lookup`, `algorithm`: inside the join."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dovetail.cli import exits
from dovetail.cli.client import connect
from dovetail.cli.output import (
    NOTHING,
    Figure,
    Output,
    count,
    fields,
    plain,
    seconds,
    size,
    table,
)
from dovetail.cli.parsing import add_connection, add_link, add_most, add_pipeline
from dovetail.pipeline.hints import count as many

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator

    from rich.console import RenderableType


def add_cache(parser: argparse.ArgumentParser) -> None:
    _add_shared(parser)
    add_most(parser, 20)
    parser.add_argument(
        "--by", choices=("hits", "bytes", "age"), default="hits", help="order (hits)"
    )
    parser.add_argument("--slot", type=int, metavar="N", help="only keys of this slot")
    parser.set_defaults(run=_cache)


def add_lookup(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("key", help="a join key; the parts of a composite one are set off by |")
    _add_shared(parser)
    add_most(parser, 20)
    parser.set_defaults(run=_lookup)


def add_algorithm(parser: argparse.ArgumentParser) -> None:
    _add_shared(parser)
    parser.set_defaults(run=_algorithm)


def _add_shared(parser: argparse.ArgumentParser) -> None:
    add_connection(parser)
    add_pipeline(parser)
    add_link(parser)


def _cache(arguments: argparse.Namespace) -> int:
    client = connect(arguments)
    answer = client.get(
        f"{client.pipeline(arguments.pipeline)}/cache",
        most=arguments.most,
        by=arguments.by,
        link=arguments.link,
        slot=arguments.slot,
    )
    Output.of(arguments).show(answer, _cache_shown)
    return exits.FINE


def _cache_shown(answer: dict[str, Any]) -> Iterator[RenderableType]:
    yield plain(f"{answer['algorithm']}: {answer['policy']}")
    nodes = (
        (
            f"node {node['node']}",
            count(node["keys"]),
            size(node["used_bytes"]),
            size(node["budget_bytes"]),
        )
        for node in answer["nodes"]
    )
    yield table(("cache of", "keys", "used", "budget"), nodes, "no node has answered")
    yield from _missing(answer)
    keys = (
        (
            key["key"],
            count(key["slot"]),
            count(key["node"]),
            count(key["hits"]),
            count(key["rows"]),
            size(key["bytes"]),
            seconds(key["age_s"]),
            key["why"],
        )
        for key in answer["keys"]
    )
    headings = ("key", "slot", "node", "hits", "rows", "bytes", "age", "why")
    yield table(headings, keys, "the caches are empty")


def _missing(answer: dict[str, Any]) -> Iterator[RenderableType]:
    for one in answer.get("missing") or ():
        yield plain(f"node {one['node']} does not answer: {one['reason']}")


def _lookup(arguments: argparse.Namespace) -> int:
    client = connect(arguments)
    answer = client.get(
        f"{client.pipeline(arguments.pipeline)}/lookup",
        key=arguments.key,
        link=arguments.link,
        most=arguments.most,
    )
    Output.of(arguments).show(answer, _lookup_shown)
    return exits.FINE


def _lookup_shown(answer: dict[str, Any]) -> Iterator[RenderableType]:
    cached = answer["cached"]
    yield fields(
        {
            "key": answer["key"],
            "slot": answer["slot"],
            "cache phase": _node(answer["cache_phase"]),
            "disk phase": _node(answer["disk_phase"]),
            "answered by": answer["answered_by"],
            "cached": cached["why"] if cached else "no",
            "outcome": answer["outcome"],
            answer["table"]: many(answer["row_count"], "row"),
        }
    )
    rows = answer["rows"]
    headings = list(dict.fromkeys(name for row in rows for name in row))
    if rows:
        yield table(headings, ([row.get(name) for name in headings] for row in rows), "")
    if len(rows) < answer["row_count"]:
        yield plain(f"… and {answer['row_count'] - len(rows):,} more: --most shows more of them")


def _node(number: int | None) -> str:
    return "nobody's at the moment" if number is None else f"node {number}"


def _algorithm(arguments: argparse.Namespace) -> int:
    client = connect(arguments)
    answer = client.get(f"{client.pipeline(arguments.pipeline)}/algorithm", link=arguments.link)
    Output.of(arguments).show(answer, _algorithm_shown)
    return exits.FINE


def _algorithm_shown(answer: dict[str, Any]) -> Iterator[RenderableType]:
    yield plain(f"the pipeline says {answer['algorithm']}")
    for node in answer["nodes"]:
        yield plain("")
        yield fields(
            {
                "node": node["node"],
                "runs": node["running"],
                "why": node["reason"],
                "choices": node["choices"],
                "pending": f"{node['pending_events']:,} events",
                "reads": f"{node['reads']:,}, {node['rows_read']:,} rows",
                "scan": _scan(node["page"], node["pages"]),
            }
        )
        ranking = ((one["algorithm"], count(one["rate"])) for one in node["ranking"])
        yield table(("algorithm", "events/s expected"), ranking, "nothing is ranked yet")
        factors = (
            (name, _factor(factor["assumed"]), _factor(factor["measured"]))
            for name, factor in node["factors"].items()
        )
        yield table(("cost factor", "assumed, s", "measured, s"), factors, "no factor is known")
    yield from _missing(answer)


def _scan(page: int | None, pages: int | None) -> str:
    if page is None:
        return "none: rows are looked up"
    return f"at page {page:,} of {pages:,}" if pages else f"at page {page:,}"


def _factor(value: float | None) -> Figure:
    return Figure(NOTHING if value is None else f"{value:.3g}")
