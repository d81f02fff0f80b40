"""Who runs a pipeline on Spark, and for how long."""

import threading
from types import SimpleNamespace

import pytest

from dovetail.errors import Unavailable
from services.spark import enrich
from services.spark.enrich import keep_running
from services.spark.enrich_orders import Standing
from services.spark.runs import AlreadyRunsError

PIPELINE = object()


class Replaced:
    """An application whose place another driver has taken."""

    pipeline = PIPELINE
    batches = 0

    def __init__(self):
        self.starts = 0
        self.stops = 0

    def ask(self, question):
        raise AssertionError(question)

    def start(self):
        self.starts += 1

    def check(self):
        raise Unavailable("run 1 is over: run 2 has taken its place")

    def stop(self):
        self.stops += 1


def test_a_driver_whose_place_another_has_taken_ends_and_does_not_take_it_back(monkeypatch):
    """Two drivers would else take each other's place for ever."""
    monkeypatch.setattr(enrich, "_PAUSES_S", (0.0,))
    application = Replaced()
    standing = Standing(SimpleNamespace(pipeline=PIPELINE))
    service = SimpleNamespace(ask=None, trouble="", obeys=lambda _: None)
    asked, troubles = [], []

    def require():
        asked.append(application.starts)
        troubles.append(service.trouble)
        if len(asked) in (2, 3):
            raise Unavailable("the control database cannot be used")
        if len(asked) == 4:
            raise AlreadyRunsError("another run has begun meanwhile")

    with pytest.raises(AlreadyRunsError):
        keep_running(
            lambda _: application,
            SimpleNamespace(standing=standing),
            threading.Event(),
            require,
            service,
        )

    # While nobody can say who runs it, nobody starts it; and nobody gives it up.
    assert asked == [0, 1, 1, 1]
    assert "control database" in troubles[-1]
    assert application.starts == 1
    assert application.stops >= 1
