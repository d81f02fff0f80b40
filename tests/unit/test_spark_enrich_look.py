"""What is told of the nodes, out of what Spark's workers say."""

from __future__ import annotations

from dovetail.join.inspection import By
from services.spark.enrich_look import OneKey, WhatIsCached, WhatRuns


def key(name, slot, hits):
    return {"key": name, "slot": slot, "hits": hits}


def test_a_key_that_several_workers_hold_is_told_once_at_the_node_of_its_slot():
    said = [
        {"keys_held": 2, "keys": [key("a", 0, 5), key("b", 3, 1)]},
        {"keys_held": 9, "keys": [key("a", 0, 7), key("c", 2, 2)]},
        {"keys_held": 1, "keys": [key("b", 3, 4)]},
    ]
    told = WhatIsCached(1, By.HITS, 10, None).gathered(said, 2)
    assert told == [
        {"keys_held": 2, "keys": [key("a", 0, 7), key("c", 2, 2)]},
        {"keys_held": 9, "keys": [key("b", 3, 4)]},
    ]


def test_what_any_worker_holds_is_held():
    said = [{"cached": None}, {"cached": key("a", 0, 5)}]
    assert OneKey(1, "a").gathered(said, 3) == [{"cached": key("a", 0, 5)}] * 3
    assert OneKey(1, "b").gathered(said[:1], 1) == [{"cached": None}]


def test_what_runs_is_told_of_each_node():
    said = [{"running": "srj"}, {"running": "ssbj"}, {"running": "srj"}]
    assert WhatRuns(1).gathered(said, 2) == said[:2]
    assert WhatRuns(1).gathered(said, 5) == [*said, *said[:2]]
