"""Answering events, alike in both halves: splice and count, slice by slice.

An event with an output that is too large to be sent is parked whole. How much a sink takes may
change at any time; it is asked for only where there is more than every sink takes.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from dovetail.join.columns import Column
from dovetail.join.kinds import JoinKind
from dovetail.join.splice import null_row, oversized, rowless, slice_bytes, slices
from dovetail.node.step import TOO_LARGE, Counted, Kind, Letters, Outputs, SourcedEvents
from dovetail.stream import ledger as outcome
from dovetail.stream.match_rate import MatchRate
from dovetail.topology import LARGEST_MESSAGE_BYTES, SMALLEST_SINK_BYTES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from dovetail.join.columns import Bytes, Flags, Ints
    from dovetail.node.step import Part, Sourced
    from dovetail.pipeline.spec import Pipeline
    from dovetail.topology import Topology

VIA_CACHE, VIA_DISK = b"cache", b"disk"
_VIAS = Column.of([VIA_DISK, VIA_CACHE])
NO_MASTER_ROW = b"no-master-row"
HAS_MASTER_ROW = b"has-master-row"
_NOBODY = np.empty(0, np.int64)
_NOTES = 1 << 10
"""What a message takes beside an output: headers, and a batch's own."""
_KEY = 64 << 10
"""What it takes on its way to another table: its key there, once more."""


def takes_anything() -> int:
    """What a sink takes that is not there: where kernels are warmed, or a phase is measured."""
    return LARGEST_MESSAGE_BYTES


@dataclass(frozen=True, slots=True)
class Sink:
    """What takes the outputs: a topic, or a chain's next table."""

    name: str
    takes: Callable[[], int]
    """The bytes of the largest message that it takes now."""
    notes: int
    """What a message takes beside its output."""

    @classmethod
    def of(cls, topology: Topology, takes: Callable[[], int]) -> Sink:
        """That of a link; `takes` is asked of the topic `enriched`."""
        if topology.next is not None:
            return cls("the next table's topic", takes_anything, _KEY)
        return cls(topology.enriched.name, takes, _NOTES)


class Answers:
    """Makes one link's outputs, and the letters of events without any."""

    def __init__(self, link: Pipeline, via: bytes, sink: Sink, *, several: bool = False) -> None:
        """`via` says who answers; `several`: the link is one of a chain, whose letters name it."""
        self._kind = link.join
        self._via = via
        self._sink = sink
        self._table = link.master.table if several else ""
        names = [
            json.dumps(name, ensure_ascii=False).encode() for name in link.master.columns.values()
        ]
        self._no_row = null_row(names)
        self._most = slice_bytes(link.memory)
        anti = link.join is JoinKind.ANTI
        self._reason = HAS_MASTER_ROW if anti else NO_MASTER_ROW
        self.matches = MatchRate(link.master.table)

    @classmethod
    def of(cls, topology: Topology, via: bytes, takes: Callable[[], int]) -> Answers:
        """Those of the link that a topology is seen from; `takes` is asked of `enriched`."""
        link = topology.pipeline.link(topology.number)
        return cls(link, via, Sink.of(topology, takes), several=len(topology.links) > 1)

    def to(
        self, slot: int, batch: Sourced, entries: Bytes, starts: Ints, cached: Flags | None = None
    ) -> Iterator[Part]:
        """Answer every event of a slot's batch from the entry that starts at `starts[i]`.

        `cached` says which entries are the cache's where that is another half's.
        """
        parked = self._too_large(slot, batch, entries, starts)
        if parked is not None:
            places, letters = parked
            yield letters
            left = np.delete(np.arange(len(starts)), places)
            batch, starts = SourcedEvents.of(batch, left), starts[left]
            cached = None if cached is None else cached[left]
        unmatched: list[Ints] = []
        for joined in slices(self._kind, batch.events, entries, starts, self._no_row, self._most):
            if len(joined.outputs):
                via = self._via if cached is None else _vias(cached[joined.events])
                yield Outputs(slot, joined.outputs, joined.events, batch, via)
            if len(joined.unmatched):
                of = SourcedEvents.of(batch, joined.unmatched)
                yield Letters(Kind.UNMATCHED, slot, of, self._reason, self._table)
                unmatched.append(joined.unmatched)
        without = np.concatenate([*unmatched, _NOBODY])
        yield Counted(slot, outcome.ENRICHED, np.delete(batch.partitions, without))
        self.matches.see(len(starts), self._matched(len(without), entries, starts))

    def _too_large(
        self, slot: int, batch: Sourced, entries: Bytes, starts: Ints
    ) -> tuple[Ints, Letters] | None:
        """Which events have an output that cannot be sent, if any, and the letters of them."""
        joined = self._kind, batch.events, entries, starts, self._no_row
        places, sizes = oversized(*joined, SMALLEST_SINK_BYTES - _NOTES)
        if not len(places):
            return None
        takes = min(LARGEST_MESSAGE_BYTES, self._sink.takes())
        beyond = sizes > takes - self._sink.notes
        places, sizes = places[beyond], sizes[beyond]
        if not len(places):
            return None
        detail = (
            f"an output of {sizes.max():,} bytes, and {self._sink.name} takes messages of "
            f"{takes:,} (max.message.bytes)"
        )
        of = SourcedEvents.of(batch, places)
        return places, Letters(Kind.PARKED, slot, of, TOO_LARGE, detail)

    def _matched(self, unmatched: int, entries: Bytes, starts: Ints) -> int:
        """How many of the events had a master row."""
        if self._kind is JoinKind.LEFT:
            return len(starts) - rowless(entries, starts)
        return unmatched if self._kind is JoinKind.ANTI else len(starts) - unmatched


def _vias(cached: Flags) -> bytes | Column:
    if cached.all():
        return VIA_CACHE
    return _VIAS.take(cached.astype(np.int64))
