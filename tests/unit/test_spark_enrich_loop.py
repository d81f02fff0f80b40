"""Who runs a pipeline on Spark, and for how long."""

import threading
from types import SimpleNamespace

import pytest

from dovetail.errors import Unavailable
from services.spark.enrich import keep_running
from services.spark.enrich_orders import Standing

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


def test_a_driver_that_has_lost_its_lock_ends_and_does_not_take_its_place_back():
    """Two drivers would else take each other's place for ever."""
    application = Replaced()
    standing = Standing(SimpleNamespace(pipeline=PIPELINE))
    service = SimpleNamespace(ask=None, trouble="", obeys=lambda _: None)
    asked = []

    def require():
        asked.append(application.starts)
        if application.starts:
            raise Unavailable("the control database was lost, and with it the right to run alone")

    with pytest.raises(Unavailable, match="the right to run alone"):
        keep_running(
            lambda _: application,
            SimpleNamespace(standing=standing),
            threading.Event(),
            require,
            service,
        )

    assert asked == [0, 1]
    assert (application.starts, application.stops) == (1, 1)
