"""Answering events, alike in both phases: splice, send, count, slice by slice.

What the last table of a chain answers goes to the sink, and what one before it does to the next.

An event with an output that is too large to be sent there is parked whole. How much the sink takes
may change at any time; it is asked for only where there is more than every sink takes.
"""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import numpy as np

from dovetail.join.columns import Column
from dovetail.join.kinds import JoinKind
from dovetail.join.splice import null_row, oversized, rowless, slice_bytes, slices
from dovetail.stream import ledger as outcome
from dovetail.stream.match_rate import MatchRate
from dovetail.stream.onward import Onward
from dovetail.stream.parking import TOO_LARGE, park
from dovetail.stream.provenance import DETAIL, ORIGIN, REASON, VIA, origins
from dovetail.topology import LARGEST_MESSAGE_BYTES, SMALLEST_SINK_BYTES

if TYPE_CHECKING:
    from collections.abc import Callable

    from dovetail.join.columns import Bytes, Flags, Ints, SmallInts
    from dovetail.join.splice import Spliced
    from dovetail.pipeline.spec import Pipeline
    from dovetail.service.metrics import Latency
    from dovetail.stream.ledger import Ledger
    from dovetail.stream.rdkafka import Producer
    from dovetail.topology import Topic, Topology

_VIAS = Column.of([b"disk", b"cache"])
NO_MASTER_ROW = b"no-master-row"
HAS_MASTER_ROW = b"has-master-row"
_NOTES = 1 << 10
"""What a message takes beside an output: headers, and a batch's own."""
_KEY = 64 << 10
"""What it takes on its way to another table: its key there, once more."""


def takes_anything() -> int:
    """What a sink takes that is not there: where kernels are warmed, or a phase is measured."""
    return LARGEST_MESSAGE_BYTES


class Sourced(Protocol):
    """Events with what they were known by at their source; an `EventBatch` is one."""

    @property
    def events(self) -> Column: ...
    @property
    def partitions(self) -> SmallInts: ...
    @property
    def offsets(self) -> Ints: ...
    @property
    def timestamps(self) -> Ints: ...


class HandsOn(Protocol):
    """Where a link's outputs go that are not the last one's; `Onward` by the next one's topic."""

    def send(
        self,
        producer: Producer,
        slot: int,
        events: Column,
        partitions: SmallInts,
        offsets: Ints,
        timestamps: Ints,
    ) -> None: ...


class Parks(Protocol):
    """What `park` is."""

    def __call__(
        self,
        producer: Producer,
        topology: Topology,
        ledger: Ledger,
        slot: int,
        batch: Sourced,
        reason: bytes,
        detail: str,
        /,
    ) -> None: ...


@dataclass(frozen=True, slots=True)
class SourcedEvents:
    events: Column
    partitions: SmallInts
    offsets: Ints
    timestamps: Ints

    @classmethod
    def of(cls, batch: Sourced, places: Ints) -> SourcedEvents:
        return cls(
            batch.events.take(places),
            batch.partitions[places],
            batch.offsets[places],
            batch.timestamps[places],
        )


