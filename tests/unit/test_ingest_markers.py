from __future__ import annotations

from dovetail.contracts.request_pb2 import Request
from dovetail.topology import DAY_MS, Keeps
from services.ingest.markers import Markers, marker_key

NOW = 1_800_000_000_000


def marker(at_ms, accepted=1):
    return Request(digest=b"d", accepted=accepted, partition=2, at_ms=at_ms)


def test_a_marker_is_found_by_its_key_for_a_day():
    markers = Markers()
    markers.keep(b"k", marker(NOW))
    assert markers.find(b"other", NOW) is None
    assert markers.find(b"k", NOW + DAY_MS - 1) == marker(NOW)
    assert markers.find(b"k", NOW + DAY_MS) is None


def test_old_markers_are_forgotten_and_others_are_not():
    markers = Markers()
    markers.keep(b"old", marker(NOW - DAY_MS))
    markers.keep(b"new", marker(NOW - DAY_MS + 1))
    markers.forget_old(NOW)
    assert markers.find(b"old", NOW - 1) is None
    assert markers.find(b"new", NOW) is not None


def test_a_key_used_again_after_its_day_has_the_latest_marker():
    markers = Markers()
    markers.keep(b"k", marker(NOW - 2 * DAY_MS))
    markers.keep(b"k", marker(NOW, accepted=7))
    found = markers.find(b"k", NOW)
    assert found is not None
    assert found.accepted == 7


def test_no_two_senders_have_the_key_of_one_marker():
    senders = [None, 1, 11]
    given = [b"1", b"11", b"1/1", b" ", b"~" * 200]
    assert len({marker_key(token, key) for token in senders for key in given}) == 15


def test_a_marker_of_an_earlier_release_is_anyone_s_whose_body_is_equal():
    markers = Markers()
    markers.keep(b"k", marker(NOW))
    for token in (None, 4):
        key = marker_key(token, b"k")
        assert markers.find(key, NOW) is None
        assert markers.find_earlier(key, b"d", NOW) == marker(NOW)
        assert markers.find_earlier(key, b"another", NOW) is None
        assert markers.find_earlier(key, b"d", NOW + DAY_MS) is None
    assert markers.find_earlier(marker_key(4, b"other"), b"d", NOW) is None


def test_the_topic_keeps_markers_as_long_as_they_count():
    config = Keeps.FOR_A_DAY.config
    assert config["cleanup.policy"] == "compact,delete"
    assert int(config["retention.ms"]) == DAY_MS
    assert int(config["segment.ms"]) < DAY_MS
