"""Batches behind a guard, on a clock of their own: counts of events in place of Spark."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from dovetail.join.caching import Hits
from dovetail.join.columns import Column, JoinKeys
from dovetail.join.shedding.strategies import KeepW, SampleW
from dovetail.pipeline.spec import Overload
from dovetail.service.metrics import Latency
from services.spark.enrich_node import Report
from services.spark.enrich_overload import BatchChoice, BatchGuard

WHEN_BEHIND = 5.0
FIXED_S = 0.3
"""What a batch takes beside its nodes, however small it is."""
PIECE = 1_000
MOST = 50_000
NODES = 2


class Application:
    """Answers batches on nodes that take so long for a hit and for a miss."""

    def __init__(self, hit_s, miss_s, hit_share=0.5, strategy=None):
        self.now = 0.0
        self.rate = 1_000.0
        self.arrived = 0.0
        self.served = 0
        self.counts = Counter()
        self.longest_s = 0.0
        self.miss_s = miss_s
        self._hit_s, self._hit_share = hit_s, hit_share
        self._strategy = strategy or KeepW()
        overload = Overload(when_behind=WHEN_BEHIND)
        self.guard = BatchGuard(overload, lambda: [int(self.arrived)], MOST, lambda: self.now)
        self.guard.begin({0: 0})

    @property
    def shedding(self):
        return self.guard.figures()["shedding"] == 1

    def run(self, seconds):
        """Let batches follow one another; give what became of their events."""
        before, until = Counter(self.counts), self.now + seconds
        self.longest_s = 0.0
        while self.now < until:
            self._batch()
        return self.counts - before

    def _batch(self):
        admission = self.guard.admission()
        events = min(int(self.arrived) - self.served, MOST)
        parts = [self._answer(node, events // NODES, admission) for node in range(NODES)]
        seconds = FIXED_S + max(part.seconds for part in parts)
        self.now += seconds
        self.arrived += self.rate * seconds
        self.longest_s = max(self.longest_s, seconds)
        self.served += sum(part.counts["in"] for part in parts)
        for part in parts:
            part.reached[0] = self.served
        self.guard.note(parts, seconds)

    def _answer(self, node, events, admission):
        choice = admission and BatchChoice(admission, self._strategy)
        counts, missed = Counter(), 0
        for first in range(0, events, PIECE):
            size = min(PIECE, events - first)
            hits = self._hits(size)
            kept = choice.admit(_keys(size), hits) if choice else None
            kept = np.ones(size, np.bool_) if kept is None else kept
            missed += len(hits.misses)
            counts["in"] += size
            counts["shed.keep-w"] += int((~kept).sum())
            counts["hits"] += int(kept[hits.positions].sum())
            counts["enriched"] += int(kept.sum())
        self.counts.update(counts)
        reading = (counts["enriched"] - counts["hits"]) * self.miss_s
        seconds = counts["hits"] * self._hit_s + reading
        return Report(
            *(node, counts, Latency(), Latency(), seconds, reading, counts["in"], missed),
            *({}, {}, 0, 0, 0, "srj", ""),
        )

    def _hits(self, events):
        hit = np.arange(events) % 100 < 100 * self._hit_share
        positions = np.flatnonzero(hit)
        starts = np.zeros(len(positions), np.int64)
        return Hits(positions, np.zeros(0, np.uint8), starts, np.flatnonzero(~hit))


def _keys(count):
    return JoinKeys(np.arange(count), Column.empty_values(count))


def test_what_can_be_answered_in_time_is_not_shed():
    application = Application(hit_s=1e-5, miss_s=1e-4)
    application.rate = 5_000
    assert application.run(120)["shed.keep-w"] == 0
    figures = application.guard.figures()
    assert figures["arrival_rate"] == pytest.approx(5_000, rel=0.1)
    assert figures["service_rate"] > 5_000


def test_a_burst_that_is_over_soon_is_not_shed():
    application = Application(hit_s=1e-5, miss_s=1e-3)
    application.run(30)
    application.arrived += 8_000
    assert application.run(30)["shed.keep-w"] == 0


def test_a_table_that_is_slow_at_once_is_noticed_by_one_batch():
    application = Application(hit_s=1e-5, miss_s=1e-4)
    application.run(30)
    application.miss_s = 5e-2
    shed = application.run(60)["shed.keep-w"]
    assert shed > 0
    # All that came during the first slow batch would take a minute.
    assert application.longest_s < 2 * WHEN_BEHIND


def test_a_first_batch_that_takes_long_is_no_overload():
    application = Application(hit_s=1e-5, miss_s=5e-2)
    application.arrived = 400
    application._batch()
    assert application.longest_s > 3
    application.miss_s = 1e-4
    assert application.run(30)["shed.keep-w"] == 0


def test_misses_alone_are_shed_where_r_takes_too_long_and_it_ends_by_itself():
    application = Application(hit_s=1e-5, miss_s=2e-3)
    application.run(30)
    application.rate = 8_000
    application.run(120)
    lately = application.run(120)
    assert application.shedding
    assert lately["hits"] == pytest.approx(lately["in"] / 2, rel=0.02), "a hit costs R nothing"
    misses = lately["enriched"] - lately["hits"]
    # Two nodes read 500 rows a second each, but for what a batch takes beside that.
    assert 750 * 120 < misses < 1_000 * 120
    assert application.longest_s < 0.7 * WHEN_BEHIND
    application.rate = 500
    application.run(60)
    assert not application.shedding
    assert application.run(60)["shed.keep-w"] == 0


def test_hits_are_shed_too_where_they_are_too_many():
    application = Application(hit_s=1e-3, miss_s=1e-5, hit_share=0.9)
    application.rate = 8_000
    application.run(120)
    lately = application.run(120)
    assert lately["hits"] < 0.5 * lately["in"]
    assert lately["hits"] > 600 * 120, "half of the time is theirs"
    assert application.longest_s < 0.7 * WHEN_BEHIND


def test_a_sample_takes_hits_and_misses_alike():
    application = Application(hit_s=1e-5, miss_s=2e-3, strategy=SampleW(np.random.default_rng(3)))
    application.rate = 8_000
    application.run(120)
    lately = application.run(120)
    assert lately["hits"] / lately["enriched"] == pytest.approx(0.5, abs=0.02)
    assert 750 * 120 < lately["enriched"] - lately["hits"] < 1_000 * 120
