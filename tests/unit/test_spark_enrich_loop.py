"""Who runs a pipeline on Spark, and for how long."""

import threading
import time
from types import SimpleNamespace
from unittest.mock import MagicMock

import pytest
from pyspark.errors import PySparkException

from dovetail.errors import SlowError, Unavailable
from dovetail.pipeline.spec import Pipeline
from dovetail.settings import Settings
from services.spark import enrich
from services.spark.enrich import Enrichment, keep_running
from services.spark.enrich_join import TableJoin
from services.spark.enrich_node import Job
from services.spark.enrich_orders import Standing
from services.spark.enrich_size import READING_S, BatchSize
from services.spark.runs import AlreadyRunsError

PIPELINE = object()
SALES = Pipeline.model_validate(
    {
        "name": "sales",
        "source": {"fields": {"sku": "int"}},
        "key": "sku",
        "master": {"table": "products", "columns": ["price"]},
    }
)


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
    service = SimpleNamespace(ask=None, trouble="", obeys=lambda *_: None)
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


class Doomed:
    """An application whose first batch fails; the second try's is answered after some looks."""

    pipeline = PIPELINE

    def __init__(self, stopping):
        self.batches = self._starts = self._looks = 0
        self._stopping = stopping

    def ask(self, question):
        raise AssertionError(question)

    def start(self):
        self._starts += 1

    def check(self):
        if self._starts == 1:
            raise Unavailable("products takes too long")
        self._looks += 1
        self.batches = int(self._looks >= 3)
        if self._looks == 5:
            self._stopping.set()

    def works(self, answered):
        return self.batches > answered

    def stop(self):
        pass


def test_what_a_batch_has_failed_by_is_told_until_one_is_answered(monkeypatch):
    """Else it would say that it is ready in every try that is as vain as the last one."""
    monkeypatch.setattr(enrich, "_PAUSES_S", (0.0,))
    monkeypatch.setattr(enrich, "_LOOK_EVERY_S", 0.001)
    stopping, told = threading.Event(), []
    application = Doomed(stopping)
    service = SimpleNamespace(ask=None, trouble="")
    service.obeys = lambda _, trouble: told.append(trouble)
    standing = Standing(SimpleNamespace(pipeline=PIPELINE))
    orders = SimpleNamespace(standing=standing)
    keep_running(lambda _: application, orders, stopping, lambda: None, service)
    assert told == ["", *["products takes too long"] * 3, "", "", ""]


def test_a_batch_that_is_too_slow_is_halved_until_it_is_not_and_grows_again():
    size = BatchSize(1_000)
    size.too_slow()
    size.too_slow()
    assert size.events == 250
    size.took(250, READING_S / 2)
    assert not size.may_grow
    size.took(10, 1.0)
    assert not size.may_grow, "few events say nothing of many"
    for events in (500, 1_000):
        size.took(size.events, 1.0)
        assert size.may_grow
        size.grow()
        assert size.events == events
    size.took(1_000, 1.0)
    assert not size.may_grow
    for _ in range(12):
        size.too_slow()
    assert size.events == 1


def test_a_node_that_has_read_for_too_long_names_the_table():
    """Before the broker ends its transaction, of which Kafka would tell."""
    join = TableJoin.__new__(TableJoin)
    join._link = SimpleNamespace(master=SimpleNamespace(table="products"))
    join._read_until = time.monotonic() - 1
    with pytest.raises(SlowError, match="reading products for the events of a batch"):
        join._read()


def test_a_batch_that_has_failed_by_that_has_half_as_many_events_the_next_time(monkeypatch):
    settings = Settings("nowhere:9092", "postgresql://nowhere/none", "pipeline.yaml")
    spark = SimpleNamespace(sparkContext=SimpleNamespace(master="spark://nowhere:7077"))
    application = Enrichment(settings, SALES, spark, print, 1_000)
    application._job, application._scratch = Job(settings, SALES, 1, {}), object()

    def answer(*_):
        raise PySparkException("task failed:\ndovetail.errors.SlowError: reading products for …")

    monkeypatch.setattr(enrich, "answer", answer)
    with pytest.raises(PySparkException):
        application._work(MagicMock(), 0)
    assert application._size.events == 500
