"""A node's part of a portion, joined with R as it is now.

    shed, unmatched, still-unmatched ─► engine ──────────────► answers
                                          │ a key with too many rows
    parked ───────────────────────────────┴─► row by row ────► answers

There is no cache in front: what a cache holds was read before, and events are here because of rows
that have come since. All of a portion is let in, as far as there is room, before R is read: by one
scan or by lookups, whichever costs less for the keys that wait (enrich_choice.py).

| an event of    | with output        | without                                                   |
| -------------- | ------------------ | --------------------------------------------------------- |
| shed, parked   | enriched, `late`   | `unmatched`, as the services would: it is seen there once |
| unmatched, and | enriched, `late`   | `still-unmatched`, where the next run finds it            |
| still-unmatched|                    |                                                           |

An event with an output that is too large for the sink is parked. Row by row that is known when
other outputs of it are sent already: then the part is undone, and done once more with the events
known beforehand.

Memory: the pipeline's `memory`, for pending events, the disk buffer, and which events wait. A join
lives for one portion.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from dovetail.join.algorithms import Parameters
from dovetail.join.engine import Engine
from dovetail.join.entry import Entries
from dovetail.join.mapper import groups
from dovetail.join.policies import NoCache
from dovetail.node.answers import Answers
from dovetail.node.disk import DiskHalf
from dovetail.node.master import MasterJoin
from dovetail.node.step import (
    TOO_LARGE,
    TOO_MANY_ROWS,
    Counted,
    Kind,
    Letters,
    Outputs,
)
from dovetail.node.window import BYTES_AN_EVENT, LEAST, Window
from dovetail.service.metrics import Latency
from dovetail.stream import late
from dovetail.stream import ledger as outcome
from dovetail.stream.batch import EventBatch
from dovetail.stream.ledger import Ledger
from dovetail.stream.topic_settings import largest_message
from dovetail.stream.whole import Identity
from dovetail.stream.writing import PartWriter
from services.disk_phase.build import factors_of
from services.disk_phase.settings import KEYS_A_QUERY
from services.spark.backfill_rows import LargeKeys
from services.spark.backfill_source import KeyReader
from services.spark.enrich_choice import SCAN, Choice
from services.spark.relation import relation_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from dovetail.node.step import Part, Sourced
    from dovetail.pipeline.spec import Pipeline
    from dovetail.settings import Settings
    from dovetail.stream.rdkafka import Producer
    from dovetail.topology import Topology

VIA_LATE = b"late"
STILL = "still"
"""Counted for the run's figures: unmatched before and now."""
_HELD_AN_EVENT = 256
_LARGE_SHARE = 8
"""Events of keys that have too many rows wait in one part in so many of the memory."""
_NEW, _KNOWN = range(2)
"""Lanes: events that `unmatched` does not have yet, and those that it has."""
_LANES = {
    late.SHED: _NEW,
    late.PARKED: _NEW,
    late.UNMATCHED: _KNOWN,
    late.STILL_UNMATCHED: _KNOWN,
}
TooLarge = Mapping[Identity, str]
"""Events with an output that is too large for the sink, and what is to be said of it."""


class TooLargeError(Exception):
    """Events whose outputs were on their way have one that is too large."""

    def __init__(self, events: TooLarge) -> None:
        super().__init__(f"{len(events):,} events have an output that is too large for the sink")
        self.events = events


