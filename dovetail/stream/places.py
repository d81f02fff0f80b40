"""Where a stage reads on: at its committed offset, if the broker still has what lies there.

    nothing committed    the partition begins for this pipeline: with the first record it still has
    committed < first    what lay between was deleted before it was read. Of the source, whose
                         retention is its owner's, it is counted as lost, and the rest is read; of
                         an internal topic, which keeps what is unread, it is a fault
    committed > end      the log was cut short: a broker restored from a copy, an unclean election,
                         a topic made anew. Whoever read on would answer events once more, or not at
                         all, so nothing is read until somebody says from where

A place is committed before anything is read from it (loop.py). So who has written
anything has committed before, and offsets that are gone were forgotten (forgotten.py).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from dovetail.errors import Unavailable
from dovetail.topology import Keeps

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dovetail.topology import Topic


class AstrayError(Unavailable):
    """What was committed is not where the log is: somebody has to decide."""


@dataclass(frozen=True, slots=True)
class Place:
    offset: int
    lost: int = 0
    """Offsets that were deleted before they were read. A transaction's end takes one, too."""


@dataclass(frozen=True, slots=True)
class Span:
    """What the broker has of a partition."""

    first: int
    end: int


def new_places(
    topic: Topic, committed: Mapping[int, int | None], spans: Mapping[int, Span]
) -> dict[int, Place]:
    """Where to read those partitions that cannot be read on from what is committed of them."""
    found = {}
    for partition, at in committed.items():
        span = spans[partition]
        if at is None:
            found[partition] = Place(span.first)
        elif at < span.first:
            _require_ours_to_lose(topic, partition, at, span)
            found[partition] = Place(span.first, span.first - at)
        elif at > span.end:
            raise AstrayError(_beyond(topic, partition, at, span))
    return found


def _require_ours_to_lose(topic: Topic, partition: int, at: int, span: Span) -> None:
    if topic.keeps is Keeps.UNREAD:
        raise AstrayError(
            f"partition {partition} of {topic.name} begins at {span.first}, and was read up to {at}"
            f" only: somebody has deleted events in flight. Nothing more is read. Set the topic's"
            f" retention.ms and retention.bytes to -1, and see docs/operations.md, Offsets out of"
            f" range"
        )


def _beyond(topic: Topic, partition: int, at: int, span: Span) -> str:
    cure = (
        "say from where on, see"
        if topic.keeps is Keeps.UNREAD
        else f"say from where on (dovetail restart --offset {partition}={span.end}), see"
    )
    return (
        f"partition {partition} of {topic.name} ends at {span.end}, and was read up to {at}: the"
        f" broker has lost what lay between, or the topic was made anew. Nothing more is read:"
        f" {cure} docs/operations.md, Offsets out of range"
    )
