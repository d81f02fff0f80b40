"""The cache half: answers what the cache can answer completely; the rest is the disk half's.

An event is answered with all its master rows or not at all. So a key may enter or leave the cache
between any two batches without a wrong answer.

Where the pipeline keeps an order, it answers nothing by itself: all events go on to the disk half
as they came, each hit with its entry, so that one half alone gives outputs.

Where both halves are one engine, that finds the hits as it lets events in (disk.py), and this half
looks after what is cached: plans, age, who wants to see it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Protocol

import numpy as np

from dovetail.join.cached import NOTHING
from dovetail.join.caching import CachePhase
from dovetail.join.columns import Column
from dovetail.join.entry import Entries, entries_at, sizes_at
from dovetail.join.mapper import Mapper
from dovetail.join.splice import slice_bytes
from dovetail.node.contents import EPOCH_S, CacheContents, as_cached
from dovetail.node.step import UNFIT_KEY, Counted, Evicted, Kind, Letters, Missed
from dovetail.pipeline.spec import KeyType
from dovetail.stream import ledger as outcome
from dovetail.stream.batch import EventBatch, cuts
from dovetail.topology import LARGEST_MESSAGE_BYTES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from dovetail.join.caching import Cache, Hits
    from dovetail.join.columns import Flags, Ints, JoinKeys
    from dovetail.node.answers import Answers
    from dovetail.node.step import Migrating, Part
    from dovetail.pipeline.spec import Pipeline
    from dovetail.stream.migrations import Change

_ROUNDS = 20
"""An entry leaves within one part in so many of the time after which it has to."""
_ROUND_S = 60.0
"""A round takes no longer: it also finds the oldest."""
_FRAME = 4 << 10
"""What a message takes beside an event, its key and its entry."""


class Guard(Protocol):
    """Who sheds in an overload."""

    @property
    def strategy(self) -> str: ...

    def admit(self, keys: JoinKeys, hits: Hits) -> Flags | None:
        """Which events go on; None if all do."""
        ...


class Migrations(Protocol):
    """Where the cache's keys come from; `MigrationReader` over Kafka."""

    def follow(self, slots: list[int]) -> None: ...

    def forget(self, slots: list[int]) -> None: ...

    def changes(self) -> Iterable[Change]: ...

    def waiting_for(self) -> str: ...

    @property
    def loaded(self) -> float: ...

    def close(self) -> None: ...


