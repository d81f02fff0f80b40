from __future__ import annotations

import numpy as np

from dovetail.service.metrics import Latency


def test_heartbeats_carry_how_many_were_answered_within_each_bound():
    latency = Latency()
    latency.observe(np.array([5, 30, 400, 400, 700_000], np.int64))
    told = latency.told()
    assert told["latency_le.0.01"] == 1
    assert told["latency_le.0.05"] == 2
    assert told["latency_le.0.5"] == 4
    assert told["latency_le.300"] == 4
    assert told["latency_le.inf"] == 5


def test_nothing_is_told_before_the_first_answer():
    assert Latency().told() == {}
