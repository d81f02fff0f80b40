"""Every kind of key over every kind of event, good or bad: the output is the one that SQL gives.

Every algorithm, kind of join and number of nodes is in test_algorithms.py.
"""

from __future__ import annotations

from collections import Counter

import pytest

from dovetail.stream.events.reasons import Reason
from tests.e2e import shop, test_formats

MOST_ROUNDS = 20


@pytest.mark.parametrize(
    ("join", "shape"),
    [
        pytest.param("inner", shop.INT, id="inner-int"),
        pytest.param("left", shop.COMPOSITE, id="left-composite"),
        pytest.param("semi", shop.TEXT, id="semi-text"),
    ],
)
def test_the_pipeline_gives_what_sql_gives(join, shape, run_within, database):
    shape.fill(database)
    with run_within(shape.spec(join)) as pipeline:
        events = [*shape.good_events(), *shape.bad_events()]
        sent = 0
        # The first round is the disk phase's. It migrates the keys, and once those have
        # arrived, a later round is the cache's.
        for _ in range(MOST_ROUNDS):
            pipeline.send(events)
            sent += len(events)
            final = pipeline.drain()
            assert not final.problems
            if ways_of_answers(pipeline) == {"cache", "disk"}:
                break

        verdict = pipeline.verdict()
        assert verdict.differences == []
        assert final.drained
        assert final.taken == verdict.events == sent
        assert final.outputs == verdict.outputs == verdict.expected > 0
        assert final.unmatched == verdict.unmatched
        assert (verdict.unmatched > 0) == (join != "left")
        assert ways_of_answers(pipeline) == {"cache", "disk"}
        assert_dead_letters_say_why(pipeline, shape)
        assert_unmatched_say_why(pipeline, join)


def ways_of_answers(pipeline):
    return {headers["via"] for headers, _ in pipeline.messages(pipeline.topology.enriched)}


def assert_dead_letters_say_why(pipeline, shape):
    counted = Counter()
    for headers, value in pipeline.messages(pipeline.topology.dead_letter):
        assert headers.keys() == {"origin", "reason", "detail"}
        assert headers["origin"].startswith(f"{pipeline.topology.source.name}/")
        assert headers["detail"]
        counted[headers["reason"]] += 1
        assert (value is None) == (headers["reason"] == Reason.TOMBSTONE.label)
    assert counted.keys() == shape.bad_reasons
    ledger = pipeline.audit().stages["ingest"]
    assert counted == {reason: ledger[f"dead.{reason}"] for reason in shape.bad_reasons}


def assert_unmatched_say_why(pipeline, join):
    reason = "has-master-row" if join == "anti" else "no-master-row"
    for headers, _ in pipeline.messages(pipeline.topology.unmatched):
        assert headers["reason"] == reason


def test_the_shapes_have_every_reason_for_a_dead_letter_between_them():
    covered = shop.INT.bad_reasons | shop.TEXT.bad_reasons | shop.COMPOSITE.bad_reasons
    covered |= {reason.label for reason in test_formats.REASONS}
    assert covered == {reason.label for reason in Reason if reason is not Reason.GOOD}