class CacheHalf:
    def __init__(
        self,
        link: Pipeline,
        answers: Answers,
        cache: Cache,
        piece_bytes: int,
        clock: Callable[[], float],
    ) -> None:
        """Events that are missed go on in pieces of `piece_bytes` at most."""
        self.answers = answers
        self.cache = cache
        self.contents = CacheContents(link, cache, clock)
        self._keeps_order = link.order.kept
        self._mapper = Mapper(link.slots, int_key=link.key_type is KeyType.INT)
        self._refresh_s = link.master.refresh
        self._piece_bytes = piece_bytes
        self._most = slice_bytes(link.memory)
        self._no_rows = Entries.without_rows()
        self._clock = clock
        self._looked_at = clock()

    def figures(self) -> dict[str, float]:
        cache = self.cache
        figures: dict[str, float] = {
            "cache_used_bytes": cache.used,
            "cache_keys": len(cache),
            "cache_hits": cache.hits,
            "cache_misses": cache.misses,
            "cache_taken": cache.taken,
            "cache_evicted": cache.evicted,
            "cache_refused": cache.refused,
            **{f"component_bytes.{name}": size for name, size in cache.components.items()},
        }
        if cache.oldest != NOTHING:
            figures["cache_oldest_s"] = max(0.0, self._clock() - cache.oldest - EPOCH_S)
        return figures

    # ── between two batches ──────────────────────────────────────────────────────────────

    def apply(self, change: Change) -> None:
        """Take keys into the cache, and let others go."""
        self.cache.drop(change.evictions)
        self.hold(change.entries, change.events, change.cycle, change.read_at_ms)

    def hold(self, entries: Entries, events: Ints, cycle: int, read_at_ms: Ints) -> None:
        """Take keys into the cache whose rows were read at these times."""
        self.cache.take(entries, events, cycle, as_cached(read_at_ms, self._clock()))

    def adopt(self, part: Migrating) -> None:
        """Take in what the disk half of the same node has found worth a place."""
        read_at = np.full(len(part.keys), int(part.read_at * 1000))
        self.hold(part.entries, part.events, part.cycle, read_at)
        self.forget_evicted()

    def forget_evicted(self) -> None:
        """Let them go where nobody else has to know."""
        self.cache.departed()

    def forget(self, slots: list[int]) -> None:
        """These slots are another node's."""
        self.cache.drop_slots(self._mapper, slots)

    def expire(self) -> None:
        """Let go of what was read too long ago."""
        now = self._clock()
        before = max(0.0, now - self._refresh_s - EPOCH_S)
        round_s = min(self._refresh_s / _ROUNDS, _ROUND_S)
        self.cache.expire(int(before), (now - self._looked_at) / round_s)
        self._looked_at = now

    # ── a step ───────────────────────────────────────────────────────────────────────────

    def take(self, slot: int, batch: EventBatch, guard: Guard | None = None) -> Iterator[Part]:
        """Answer what the cache can; without a guard nothing is shed."""
        yield Counted(slot, outcome.IN, batch.partitions)
        for part in self.sift(slot, batch):
            if isinstance(part, Missed):
                yield from self._join(slot, part.batch, guard)
            else:
                yield part

    def sift(self, slot: int, batch: EventBatch) -> Iterator[Part]:
        """Answer or park what no master row is for; all else is given as missed."""
        if batch.unfit:
            yield Letters(Kind.PARKED, slot, batch, UNFIT_KEY, batch.unfit)
        elif batch.keyless:
            # A link of a chain found no key in them: there is no row for them.
            yield Counted(slot, outcome.HITS, batch.partitions)
            starts = np.zeros(len(batch), np.int64)
            yield from self.answers.to(slot, batch, self._no_rows.data, starts)
        elif len(batch):
            size = float(np.diff(batch.events.bounds[[0, -1]])[0]) / len(batch)
            self.contents.event_bytes = size
            yield Missed(slot, batch)

    def evicted(self) -> Iterator[Evicted]:
        """The keys that have left by themselves since this was last asked."""
        gone = self.cache.departed()
        if len(gone):
            yield Evicted(gone)

    # ── in it ────────────────────────────────────────────────────────────────────────────

    def _join(self, slot: int, batch: EventBatch, guard: Guard | None) -> Iterator[Part]:
        assert isinstance(self.cache, CachePhase), "an engine's cache is probed by the engine"
        self.cache.see(self.contents.event_bytes)
        while len(batch):
            hits = self.cache.probe(batch.keys, self._most)
            part, batch = batch.slice(0, hits.seen), batch.slice(hits.seen, len(batch))
            kept = None if guard is None else guard.admit(part.keys, hits)
            if guard is not None and kept is not None:
                yield _shed(slot, part.take(np.flatnonzero(~kept)), guard.strategy)
                part, hits = part.take(np.flatnonzero(kept)), hits.among(kept)
            yield from self._answer(slot, part, hits)

    def _answer(self, slot: int, batch: EventBatch, hits: Hits) -> Iterator[Part]:
        if self._keeps_order:
            for part in with_entries(batch, hits, self._piece_bytes):
                yield from self._missed(slot, part)
            return
        answered, missed = hits.positions, hits.misses
        yield Counted(slot, outcome.HITS, batch.partitions[answered])
        if len(answered):
            events = _part(batch, answered)
            yield from self.answers.to(slot, events, hits.entries, hits.starts)
        if len(missed):
            yield from self._missed(slot, _part(batch, missed))

    def _missed(self, slot: int, batch: EventBatch) -> Iterator[Part]:
        for piece in batch.pieces(self._piece_bytes):
            yield Missed(slot, piece)


def with_entries(batch: EventBatch, hits: Hits, most: int) -> Iterator[EventBatch]:
    """All events, those that are hits with their entries, in batches of about so many bytes.

    An entry that is too large for a message beside its event stays here.
    """
    sizes = sizes_at(hits.entries, hits.starts)
    fit = sizes + batch.sizes[hits.positions] <= LARGEST_MESSAGE_BYTES - _FRAME
    if not fit.all():
        hits, sizes = hits.only(fit), sizes[fit]
    if not len(hits.positions):
        yield batch
        return
    bounds = np.zeros(len(batch) + 1, np.int64)
    bounds[hits.positions + 1] = sizes
    bounds = np.cumsum(bounds)
    for first, end in cuts(batch.events.bounds + bounds, most):
        part = hits.part(first, end)
        entries = entries_at(part.entries, part.starts)
        own = bounds[first : end + 1] - bounds[first]
        yield replace(batch.slice(first, end), entries=Column(entries.data, own))


def _part(batch: EventBatch, positions: Ints) -> EventBatch:
    """The events at these positions; all of them without a copy."""
    return batch if len(positions) == len(batch) else batch.take(positions)


def _shed(slot: int, events: EventBatch, strategy: str) -> Letters:
    reason = f"overload: {strategy}".encode()
    return Letters(Kind.SHED, slot, events, reason, strategy=strategy)
