"""Where a stage reads on: at its committed offset, if the broker still has what lies there.

    nothing committed    the partition begins for this pipeline: with the first record it still has
    committed < first    what lay between was deleted before it was read. Of the source, whose
                         retention is its owner's, it is counted as lost, and the rest is read; of
                         an internal topic, which keeps what is unread, it is a fault
    committed > end      the log was cut short: a broker restored from a copy, an unclean election,
                         a topic made anew. Whoever read on would answer events once more, or not at
                         all, so nothing is read until somebody says from where. The end is
                         committed beside the offset: a log that grows beyond it is as wrong

A place is committed before anything is read from it (loop.py). So who has written
anything has committed before, and offsets that are gone were forgotten (forgotten.py).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from dovetail.errors import Unavailable
from dovetail.topology import Keeps

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dovetail.topology import Topic


class AstrayError(Unavailable):
    """What was committed is not where the log is: somebody has to decide."""

    def __init__(self, message: str, cut: Mapping[int, Cut] | None = None) -> None:
        super().__init__(message)
        self.cut = cut or {}
        """Partitions whose log ended before what was committed."""


class Cut(NamedTuple):
    committed: int
    end: int


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
    topic: Topic,
    committed: Mapping[int, int | None],
    spans: Mapping[int, Span],
    ends: Mapping[int, int] | None = None,
) -> dict[int, Place]:
    """Where to read those partitions that cannot be read on from what is committed of them.

    `ends` has where logs ended when they were found to be cut.
    """
    unknown = sorted(committed.keys() - spans.keys())
    if unknown:
        raise Unavailable(f"partition {unknown[0]} of {topic.name} is not known everywhere yet")
    require_within(topic, {n: at for n, at in committed.items() if at is not None}, spans, ends)
    found = {}
    for partition, at in committed.items():
        span = spans[partition]
        if at is None:
            found[partition] = Place(span.first)
        elif at < span.first:
            _require_ours_to_lose(topic, partition, at, span)
            found[partition] = Place(span.first, span.first - at)
    return found


def require_within(
    topic: Topic,
    read_to: Mapping[int, int],
    spans: Mapping[int, Span],
    ends: Mapping[int, int] | None = None,
) -> None:
    """Raise an AstrayError if partitions were read beyond their ends."""
    last = {number: span.end for number, span in spans.items()} | dict(ends or {})
    cut = {number: Cut(at, last[number]) for number, at in read_to.items() if at > last[number]}
    if cut:
        raise AstrayError(_beyond(topic, cut), cut)


def _require_ours_to_lose(topic: Topic, partition: int, at: int, span: Span) -> None:
    if topic.keeps is Keeps.UNREAD:
        raise AstrayError(
            f"partition {partition} of {topic.name} begins at {span.first}, and was read up to {at}"
            f" only: somebody has deleted events in flight. Nothing more is read. Set the topic's"
            f" retention.ms and retention.bytes to -1, and see docs/operations.md, Offsets out of"
            f" range"
        )


def _beyond(topic: Topic, cut: Mapping[int, Cut]) -> str:
    which = "; ".join(
        f"partition {partition} of {topic.name} ends at {end}, and was read up to {at}"
        for partition, (at, end) in cut.items()
    )
    cure = "say from where on, see"
    if topic.keeps is not Keeps.UNREAD:
        offsets = " ".join(f"--offset {partition}={end}" for partition, (_, end) in cut.items())
        cure = f"say from where on (dovetail restart {offsets}), see"
    return (
        f"{which}: the broker has lost what lay between, or the topic was made anew. Nothing more"
        f" is read: {cure} docs/operations.md, Offsets out of range"
    )