class LateJoin:
    def __init__(
        self,
        settings: Settings,
        pipeline: Pipeline,
        topology: Topology,
        producer: Producer,
        slots: Iterable[int],
        too_large: TooLarge,
    ) -> None:
        self._of = pipeline.slots
        self._takes_rows = pipeline.join.takes_columns  # else the first row says it all
        self._slots = frozenset(slots)
        self._producer = producer
        latency = Latency()  # not of interest: they are late
        self._writers = [
            PartWriter(topology, latency),
            PartWriter(topology, latency, unmatched=topology.still_unmatched),
        ]
        self._too_large = too_large
        self._noted: dict[Identity, str] = {}
        self._ledgers = [Ledger(), Ledger()]
        self._taken = {late.SHED: Ledger(), late.PARKED: Ledger()}
        capacity = max(LEAST, pipeline.memory // _HELD_AN_EVENT)
        large = pipeline.memory // _LARGE_SHARE
        left = pipeline.memory - capacity * BYTES_AN_EVENT - large
        self._choice = Choice(factors_of(pipeline))
        self._relation = relation_of(settings, pipeline, read_ahead=True)
        self._relation.keep(self._slots)
        self._engine = Engine(
            SCAN,
            self._relation.facts,
            left,
            parameters=Parameters(keys=KEYS_A_QUERY),
            policy=NoCache(),
        )
        join = MasterJoin(self._engine, self._relation)
        takes = partial(largest_message, settings, topology.enriched)
        self._answers = Answers.of(topology, VIA_LATE, takes)
        self._disk = DiskHalf(self._answers, join, Window(capacity))
        self._chosen = False
        self._reader = KeyReader(pipeline)
        self._large = LargeKeys(self._relation, self._engine.disk_buffer, large)

    def take(self, number: int, slot: int, batch: EventBatch) -> None:
        """Let events of an input in; R is read for want of room alone."""
        if number in self._taken:
            self._taken[number].add(slot, outcome.IN, len(batch))
        place = _LANES[number] * self._of + slot
        batch = self._park_too_large(place, batch)
        if not len(batch):
            return
        if number == late.PARKED and self._takes_rows:
            self._set_apart(place, batch)
        else:
            self._let_in(place, batch)

    def finish(self) -> None:
        """Read R until everything is answered."""
        while self._disk.pending:
            self._read()
        if len(self._large):
            self._stream()

    def counts(self, slot: int) -> Counter[str]:
        """What became of a slot's events, for its state; and STILL."""
        new, known = self._ledgers
        enriched, parked = (
            [ledger.count(slot, one) for ledger in self._ledgers]
            for one in (outcome.ENRICHED, outcome.PARKED)
        )
        outputs = sum(ledger.count(slot, outcome.OUTPUTS) for ledger in self._ledgers)
        counted = {
            outcome.LATE: sum(enriched),
            outcome.OUTPUTS: outputs,
            outcome.UNMATCHED: new.count(slot, outcome.UNMATCHED),
            outcome.PARKED: sum(parked),
            outcome.of(outcome.SHED): self._taken[late.SHED].count(slot, outcome.IN),
            outcome.of(outcome.PARKED): self._taken[late.PARKED].count(slot, outcome.IN),
            outcome.of(outcome.UNMATCHED): enriched[_KNOWN] + parked[_KNOWN],
            STILL: known.count(slot, outcome.UNMATCHED),
        }
        return Counter({name: count for name, count in counted.items() if count})

    def close(self) -> None:
        self._disk.join.close()

    def _let_in(self, place: int, batch: EventBatch) -> None:
        self._disk.arrive(place, 0, batch)
        self._write(self._disk.let_in())
        while self._disk.arrivals:
            self._read()
            self._write(self._disk.let_in())

    def _read(self) -> None:
        """Read R once, and answer whom that completes."""
        self._choose()
        self._write(self._disk.read() or ())

    def _choose(self) -> None:
        if not self._chosen:
            self._chosen = True
            waiting = self._engine.held.pending.keys
            chosen = self._choice.between(self._relation.facts, waiting)
            if chosen != self._engine.algorithm:
                self._engine.switch(chosen)

    def _write(self, parts: Iterable[Part]) -> None:
        """Write what the disk half gives, by lane; a key with too many rows is not its matter."""
        for part in parts:
            if isinstance(part, Letters) and part.reason == TOO_MANY_ROWS:
                self._set_apart(part.slot, self._with_keys(part.of))
            else:
                self._write_one(part, self._ledgers)

    def _write_one(self, part: Part, ledgers: Sequence[Ledger]) -> None:
        assert isinstance(part, Outputs | Letters | Counted), "nothing migrates, nothing waits"
        lane, slot = divmod(part.slot, self._of)
        self._writers[lane].write([replace(part, slot=slot)], self._producer, ledgers[lane])

    def _park_too_large(self, place: int, batch: EventBatch) -> EventBatch:
        """Park the events that are known to have an output that is too large; give the others."""
        if not self._too_large:
            return batch
        by_detail: dict[str, list[int]] = {}
        for at, identity in enumerate(_identities(batch)):
            by_detail.setdefault(self._too_large.get(identity, ""), []).append(at)
        left = by_detail.pop("", [])
        for detail, places in by_detail.items():
            events = batch.take(np.array(places))
            letters = Letters(Kind.PARKED, place, events, TOO_LARGE, detail)
            self._write_one(letters, self._ledgers)
        return batch.take(np.array(left, np.int64))

    def _with_keys(self, of: Sourced) -> EventBatch:
        keys = self._reader.keys(of.events)
        return EventBatch(keys, of.events, of.partitions, of.offsets, of.timestamps)

    def _set_apart(self, place: int, batch: EventBatch) -> None:
        """Let events wait whose key has more rows than fit; the others go on."""
        self._large.add(place, batch)
        if self._large.full:
            self._stream()

    def _stream(self) -> None:
        """Answer the events whose keys have too many rows, piece by piece."""
        batch, places = self._large.leave()
        found = np.zeros(len(batch), np.bool_)
        of_pieces = [Ledger(), Ledger()]
        for piece in self._large.pieces(batch):
            found[piece.events] = True
            for place, rows in groups(places[piece.events].astype(np.int32)):
                events = batch.take(piece.events[rows])
                for part in self._answers.to(place, events, piece.entries, piece.starts[rows]):
                    if isinstance(part, Letters) and part.reason == TOO_LARGE:
                        # Outputs of it are on their way.
                        self._noted |= dict.fromkeys(_identities(part.of), part.detail)
                    else:
                        self._write_one(part, of_pieces)
        if self._noted:
            raise TooLargeError(self._noted)
        self._disk.keep(self._slots)  # R was read in between: it renews it
        nothing = Entries.without_rows().data
        for place, rows in groups(places.astype(np.int32)):
            lane, slot = divmod(place, self._of)
            outputs = of_pieces[lane].count(slot, outcome.OUTPUTS)
            self._ledgers[lane].add(slot, outcome.OUTPUTS, outputs)
            self._ledgers[lane].add(slot, outcome.ENRICHED, int(found[rows].sum()))
            without = rows[~found[rows]]
            if len(without):
                starts = np.zeros(len(without), np.int64)
                self._write(self._answers.to(place, batch.take(without), nothing, starts))


def _identities(batch: Sourced) -> Iterator[Identity]:
    return zip(batch.partitions.tolist(), batch.offsets.tolist(), strict=True)
