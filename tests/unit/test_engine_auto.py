"""What auto chooses, by a clock that the test turns."""

from dataclasses import replace

import numpy as np
import pytest

from dovetail.join.auto import Auto
from dovetail.join.cost.factors import TYPICAL
from dovetail.join.cost.sample import KeySample
from dovetail.join.exchange import Events, Pages
from dovetail.join.phase import Relation
from dovetail.join.policies import Inequality
from tests.unit.engine_kit import events_of, relation_of

KEYS, PAGES = 4000, 400
NO_LOOKUPS = replace(TYPICAL, request=1.0, key=1.0)


class Time:
    def __init__(self):
        self.now = 0.0

    def __call__(self):
        self.now += 1e-7
        return self.now


class Drive:
    """Keeps auto saturated; every request takes the seconds that the test says."""

    def __init__(self, seconds, *, skew=1.0, memory=400_000, **options):
        self.relation = relation_of(range(KEYS), KEYS // PAGES, unique=True)
        self.time = Time()
        self.seconds = seconds
        facts = self.relation.facts
        known = Relation(facts.pages, facts.page_bytes, unique=True, rows=KEYS)
        self.auto = Auto(known, memory, self.time, row_bytes=100, event_bytes=100, **options)
        weights = 1 / np.arange(1, KEYS + 1) ** skew
        self._weights = weights / weights.sum()
        self._random = np.random.default_rng(2)
        self._batch = events_of([0] * 2000)
        self.answered = 0

    def run(self, steps):
        for _ in range(steps):
            keys = self._random.choice(KEYS, 2000, p=self._weights)
            events = Events(events_of(keys).keys, self._batch.data, self._batch.ids)
            self.answered += len(self.auto.offer(events).answers)
            request = self.auto.wants()
            if request is not None:
                self.time.now += self.seconds(request)
                self.answered += len(self.auto.feed(self.relation.read(request)))
        return self.auto


def slow_scans(request):
    return 0.05 if isinstance(request, Pages) else 1e-4


def slow_lookups(request):
    return 1e-4 if isinstance(request, Pages) else 0.05


def test_a_scan_that_turns_out_slow_is_left_for_reads_by_key():
    auto = Drive(slow_scans).run(150)
    assert auto.choices[0].algorithm == "ssbj"
    assert auto.choice.algorithm != "ssbj"


def test_reads_by_key_that_turn_out_slow_are_left_for_a_scan():
    drive = Drive(slow_scans)
    drive.run(150)
    drive.seconds = slow_lookups
    assert drive.run(600).choice.algorithm == "ssbj"


def test_a_disk_that_is_slow_for_everyone_is_no_reason_to_try_another():
    """The models are off by the same for all that read alike, so that none looks better."""
    auto = Drive(lambda _: 0.01, factors=NO_LOOKUPS).run(300)
    assert [choice.algorithm for choice in auto.choices] == ["ssbj"]


def test_a_disk_that_slows_down_is_no_reason_to_try_another():
    drive = Drive(lambda _: 1e-3, factors=NO_LOOKUPS)
    drive.run(200)
    drive.seconds = lambda _: 2e-3
    assert [choice.algorithm for choice in drive.run(300).choices] == ["ssbj"]


def test_it_begins_with_the_scan_that_suits_any_skew_unless_another_promises_far_more():
    relation = Relation(80_000, 11_000, unique=True, rows=5_000_000)
    even = Auto(relation, 60_000_000, Time())
    assert even.choice.algorithm == "ssbj"
    seeks = replace(TYPICAL, seek=5e-3, page=5e-4, request=1e-6, key=1e-8)
    assert Auto(relation, 1_000_000, Time(), factors=seeks).choice.algorithm == "srj"


def test_every_choice_says_why():
    auto = Drive(slow_scans).run(150)
    assert "to begin with" in auto.choices[0].reason
    assert "ssbj reached" in auto.choices[1].reason
    assert all(choice.algorithm in choice.reason for choice in auto.choices)


def test_what_is_let_in_is_answered_or_pending_whatever_was_chosen():
    drive = Drive(slow_scans)
    drive.run(150)
    drive.seconds = slow_lookups
    auto = drive.run(600)
    assert len(auto.choices) > 2
    assert auto.figures.accepted == drive.answered + auto.pending


def test_who_comes_in_a_burst_after_a_quiet_time_is_looked_up_together():
    drive = Drive(lambda _: 1e-3)
    known = replace(drive.auto._relation, by_page=False)
    drive.auto = auto = Auto(known, 4_000_000, drive.time, row_bytes=100, event_bytes=100)

    def answer(keys):
        auto.offer(events_of(keys))
        queries = 0
        while (request := auto.wants()) is not None:
            drive.time.now += 1e-3
            auto.feed(drive.relation.read(request))
            queries += 1
        return queries

    for key in range(400):
        answer([key % 7, 1000 + key])
    assert not auto._saturated
    assert answer(range(2000, 3000)) <= 3


def test_a_relation_that_can_only_be_scanned_is_scanned_by_the_cache_inequality():
    """The design's promise: with a scan alone, auto reduces to SSBJ."""
    auto = Auto(Relation(100, 8192, by_key=False), 1 << 20, Time())
    assert auto.choice.algorithm == "ssbj"
    assert isinstance(auto.engine.policy, Inequality)


def test_a_tight_order_constraint_makes_lookups_win():
    fast_lookups = Drive(lambda request: 1e-5 * len(getattr(request, "keys", [0] * 100)))
    free = fast_lookups.run(100).choice.algorithm
    bound = Drive(fast_lookups.seconds, distance=50).run(100)
    assert free == "ssbj"
    assert bound.choice.algorithm == "srj"


def test_the_sample_is_part_of_the_memory():
    auto = Auto(Relation(100, 8192), 1 << 20, Time())
    assert auto.allocated <= auto.budget == 1 << 20
    assert auto.allocated > auto.engine.allocated


@pytest.mark.parametrize("skew", [0.0, 0.4, 0.7, 1.0, 1.3])
def test_a_sample_tells_the_skew(skew):
    keys = 100_000
    weights = 1 / np.arange(1, keys + 1) ** skew
    upto = np.cumsum(weights)
    ranks = np.searchsorted(upto, np.random.default_rng(4).random(200_000) * upto[-1])
    sample = KeySample(20_000)
    for first in range(0, len(ranks), 500):
        sample.see(ranks[first : first + 500])
    assert sample.skew(keys) == pytest.approx(skew, abs=0.1)


def test_an_empty_sample_tells_no_skew():
    assert KeySample(100).skew(1000) == 0.0


@pytest.mark.parametrize("policy", [None, Inequality()])
def test_an_index_that_goes_or_comes_changes_the_candidates(policy):
    drive = Drive(slow_scans, policy=policy)
    auto = drive.run(200)
    by_key = auto.engine.relation
    assert auto.choice.algorithm not in ("ssbj", "meshjoin")
    auto.renew(replace(by_key, by_key=False))
    scans = ("ssbj",) if policy is None else ("meshjoin",)
    assert auto.choice.algorithm in scans
    assert "can no longer read the relation" in auto.choice.reason
    assert auto.engine.algorithm == auto.choice.algorithm
    assert tuple(name for name, _ in auto.ranking()) == scans
    assert drive.run(50).choice.algorithm in scans
    auto.renew(by_key)
    assert len(auto.ranking()) > 1
    assert drive.run(400).choice.algorithm not in scans
    auto.renew(replace(by_key, by_page=False))
    assert auto.choice.algorithm == "srj"