class Answers:
    """Sends the join's results for one link of a pipeline, from one of its phases."""

    def __init__(
        self,
        pipeline: Pipeline,
        topology: Topology,
        via: bytes,
        latency: Latency,
        sink_takes: Callable[[], int],
        onward: HandsOn | None = None,
        unmatched: Topic | None = None,
        parks: Parks = park,
    ) -> None:
        """`pipeline` is the link's, `topology` seen from it; `unmatched` may be another's topic.

        `sink_takes` tells the bytes of the largest message that the sink takes now; `parks` is what
        becomes of events with an output that is larger.
        """
        self._kind = pipeline.join
        self._topology = topology
        self._via = via
        self._unmatched = unmatched or topology.unmatched
        self._latency = latency
        names = [
            json.dumps(name, ensure_ascii=False).encode()
            for name in pipeline.master.columns.values()
        ]
        self._no_row = null_row(names)
        self._most = slice_bytes(pipeline.memory)
        reason = NO_MASTER_ROW if pipeline.join is not JoinKind.ANTI else HAS_MASTER_ROW
        self._why = ((REASON, reason), *self._which(pipeline.master.table))
        if onward is None and topology.next is not None:
            onward = Onward(topology.next)
        self._onward = onward
        self._sink_takes = sink_takes
        self._parks = parks
        self.matches = MatchRate(pipeline.master.table)

    def send(
        self,
        producer: Producer,
        ledger: Ledger,
        slot: int,
        batch: Sourced,
        entries: Bytes,
        starts: Ints,
        cached: Flags | None = None,
    ) -> None:
        """Answer every event of a slot's batch from the entry that starts at `starts[i]`.

        `cached` says which entries are the cache's where that is another phase's.
        """
        left = self._park_too_large(producer, ledger, slot, batch, entries, starts)
        if left is not None:
            batch, starts = SourcedEvents.of(batch, left), starts[left]
            cached = None if cached is None else cached[left]
        identity = origins(self._topology.source.name, batch.partitions, batch.offsets)
        unmatched = outputs = 0
        for joined in slices(self._kind, batch.events, entries, starts, self._no_row, self._most):
            self._send_slice(producer, slot, batch, joined, identity, cached)
            unmatched += len(joined.unmatched)
            outputs += len(joined.outputs)
        ledger.add(slot, outcome.ENRICHED, len(starts) - unmatched)
        ledger.add(slot, outcome.UNMATCHED, unmatched)
        ledger.add(slot, outcome.OUTPUTS, outputs)
        self.matches.see(len(starts), self._matched(unmatched, entries, starts))

    def _park_too_large(
        self,
        producer: Producer,
        ledger: Ledger,
        slot: int,
        batch: Sourced,
        entries: Bytes,
        starts: Ints,
    ) -> Ints | None:
        """Park the events with an output that cannot be sent; say which are left, if not all."""
        joined = self._kind, batch.events, entries, starts, self._no_row
        places, sizes = oversized(*joined, SMALLEST_SINK_BYTES - _NOTES)
        if not len(places):
            return None
        takes = LARGEST_MESSAGE_BYTES
        if self._onward is None:
            takes = min(takes, self._sink_takes())
        beyond = sizes > takes - (_NOTES if self._onward is None else _KEY)
        places, sizes = places[beyond], sizes[beyond]
        if not len(places):
            return None
        sink = self._topology.enriched.name if self._onward is None else "the next table's topic"
        detail = (
            f"an output of {sizes.max():,} bytes, and {sink} takes messages of {takes:,}"
            f" (max.message.bytes)"
        )
        self._parks(
            producer,
            self._topology,
            ledger,
            slot,
            SourcedEvents.of(batch, places),
            TOO_LARGE,
            detail,
        )
        return np.delete(np.arange(len(starts)), places)

    def _send_slice(
        self,
        producer: Producer,
        slot: int,
        batch: Sourced,
        joined: Spliced,
        identity: Column,
        cached: Flags | None,
    ) -> None:
        if len(joined.outputs) and self._onward is not None:
            of = joined.events
            places = batch.partitions[of], batch.offsets[of], batch.timestamps[of]
            self._onward.send(producer, slot, joined.outputs, *places)
        elif len(joined.outputs):
            of_output = identity.take(joined.events)
            via = self._via if cached is None else _vias(cached[joined.events])
            producer.send_many(
                self._topology.enriched.name,
                slot,
                joined.outputs.data,
                joined.outputs.bounds,
                headers=((ORIGIN, (of_output.data, of_output.bounds)), (VIA, via)),
            )
            self._latency.observe(time.time_ns() // 1_000_000 - batch.timestamps[joined.events])
        if len(joined.unmatched):
            events = batch.events.take(joined.unmatched)
            of_event = identity.take(joined.unmatched)
            producer.send_many(
                self._unmatched.name,
                0,
                events.data,
                events.bounds,
                headers=((ORIGIN, (of_event.data, of_event.bounds)), *self._why),
            )

    def _which(self, table: str) -> tuple[tuple[bytes, bytes], ...]:
        """Name the table, where there are several."""
        return ((DETAIL, table.encode()),) if len(self._topology.links) > 1 else ()

    def _matched(self, unmatched: int, entries: Bytes, starts: Ints) -> int:
        """How many of the events had a master row."""
        if self._kind is JoinKind.LEFT:
            return len(starts) - rowless(entries, starts)
        return unmatched if self._kind is JoinKind.ANTI else len(starts) - unmatched


def _vias(cached: Flags) -> tuple[Bytes, Ints]:
    vias = _VIAS.take(cached.astype(np.int64))
    return vias.data, vias.bounds
