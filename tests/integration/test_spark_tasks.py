"""The tasks of `enrich` on a real broker and a real PostgreSQL, without a Spark around them.

What Spark does between them is little: it hands a map task's rows to the nodes they are for.
"""

from __future__ import annotations

import uuid

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from dovetail.stream.topics import ensure_topics
from dovetail.testing.threads import ThreadedPipeline
from dovetail.verify import read_all
from services.spark.enrich_commit import take_over
from services.spark.enrich_decode import decode
from services.spark.enrich_node import Job, Worker
from services.spark.enrich_overload import Admission
from tests.e2e import shop, test_chain, test_order
from tests.e2e.test_join_kinds import assert_dead_letters_say_why


class Tasks(ThreadedPipeline):
    """Answers what was sent in one batch: a map task a partition, then a task a node."""

    def __init__(self, *args, admission=None):
        super().__init__(*args)
        self.admission = admission
        self.reports = []

    def __enter__(self):
        ensure_topics(self.settings, self.topology.topics())
        run, _ = take_over(self.settings, self.topology)
        self._worker = Worker(Job(self.settings, self.spec, run, {}))
        return self

    def stop(self):
        self._worker.close()
        super().stop()

    def drain(self):
        rows = [
            part for records in self._records() for part in decode(self.spec, None, iter([records]))
        ]
        table = pa.Table.from_batches(rows)
        for node in range(self.spec.nodes):
            mine = table.filter(pc.equal(table["node"], node)).to_batches()
            self.reports.append(self._worker.work(node, iter(mine), self.admission))
        return super().drain()

    def _records(self):
        by_partition = {}
        for message in read_all(self.settings, self.topology.source):
            place = message.partition(), message.offset(), message.timestamp()[1]
            by_partition.setdefault(message.partition(), []).append((message.value(), *place))
        for messages in by_partition.values():
            value, partition, offset, timestamp = zip(*messages, strict=True)
            yield pa.record_batch(
                {
                    "value": pa.array(value, pa.binary()),
                    "partition": pa.array(partition, pa.int32()),
                    "offset": pa.array(offset, pa.int64()),
                    "timestamp": pa.array(timestamp, pa.int64()),
                }
            )


@pytest.fixture
def tasks(bootstrap, database, tmp_path):
    def run(spec, **options):
        named = {"name": f"test-{uuid.uuid4().hex[:12]}", **spec, "engine": "spark"}
        return Tasks(tmp_path, bootstrap, database, named, **options)

    return run


def assert_as_sql(pipeline, final, sent):
    assert final.problems == []
    assert final.drained
    assert final.taken == sent
    verdict = pipeline.verdict()
    assert verdict.differences == []
    assert final.outputs == verdict.outputs == verdict.expected > 0
    assert final.unmatched == verdict.unmatched
    assert final.shed == verdict.shed


@pytest.mark.parametrize(
    "spec",
    [test_chain.CHAIN, test_chain.kinds("left", "semi", "inner", "semi")],
    ids=["inner-left-left-anti", "left-semi-inner-semi"],
)
def test_a_chain_is_joined_in_the_task_of_its_first_slot(spec, tasks, database):
    test_chain.fill(database)
    with tasks(spec) as pipeline:
        for sent in (1, 2):  # what the first batch has answered, the second leaves out
            pipeline.send([*test_chain.sales(test_chain.EVENTS, sent), b"{}"])
            final = pipeline.drain()
            assert_as_sql(pipeline, final, sent * (test_chain.EVENTS + 1))
        assert final.copies > 0
        tables = {
            headers["detail"] for headers, _ in pipeline.messages(pipeline.topology.unmatched)
        }
        links = [pipeline.spec.link(number) for number in range(1, pipeline.spec.links + 1)]
        assert tables == {link.master.table for link in links if link.join != "left"}


@pytest.mark.parametrize(
    ("algorithm", "order"),
    [("srj", "key"), ("auto", "key"), ("ssbj", "source"), ("srj", {"within": 50})],
    ids=str,
)
def test_a_slots_answers_leave_in_order(algorithm, order, tasks, database):
    test_order.fill(database)
    with tasks(test_order.spec(algorithm, order)) as pipeline:
        test_order.run(pipeline, cached=True)
        by_slot, within_keys = test_order.disorders(pipeline)
    if order == "key":
        assert within_keys == 0
    else:
        assert max(by_slot) <= pipeline.spec.order.within


def test_what_is_shed_is_answered_by_nobody_and_no_hit_is(tasks, database):
    shop.INT.fill(database)
    events = [*shop.INT.good_events(), *shop.INT.bad_events()]
    spec = {**shop.INT.spec("inner"), "overload": {"shed": "keep-w", "when_behind": "5s"}}
    with tasks(spec, admission=Admission(0.4, 1.0, 1.0)) as pipeline:
        pipeline.send(events)
        final = pipeline.drain()
        assert_as_sql(pipeline, final, len(events))
        assert final.shed == pytest.approx(0.6 * len(shop.INT.good_events()), rel=0.1)
        assert_dead_letters_say_why(pipeline, shop.INT)
        reasons = {headers["reason"] for headers, _ in pipeline.messages(pipeline.topology.shed)}
        assert reasons == {"overload: keep-w"}
