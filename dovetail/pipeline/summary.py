from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from dovetail.pipeline.duration import format_duration
from dovetail.pipeline.hints import count
from dovetail.pipeline.size import format_size

if TYPE_CHECKING:
    from dovetail.pipeline.spec import Pipeline


def summary(pipeline: Pipeline) -> str:
    """Say in a few lines what the pipeline does, in the order in which an event meets it."""
    links = [pipeline.link(number) for number in range(1, pipeline.links + 1)]
    lines = [
        ("source", _source(pipeline)),
        *(line for link in links for line in _link(link)),
        ("order", _order(pipeline)),
        ("memory", _memory(pipeline, links)),
        ("overload", _overload(pipeline)),
        ("sink", pipeline.sink.topic),
    ]
    return "\n".join([f"pipeline {pipeline.name}", *(f"  {name:<9}{text}" for name, text in lines)])


def _link(link: Pipeline) -> list[tuple[str, str]]:
    return [
        ("key", f"{', '.join(link.key)} ({link.key_type})"),
        ("master", _master(link)),
        ("join", f"{link.join} by {link.algorithm}"),
    ]


def _source(pipeline: Pipeline) -> str:
    source = pipeline.source
    schema = f" ({Path(source.schema_file).name})" if source.schema_file else ""
    return (
        f"{source.topic}: {source.format}{schema}, {count(len(source.fields), 'field')}, up to"
        f" {format_size(source.max_event_bytes)} an event, {count(source.partitions, 'partition')}"
    )


def _master(pipeline: Pipeline) -> str:
    master = pipeline.master
    by = f"{master.table} by {', '.join(master.key)}"
    added = (
        column if column == name else f"{column} as {name}"
        for column, name in master.columns.items()
    )
    return f"{by}: adds {', '.join(added)}" if master.columns else f"{by}: adds nothing"


def _order(pipeline: Pipeline) -> str:
    order = pipeline.order
    if order.within:
        return f"{order} events of where an event stood in its slot"
    told = {
        "none": "outputs leave when they are ready",
        "key": "the outputs of a key leave as its events came",
        "source": "a slot's outputs leave as its events came",
    }
    return f"{order}: {told[str(order)]}"


def _overload(pipeline: Pipeline) -> str:
    overload = pipeline.overload
    if overload is None:
        return "backpressure: events wait in Kafka"
    how = f" for {overload.criterion}" if overload.criterion else ""
    return f"sheds by {overload.shed}{how} when behind by {format_duration(overload.when_behind)}"


def _memory(pipeline: Pipeline, links: list[Pipeline]) -> str:
    node = sum(link.memory for link in links)
    total = format_size(node * pipeline.nodes)
    return (
        f"{format_size(node)} a node, {count(pipeline.nodes, 'node')}: {total} in all;"
        f" {count(pipeline.slots, 'slot')}"
    )
