"""Answers what the cache could not, by batched lookups, and migrates the keys worth it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from dovetail.join.columns import Column, JoinKeys
from dovetail.join.entry import Entries, MasterRows, distinct
from dovetail.join.mapper import Mapper
from dovetail.join.sketch import FrequencySketch
from dovetail.pipeline.spec import KeyType
from dovetail.stream import ledger as outcome
from dovetail.stream.answer import Answers
from dovetail.stream.batch import EventBatch, batches_of
from dovetail.stream.loop import Handler
from dovetail.stream.migrations import send_migrations

if TYPE_CHECKING:
    from dovetail.join.columns import Ints
    from dovetail.master.port import MasterStore
    from dovetail.pipeline.spec import Pipeline
    from dovetail.service.metrics import Latency
    from dovetail.stream.ledger import Ledger
    from dovetail.stream.rdkafka import Producer, Records
    from dovetail.topology import Topology

VIA_DISK = b"disk"
WORTH_MIGRATING = 2
"""Lookups of a key, lately, that make it worth a place in the cache: once may be never
again, and the cache is not a log of everything seen."""


class DiskHandler(Handler):
    def __init__(
        self,
        pipeline: Pipeline,
        topology: Topology,
        store: MasterStore,
        budget: int,
        keys_a_query: int,
        latency: Latency,
    ) -> None:
        self._int_key = pipeline.key_type is KeyType.INT
        self._migrations = topology.migrations
        self._mapper = Mapper(pipeline.slots, int_key=self._int_key)
        self._store = store
        self._budget = budget
        self._keys_a_query = keys_a_query
        self._sketch = FrequencySketch(budget // 8)
        self._answers = Answers(pipeline, topology, VIA_DISK, latency)
        self._queries = 0
        self._keys_read = 0
        self._held = 0
        self._held_most = 0

    def handle(self, records: Records, producer: Producer, ledger: Ledger) -> None:
        batches = batches_of(records)
        # One batch over all slots: a query costs less a key the more keys it has.
        events = EventBatch.concatenate([batch for _, batch in batches])
        firsts, ranks = distinct(events.keys)
        keys = events.keys.take(firsts)
        entries = self._look_up(keys)
        self._held = events.nbytes + entries.nbytes
        self._held_most = max(self._held_most, self._held)
        starts = entries.bounds[ranks]
        first = 0
        for slot, batch in batches:
            ledger.add(slot, outcome.IN, len(batch))
            end = first + len(batch)
            self._answers.send(producer, ledger, slot, batch, entries.data, starts[first:end])
            first = end
        self._migrate(keys, entries, np.bincount(ranks, minlength=len(keys)), producer)
        self._held = 0

    def _look_up(self, keys: JoinKeys) -> Entries:
        parts = []
        for first in range(0, len(keys), self._keys_a_query):
            parts.append(self._store.rows_of(keys.slice(first, first + self._keys_a_query)))
            self._queries += 1
        self._keys_read += len(keys)
        return Entries.of(keys, MasterRows.concatenate(parts))

    def _migrate(self, keys: JoinKeys, entries: Entries, times: Ints, producer: Producer) -> None:
        worth = np.flatnonzero(self._sketch.reached(keys.values, times, WORTH_MIGRATING))
        if len(worth):
            chosen = Column(entries.data, entries.bounds).take(worth)
            send_migrations(
                producer,
                self._migrations,
                self._mapper,
                keys.take(worth),
                Entries(chosen.data, chosen.bounds),
                int_key=self._int_key,
            )

    def figures(self) -> dict[str, float]:
        return {
            "budget_bytes": self._budget,
            "held_bytes": self._sketch.allocated + self._held,
            "held_most_bytes": self._sketch.allocated + self._held_most,
            "queries": self._queries,
            "keys_read": self._keys_read,
        }

    def close(self) -> None:
        self._store.close()
