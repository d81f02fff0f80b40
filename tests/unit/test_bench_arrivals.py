"""What a reader has noted becomes latencies, and the moment of the first output."""

import numpy as np
import pytest

from bench.arrivals import first_arrival, latency_of
from dovetail.errors import StackError


@pytest.fixture
def noted(tmp_path):
    def write(ids, at_ms):
        file = tmp_path / "arrivals.npz"
        with file.open("wb") as opened:
            np.savez(opened, ids=np.array(ids, np.int64), at_ms=np.array(at_ms, np.float64))
        return file

    return write


def test_latency_is_from_the_source_record_to_the_reader(noted):
    sent_ms = np.array([1_000, 1_001, 1_002], np.int64)
    found = latency_of(noted([12, 10, 11], [1_012, 1_030, 1_021]), sent_ms, first=10)
    assert (found.outputs, found.p50_ms, found.max_ms) == (3, 20, 30)
    assert found.p99_ms == pytest.approx(29.8)


def test_what_was_sent_before_is_not_counted(noted):
    found = latency_of(noted([3, 10], [9_000, 1_005]), np.array([1_000], np.int64), first=10)
    assert (found.outputs, found.p50_ms) == (1, 5)


@pytest.mark.parametrize("ids", [[10, 10], [11], []])
def test_an_output_that_is_there_twice_or_of_nothing_fails(noted, ids):
    with pytest.raises(StackError, match="each once"):
        latency_of(noted(ids, [1_005] * len(ids)), np.array([1_000, -1], np.int64), first=10)


def test_the_first_output_is_the_earliest_whatever_its_number(noted):
    assert first_arrival(noted([7, 5, 6], [30.0, 20.0, 10.0])) == 10.0


def test_no_output_at_all_fails(noted):
    with pytest.raises(StackError, match="no output"):
        first_arrival(noted([], []))
