from __future__ import annotations

import argparse
import json
import threading
import time
from datetime import UTC, datetime

import pytest

from dovetail.demo.generate import MAX_RATE, GenerateSettings, add_arguments, generate
from dovetail.errors import ConfigError

NEW_YEAR = datetime(2026, 1, 1, tzinfo=UTC)


class Collector:
    """Keeps what a run sends; stands where Kafka would."""

    def __init__(self, after_send=lambda: None):
        self.values = []
        self.flushed = 0
        self._after_send = after_send

    def send(self, batch):
        self.values += batch.values()
        self._after_send()

    def flush(self):
        self.flushed = len(self.values)


def run(settings, sender, stop=None):
    lines = []
    stop = stop or threading.Event()
    return generate(settings, {}, "sales", lines.append, stop, sender=sender), lines


def test_a_run_sends_exactly_its_count_and_waits_for_all_of_it():
    sender = Collector()
    summary, _ = run(GenerateSettings(rate=MAX_RATE, count=45_678, keys=100), sender)
    assert len(sender.values) == sender.flushed == summary.events == 45_678
    assert sum(summary.kinds.values()) == 45_678


@pytest.mark.parametrize(
    "pace", [{"rate": MAX_RATE}, {"rate": 50_000}, {"rate": 50_000, "timing": "bursty"}]
)
def test_a_run_can_be_repeated_byte_for_byte(pace):
    settings = GenerateSettings(**pace, count=3_000, keys=100, started_at=NEW_YEAR)
    one, other = Collector(), Collector()
    run(settings, one)
    run(settings, other)
    assert one.values == other.values


def test_sales_happen_when_they_are_scheduled():
    sender = Collector()
    settings = GenerateSettings(
        rate=1_000, count=50, keys=100, no_match=0, bad=0, first=7, started_at=NEW_YEAR
    )
    run(settings, sender)
    events = [json.loads(value) for value in sender.values]
    assert [event["sale_id"] for event in events] == list(range(7, 57))
    assert [event["sold_at"] for event in events[9:11]] == [
        "2026-01-01T00:00:00.000Z",
        "2026-01-01T00:00:00.010Z",
    ]


def test_a_run_that_cannot_keep_up_says_so():
    sender = Collector(after_send=lambda: time.sleep(0.3))
    summary, lines = run(GenerateSettings(rate=1_000, count=60, keys=100), sender)
    assert summary.behind > 0.1
    assert "behind schedule" in str(summary)
    assert any("behind schedule" in line for line in lines)


def test_a_run_that_is_stopped_accounts_for_what_it_sent():
    stop = threading.Event()
    sender = Collector(after_send=stop.set)
    summary, _ = run(GenerateSettings(rate=MAX_RATE, keys=100), sender, stop)
    assert 0 < summary.events == len(sender.values) == sender.flushed


@pytest.mark.parametrize(
    "wrong",
    [
        {"rate": 0},
        {"rate": float("nan")},
        {"timing": "weekly"},
        {"timing": "bursty", "rate": MAX_RATE},
        {"count": -1},
        {"first": -1},
        {"keys": 0},
        {"skew": -1},
    ],
)
def test_settings_that_cannot_be_are_refused(wrong):
    with pytest.raises(ConfigError):
        GenerateSettings(**wrong)


def test_the_command_line_has_the_settings_defaults():
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    args = vars(parser.parse_args([]))
    default = GenerateSettings()
    assert args.pop("topic") == "sales"
    assert args == {name: getattr(default, name) for name in args}


def test_the_command_line_knows_full_speed_and_instants():
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    args = parser.parse_args(["--rate", "max", "--started-at", "2026-01-01T00:00:00Z"])
    assert args.rate == MAX_RATE
    assert args.started_at == NEW_YEAR
