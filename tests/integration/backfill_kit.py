"""A backfill without Spark: a pipeline whose stages the test plays, and a driver in its process.

What Spark would do is read the messages, shuffle batches and call the tasks: the tasks are the
job's own.
"""

from __future__ import annotations

from collections import Counter
from functools import partial
from pathlib import Path

import psycopg
import pyarrow as pa
from confluent_kafka import Producer

from dovetail.node.step import TOO_LARGE
from dovetail.pipeline.spec import Pipeline
from dovetail.settings import Settings
from dovetail.stream.late import inputs_of
from dovetail.stream.topics import admin_of, ensure_topics
from dovetail.stream.whole import place_of, read_all
from dovetail.topology import Topology
from dovetail.verify.reading import headers_of, origin_of
from services.spark.backfill_commit import take_over
from services.spark.backfill_node import Job, answer, finish
from services.spark.backfill_portions import work_of
from services.spark.backfill_source import decode

SLOTS, NODES = 4, 2


class SetAside:
    """Events that were set aside by a pipeline that is not there."""

    def __init__(self, bootstrap, database, name, **changes):
        self.spec = {
            "name": f"{name}sales",
            "source": {"fields": {"sale": "int", "sku": "int"}, "partitions": 2},
            "key": "sku",
            "master": {"table": "goods", "key": "id", "columns": ["name"]},
            "slots": SLOTS,
            "nodes": NODES,
            "memory": "4MiB",
            **changes,
        }
        self.pipeline = Pipeline.model_validate(self.spec)
        self.topology = Topology(self.pipeline)
        self.settings = Settings(bootstrap, database, Path("unused"))
        self._producer = Producer(self.settings.client())
        self._next = Counter()
        self._messages = []
        ensure_topics(self.settings, self.topology.topics())

    def add(self, topic, *keys, origin=None, reason=b"whatever"):
        """Set events of these keys aside, each a new one of the source."""
        for key in keys:
            partition = self._next.total() % 2
            offset = self._next[partition]
            self._next[partition] += 1
            named = origin or f"{self.topology.source.name}/{partition}/{offset}"
            value = b'{"sale":%d,"sku":%d}' % (2 * offset + partition, key)
            headers = [("origin", named.encode()), ("reason", reason)]
            self._producer.produce(self.topology.source.name, value, partition=partition)
            self._producer.produce(topic.name, value, partition=0, headers=headers)
        assert self._producer.flush(30) == 0

    def master(self, sql, *values):
        with psycopg.connect(self.settings.database_url) as connection:
            connection.execute(sql, values)

    def begin(self, most=100_000):
        """What a driver does first: who else works is over, and this is to be done."""
        late = take_over(self.settings, self.topology)
        work = work_of(admin_of(self.settings), self.topology, late)
        self._messages = list(self._all_messages())
        return late.run, work, list(work.portions(most))

    def run(self, most=100_000, nodes=range(NODES), portions=None):
        """Run it, of so many portions if that is said, the last for these nodes alone."""
        run, work, planned = self.begin(most)
        counts = Counter({"lost": work.lost})
        for at, portion in enumerate(planned[:portions]):
            last = portions is not None and at == portions - 1
            some = nodes if last else range(self.pipeline.nodes)
            job = Job(self.settings, self.pipeline, run, portion)
            counts += finish(job, partial(self._once, some))
        return counts

    def task(self, run, portion, node):
        [report] = self._once([node], Job(self.settings, self.pipeline, run, portion))
        return report

    def _once(self, nodes, job):
        return [answer(job, node, self._parts(job.portion, node)) for node in nodes]

    def _parts(self, portion, node):
        """What the shuffle would bring the node."""
        rows = [
            (number, *row)
            for number, at, row in self._messages
            if portion.spans[number].start <= at < portion.spans[number].end
        ]
        for part in decode(self.pipeline, iter([_batch_of(rows)])):
            yield part.filter(pa.compute.equal(part.column("node"), node))

    def _all_messages(self):
        for number, topic in enumerate(inputs_of(self.topology)):
            for message in read_all(self.settings, topic):
                if headers_of(message)["reason"] == TOO_LARGE.decode():
                    continue
                origin = origin_of(message, self.topology.source)
                known = origin is not None
                yield number, place_of(message)[1], (message.value(), 0, known, *(origin or (0, 0)))

    def on(self, topic):
        """The messages of a topic by the events that they came from, and how often."""
        return Counter(
            (headers_of(message)["origin"].split("/", 1)[1], message.value())
            for message in read_all(self.settings, topic)
        )

    def keys_on(self, topic):
        """How many messages a topic has for each key."""
        return Counter(
            int(message.value().split(b'"sku":')[1].split(b",")[0].rstrip(b"}"))
            for message in read_all(self.settings, topic)
        )


def _batch_of(rows):
    columns = list(zip(*rows, strict=True)) or [()] * 6
    types = (pa.int32(), pa.binary(), pa.int64(), pa.bool_(), pa.int32(), pa.int64())
    names = ("input", "value", "timestamp", "ours", "partition", "offset")
    arrays = [pa.array(column, kind) for column, kind in zip(columns, types, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, names=names)
