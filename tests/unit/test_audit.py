from __future__ import annotations

from collections import Counter

import pytest

from dovetail.audit import Audit, _problems, _taken_too_often
from dovetail.pipeline.spec import Pipeline
from dovetail.stream.late import unbalanced
from dovetail.topology import Topology

DRAINED = {
    "ingest": {"in": 100, "clean": 90, "dead.empty": 4, "dead.invalid-json": 6},
    "mapper": {"in": 90, "mapped": 90},
    "cache_phase": {"in": 90, "hits": 60, "enriched": 50, "unmatched": 10, "missed": 30},
    "disk_phase": {"in": 30, "enriched": 25, "unmatched": 5, "outputs": 70},
}


SALES = Pipeline.model_validate(
    {
        "name": "sales",
        "source": {"fields": {"sku": "int", "customer": "int?"}},
        "key": "sku",
        "master": {"table": "products", "columns": ["price"]},
    }
)
CHAIN = Pipeline.model_validate(
    {
        **SALES.model_dump(exclude={"then"}),
        "then": [
            {"key": "customer", "master": {"table": "customers", "columns": ["name"]}},
            {"key": "sku", "master": {"table": "recalls"}, "join": "anti"},
        ],
    }
)


def audit_of(waiting=0, **changes):
    stages = {name: Counter({**DRAINED[name], **changes.get(name, {})}) for name in DRAINED}
    topology = Topology(SALES)
    return Audit(stages, topology, waiting, list(_problems(stages, topology)))


def test_a_chain_counts_the_copies_that_its_tables_make():
    topology = Topology(CHAIN)
    stages = {
        **{name: Counter(counts) for name, counts in DRAINED.items()},
        "cache_phase.2": Counter({"in": 120, "missed": 20, "enriched": 95, "unmatched": 5}),
        "disk_phase.2": Counter({"in": 20, "enriched": 18, "unmatched": 1, "parked": 1}),
        "cache_phase.3": Counter({"in": 114, "missed": 4, "enriched": 100, "unmatched": 10}),
        "disk_phase.3": Counter({"in": 4, "enriched": 4, "outputs": 4}),
    }
    stages["cache_phase"]["outputs"] = 50
    stages["cache_phase.2"]["outputs"] = 97
    stages["disk_phase.2"]["outputs"] = 18
    stages["cache_phase.3"]["outputs"] = 100
    seen = Audit(stages, topology, 0, list(_problems(stages, topology)))
    assert seen.problems == []
    assert seen.backlogs == {
        "ingest": 0,
        "mapper": 0,
        "cache_phase": 0,
        "disk_phase": 0,
        "cache_phase.2": 0,
        "disk_phase.2": 0,
        "cache_phase.3": 1,
        "disk_phase.3": 0,
    }
    assert seen.equation() == (
        "in 100 + copies 47 = enriched 104 + unmatched 31 + parked 1 + dead-lettered 10 + shed 0"
        " + in flight 1"
    )
    assert not seen.drained
    stages["cache_phase.3"].update({"in": 2, "enriched": 2})
    (problem,) = _problems(stages, topology)
    assert problem == (
        "cache_phase.3 took in 116 events, but cache_phase.2 and disk_phase.2 had passed on only"
        " 115"
    )


def test_when_all_is_answered_the_sum_holds_and_nothing_is_in_flight():
    seen = audit_of()
    assert (seen.taken, seen.enriched, seen.unmatched, seen.dead_lettered) == (100, 75, 15, 10)
    assert seen.drained
    assert not seen.off
    assert seen.equation() == (
        "in 100 = enriched 75 + unmatched 15 + parked 0 + dead-lettered 10 + shed 0 + in flight 0"
    )


def test_what_was_shed_has_its_place_in_the_sum():
    seen = audit_of(
        ingest={"in": 107, "clean": 97}, mapper={"in": 97, "shed.topw": 4, "shed.keep-w": 3}
    )
    assert seen.shed == 7
    assert seen.drained
    assert not seen.off
    assert seen.equation() == (
        "in 107 = enriched 75 + unmatched 15 + parked 0 + dead-lettered 10 + shed 7 + in flight 0"
    )
    assert audit_of(mapper={"shed.topw": 1}).problems == [
        "mapper took in 90 events and gave out 91"
    ]


def test_what_the_source_deleted_unread_came_in_and_is_lost():
    seen = audit_of(ingest={"in": 104, "lost": 4})
    assert (seen.taken, seen.lost, seen.in_flight) == (104, 4, 0)
    assert seen.drained
    assert not seen.off
    assert seen.equation() == (
        "in 104 = enriched 75 + unmatched 15 + parked 0 + dead-lettered 10 + shed 0 + lost 4"
        " + in flight 0"
    )
    assert audit_of(ingest={"lost": 4}).off


def test_what_waits_in_the_source_is_not_in_flight_but_not_drained_either():
    seen = audit_of(waiting=3)
    assert seen.in_flight == 0
    assert not seen.drained
    assert seen.backlogs["ingest"] == 3


def test_what_is_between_two_stages_is_in_flight_and_no_problem():
    seen = audit_of(mapper={"in": 95, "mapped": 95}, ingest={"in": 105, "clean": 95})
    assert seen.in_flight == 5
    assert seen.problems == []
    assert seen.backlogs == {"ingest": 0, "mapper": 0, "cache_phase": 5, "disk_phase": 0}


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"ingest": {"clean": 89}}, "ingest took in 100 events and gave out 99"),
        ({"mapper": {"mapped": 91}}, "mapper took in 90 events and gave out 91"),
        ({"cache_phase": {"missed": 29}}, "cache_phase took in 90 events and gave out 89"),
        ({"disk_phase": {"unmatched": 6}}, "disk_phase took in 30 events and gave out 31"),
        (
            {"disk_phase": {"in": 31, "enriched": 26}},
            "disk_phase took in 31 events, but cache_phase had passed on only 30",
        ),
    ],
)
def test_an_event_lost_or_doubled_anywhere_is_a_problem(changes, problem):
    seen = audit_of(**changes)
    assert seen.off
    assert problem in seen.problems


def test_what_backfill_completed_has_moved_to_enriched():
    before = audit_of(mapper={"mapped": 80, "shed.topw": 10}, disk_phase={"parked": 2})
    moved = {"of.shed": 10, "of.unmatched": 6, "of.parked": 2, "late": 15, "unmatched": 3}
    after = Audit(before.stages, before.topology, 0, late=Counter({**moved, "outputs": 40}))
    assert unbalanced(after.late) == []
    assert after.enriched == before.enriched + 15
    assert after.unmatched == before.unmatched - 6 + 3
    assert (after.shed, after.parked) == (0, 0)
    assert after.outputs == before.outputs + 40
    assert after.in_flight == before.in_flight
    assert after.hit_rate == before.hit_rate
    assert "enriched 90 (15 late) + unmatched 12" in after.equation()


def test_backfill_has_to_give_out_what_it_took_and_no_more_than_there_was():
    assert unbalanced(Counter({"of.shed": 10, "late": 9})) == [
        "backfill took 10 events and gave out 9"
    ]
    seen = audit_of(mapper={"mapped": 80, "shed.topw": 10})
    seen.late.update({"of.shed": 11, "late": 11})
    assert list(_taken_too_often(seen)) == ["backfill completed 1 events more than were shed"]
