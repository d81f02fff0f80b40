"""Control's threads survive what others have written, and are watched."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest

from dovetail.pipeline.spec import Pipeline
from dovetail.settings import Settings
from dovetail.stream.ledger import LedgerError, parse
from dovetail.topology import Topology
from services.control import monitor as module
from services.control.monitor import Monitor, Tick

PIPELINE = {
    "name": "sales",
    "source": {"fields": {"id": "int"}},
    "key": "id",
    "master": {"table": "goods", "columns": ["name"]},
}


class Auditor:
    """Finds beside an offset what no ledger has written, whenever it looks."""

    looks = 0

    def __init__(self, *_: object) -> None: ...

    def audit(self) -> None:
        Auditor.looks += 1
        parse("in=many")

    def close(self) -> None: ...


@pytest.fixture
def monitor(monkeypatch):
    monkeypatch.setattr(module, "Auditor", Auditor)
    monkeypatch.setattr(module, "_AUDIT_EVERY_S", 0.0)
    monkeypatch.setattr(module, "_TICK_S", 0.01)
    pipeline = Pipeline.model_validate(PIPELINE)
    settings = Settings("127.0.0.1:9", "postgresql://", Path("none"), kafka={"log_level": "0"})
    monitor = Monitor(settings, Topology(pipeline))
    yield monitor
    monitor.stop()


def await_(condition):
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_a_ledger_that_cannot_be_read_is_told_and_ends_no_thread(monitor):
    with pytest.raises(LedgerError, match="in=many"):
        parse("in=many")
    done = []

    def bad():
        done.append("bad")
        raise ValueError("what somebody has written")

    monitor.every(Tick(0.0, bad))
    monitor.every(Tick(0.0, lambda: done.append("good")))
    Auditor.looks = 0
    monitor.start()
    await_(lambda: done.count("good") > 2 and done.count("bad") > 2 and Auditor.looks > 2)
    assert monitor.failed() == ""
    assert "in=many" in monitor.alarm


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_thread_that_has_ended_or_hangs_is_told(monitor, monkeypatch):
    hanging = threading.Event()
    began = threading.Event()

    def hang():
        began.set()
        hanging.wait()

    monitor.every(Tick(0.0, hang))
    assert monitor.failed() == ""
    monitor.start()
    await_(began.is_set)
    monkeypatch.setattr(module, "_HUNG_S", 0.2)
    await_(lambda: "'ticks' has made no turn" in monitor.failed())
    hanging.set()
    monkeypatch.setattr(module, "_HUNG_S", 300.0)

    def end():
        raise SystemExit

    monitor.every(Tick(0.0, end))
    await_(lambda: "'ticks' has ended" in monitor.failed())
