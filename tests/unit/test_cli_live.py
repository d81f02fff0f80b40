"""The live table, of what `/v1/stats` may say."""

from __future__ import annotations

import io

import pytest

from dovetail.cli.live import line, parts, render
from dovetail.cli.output import console_on

PROCESS = {
    "service": "cache_phase",
    "node": 1,
    "state": "gone",
    "reason": "no slot is assigned",
    "lag": 1_234_567,
    "held_bytes": 12 << 20,
    "budget_bytes": 24 << 20,
    "resident_bytes": 350 << 20,
    "rates": {"events.in": 123_456.0, "events.outputs": 654_321.0, "cpu_seconds": 0.5},
}
TOTALS = {
    "in": 123_456_789,
    "enriched": 123_000_000,
    "unmatched": 456_000,
    "dead_lettered": 789,
    "parked": 0,
    "shed": 0,
    "in_flight": 12,
    "waiting": 34,
    "hit_rate": 0.71,
    "problems": [],
}
STATS = {
    "pipeline": "sales",
    "at": "2026-01-31T09:00:00.123+00:00",
    "state": "degraded",
    "reason": "cache_phase-1 is gone",
    "totals": TOTALS,
    "rates": {"in": 20_000.0, "outputs": 19_000.0},
    "services": [PROCESS, {**PROCESS, "node": 0, "state": "ready", "reason": "", "lag": None}],
}


def shown(stats, monkeypatch, width=200):
    monkeypatch.setenv("COLUMNS", str(width))
    out = io.StringIO()
    console_on(out).print(render(stats, "Ctrl-C ends this view"))
    return out.getvalue()


def test_everything_is_there(monkeypatch):
    text = shown(STATS, monkeypatch)
    for word in (
        "sales is degraded: cache_phase-1 is gone",
        "123,456,789",
        "71%",
        "holds",
        "cache_phase-1",
        "gone",
    ):
        assert word in text
    for word in ("50% of 24.00 MiB", "no slot is assigned", "1,234,567", "Ctrl-C ends this view"):
        assert word in text


def test_no_number_is_cut_on_eighty_columns(monkeypatch):
    text = shown(STATS, monkeypatch, 80)
    assert all(len(one) <= 80 for one in text.splitlines())
    for word in (
        "123,456,789",
        "123,000,000",
        "456,000",
        "1,234,567",
        "654,321",
        "50% of 24.00 MiB",
    ):
        assert word in text


def test_a_sum_that_is_off_is_told(monkeypatch):
    off = {**STATS, "totals": {**TOTALS, "problems": ["mapper took in 5 events and gave out 4"]}}
    text = shown(off, monkeypatch)
    assert "off: mapper took in 5 events and gave out 4" in text
    assert "holds" not in text


@pytest.mark.parametrize("stats", [None, {**STATS, "totals": None, "rates": {}, "services": []}])
def test_what_is_not_known_yet_is_told(stats, monkeypatch):
    assert shown(stats, monkeypatch)
    assert line(stats) == "waiting for the control service"
    assert list(parts(stats))


def test_a_line_for_a_log():
    assert line(STATS).startswith("in 123,456,789 (20,000/s)  enriched 123,000,000 (19,000/s)")
    assert line({**STATS, "rates": {}}).startswith("in 123,456,789 (0/s)")
