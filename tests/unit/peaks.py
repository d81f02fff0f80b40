"""Each path of the join, run by itself to see how much memory its process takes at most.

    python -m tests.unit.peaks api_one_key      prints the budget, and the peak above the start

Everything is run with little first, so that all is imported and compiled. What belongs to the
caller (the stream's batches, a table of Arrow) is made before the measure begins.
"""

from __future__ import annotations

import ctypes
import os
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa

from dovetail.api import at_least, join
from dovetail.join.columns import Column, JoinKeys
from dovetail.join.entry import Entries, MasterRows
from dovetail.join.line import Line
from dovetail.node.answers import takes_anything
from dovetail.node.window import Window
from dovetail.pipeline.spec import Pipeline
from dovetail.service.allocator import keep_freed_memory
from dovetail.service.metrics import Latency
from dovetail.stream.batch import EventBatch
from dovetail.stream.ledger import Ledger
from dovetail.stream.migrations import Change
from dovetail.testing.fakes import InMemoryMaster, records_of
from dovetail.topology import Topology
from services.cache_phase.handler import CacheHandler
from services.cache_phase.settings import budget as cache_budget
from services.disk_phase.build import build_join
from services.disk_phase.handler import DiskHandler
from services.disk_phase.settings import shares
from services.spark import enrich_join
from tests.unit.node_kit import Node, pipeline_of

MIB = 1 << 20
NOTE = "x" * 60
MANY = 2_000
"""Events of one key, and rows."""


class Sink:
    """A producer whose messages are gone as soon as they are sent."""

    def __init__(self):
        self.bytes = 0

    def send(self, _topic, value, *_args, **_kwargs):
        self.bytes += len(value or b"")

    def give(self, _topic, parcel, _partition):
        self.bytes += len(parcel)

    def send_many(self, _topic, _partitions, _data, bounds, **_kwargs):
        self.bytes += int(bounds[-1] - bounds[0])


# ── the Python API ───────────────────────────────────────────────────────────────────────


def _table(keys, notes=NOTE):
    return pa.table(
        {"k": np.asarray(keys, np.int64), "r": np.arange(len(keys)), "name": [notes] * len(keys)}
    )


def _batch(keys):
    return pa.record_batch(
        {"k": np.asarray(keys, np.int64), "e": np.arange(len(keys)), "note": [NOTE] * len(keys)}
    )


def _drained(batches):
    return sum(batch.num_rows for batch in batches)


def _api(memory, make, **options):
    def run(*, many):
        stream, table, expected = make(many)
        return lambda: _drained(join(stream, table, memory=memory, **options)) == expected

    return memory, run


def _one_key(many):
    count = MANY if many else 20
    return [_batch([7] * count)], _table([7] * count), count * count


def _many_to_one(many):
    rows, events = (150_000, 400_000) if many else (3_000, 3_000)
    keys = np.random.default_rng(1).integers(0, rows, events)
    return [_batch(keys)], _table(range(rows)), events


def _in_dictionary(size, count):
    """One long text for all rows, which Arrow holds once."""
    indices = pa.array(np.zeros(count, np.int8))
    return pa.DictionaryArray.from_arrays(indices, pa.array(["x" * size]))


def _of_dictionary(many):
    rows, events = (200_000, 20_000) if many else (200, 50)
    table = pa.table({"k": np.arange(rows), "name": _in_dictionary(2_000, rows)})
    return [_batch(np.arange(events) * 7 % rows)], table, events


def _dictionary_streamed(many):
    rows, events = (50_000, 200_000) if many else (200, 50)
    columns = {"k": np.arange(events) % rows, "note": _in_dictionary(1_000, events)}
    return [pa.record_batch(columns)], _table(range(rows)), events


def _wide(many, chunks=1):
    rows, events = (65_536, 20_000) if many else (200, 50)
    table = pa.table({"k": np.arange(rows), "name": ["x" * 3_000] * rows})
    parts = [table.slice(i * rows // chunks, rows // chunks) for i in range(chunks)]
    return [_batch(np.arange(events) * 7 % rows)], pa.concat_tables(parts), events


def _wide_in_chunks(many):
    return _wide(many, chunks=2)


def _above(many):
    events, rows = (MANY, MANY) if many else (20, 20)
    stream = _batch(range(events)).rename_columns(["since", "e", "note"])
    return [stream], _table(range(rows)).rename_columns(["at", "r", "name"]), rows * (rows + 1) // 2


def api_one_key():
    return _api(4 * MIB, _one_key, on="k")


def api_many_to_one():
    return _api(16 * MIB, _many_to_one, on="k")


def api_many_to_one_default():
    return _api(64 * MIB, _many_to_one, on="k")


def api_many_to_one_looked_up():
    return _api(64 * MIB, _many_to_one, on="k", algorithm="srj")


def api_in_order():
    return _api(16 * MIB, _many_to_one, on="k", order="source")


def api_one_key_in_order():
    return _api(4 * MIB, _one_key, on="k", order="source")


def api_dictionary():
    return _api(16 * MIB, _of_dictionary, on="k", algorithm="meshjoin")


def api_dictionary_looked_up():
    return _api(16 * MIB, _of_dictionary, on="k", algorithm="hybridjoin")


def api_dictionary_streamed():
    return _api(64 * MIB, _dictionary_streamed, on="k", algorithm="meshjoin")


def api_wide():
    return _api(16 * MIB, _wide, on="k", algorithm="hybridjoin")


def api_wide_in_chunks():
    return _api(16 * MIB, _wide_in_chunks, on="k", algorithm="meshjoin")


def api_range():
    return _api(4 * MIB, _above, condition=at_least("since", "at"))


# ── the services ─────────────────────────────────────────────────────────────────────────


def _pipeline(memory, **fields):
    return Pipeline.model_validate(
        {
            "name": "sales",
            "source": {"fields": {"id": "int"}},
            "key": "id",
            "master": {"table": "goods", "columns": ["name"]},
            "slots": 4,
            "memory": f"{memory // MIB}MiB",
            "algorithm": "srj",
            **fields,
        }
    )


def _rows(key, count):
    return {key: [b'{"name":"%d %s"}' % (i, NOTE.encode()) for i in range(count)]}


def _events(keys):
    data = Column.of([b'{"id":%d,"note":"%s"}' % (key, NOTE.encode()) for key in keys])
    count = len(keys)
    return EventBatch(
        JoinKeys.of_ints(np.asarray(keys, np.int64)),
        data,
        np.zeros(count, np.int32),
        np.arange(count),
        np.zeros(count, np.int64),
    )


class Migrated:
    """Migrations, all of them there at once."""

    def __init__(self, rows):
        self._rows = rows

    def follow(self, _slots):
        pass

    def changes(self):
        for key, rows in self._rows.items():
            keys = JoinKeys.of_ints(np.array([key] * len(rows), np.int64))
            entries = Entries.of(keys.slice(0, 1), MasterRows(keys, Column.of(rows)))
            now = np.array([1_800_000_000_000])
            none = JoinKeys.of_ints(np.empty(0, np.int64))
            yield Change(entries, now, np.array([9]), 0, none)
        self._rows = {}

    def close(self):
        pass


def _cache_phase(least=100, **fields):
    memory = 16 * MIB
    pipeline = _pipeline(memory, **fields)

    def run(*, many):
        count = MANY if many else 20
        sink = Sink()
        handler = CacheHandler(
            Topology(pipeline),
            Migrated(_rows(7, count)),
            cache_budget(pipeline),
            Latency(),
            takes_anything,
            lambda: 1_800_000_000.0,
        )
        records = records_of([(0, _events([7] * count))])

        def work():
            handler.between_steps()
            handler.handle(records, sink, Ledger())
            return sink.bytes > count * count * least

        return work

    return memory, run


def cache_phase():
    return _cache_phase()


def cache_phase_in_order():
    return _cache_phase(60, order="key")


def _disk_phase(memory=16 * MIB, **fields):
    pipeline = _pipeline(memory, **fields)
    mine = shares(pipeline)

    def run(*, many):
        count = MANY if many else 20
        master = InMemoryMaster(_rows(7, count), 100)
        sink, ledger = Sink(), Ledger()
        line = Line(pipeline.order.within, mine.line) if mine.line else None
        ticks = iter(range(1_000_000))
        handler = DiskHandler(
            Topology(pipeline),
            build_join(pipeline, master, mine.join, lambda: float(next(ticks)) / 1e4),
            Window(mine.capacity),
            None,
            mine.join,
            Latency(),
            takes_anything,
            lambda: float(next(ticks)) / 1e4,
            line,
        )
        records = records_of([(0, _events([7] * count))])

        def work():
            handler.handle(records, sink, ledger)
            while handler.busy:
                handler.handle(records_of([]), sink, ledger)
            return sink.bytes > count * count * 100

        return work

    return memory, run


def disk_phase():
    return _disk_phase()


def disk_phase_scan():
    return _disk_phase(algorithm="ssbj")


def disk_phase_within():
    return _disk_phase(algorithm="ssbj", order={"within": 100})


def _node(memory=16 * MIB, **fields):
    """Both phases over one engine: the first step reads R, the second is hits."""
    pipeline = pipeline_of(fields.pop("algorithm", "srj"), memory, **fields)

    def run(*, many):
        count = MANY if many else 20
        node, sink = Node(pipeline, InMemoryMaster(_rows(7, count), 100)), Sink()

        def work():
            for _ in range(2):
                node.step([7] * count, NOTE, sink)
                while node.handler.busy:
                    node.step(producer=sink)
            return sink.bytes > 2 * count * count * 100

        return work

    return memory, run


def node():
    return _node()


def node_scan():
    return _node(algorithm="ssbj")


def _spark(memory=16 * MIB, **fields):
    pipeline = _pipeline(memory, engine="spark", **fields)

    def run(*, many):
        count = MANY if many else 20
        enrich_join.relation_of = lambda *_, **__: InMemoryMaster(_rows(7, count), 100)
        enrich_join.MigrationReader = lambda *_, **__: Migrated({})
        table = enrich_join.TableJoin(None, Topology(pipeline), Latency())
        batch, sink = _events([7] * count), Sink()

        def work():
            for _ in range(2):  # the first time R is read, the second time the cache answers
                table.begin([0], sink, Ledger())
                table.take(0, batch)
                table.finish()
            return sink.bytes > 2 * count * count * 100

        return work

    return memory, run


def spark():
    return _spark()


def spark_within():
    return _spark(algorithm="ssbj", order={"within": 100})


# ── measuring ────────────────────────────────────────────────────────────────────────────


PATHS = {
    made.__name__: made
    for made in (
        api_one_key,
        api_many_to_one,
        api_many_to_one_default,
        api_many_to_one_looked_up,
        api_in_order,
        api_one_key_in_order,
        api_dictionary,
        api_dictionary_looked_up,
        api_dictionary_streamed,
        api_wide,
        api_wide_in_chunks,
        api_range,
        cache_phase,
        cache_phase_in_order,
        disk_phase,
        disk_phase_scan,
        disk_phase_within,
        node,
        node_scan,
        spark,
        spark_within,
    )
}


def _status(name):
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(name + ":"):
            return int(line.split()[1]) << 10
    raise LookupError(name)


def measure(name):
    """The budget of a path, and its process' peak above what it takes when it does nothing."""
    memory, run = PATHS[name]()
    work = run(many=True)
    pa.default_memory_pool().release_unused()
    ctypes.CDLL(None).malloc_trim(0)
    Path("/proc/self/clear_refs").write_text("5")
    empty = _status("VmRSS")
    assert work(), f"{name}: not all came out"
    return memory, _status("VmHWM") - empty


def main(names):
    keep_freed_memory()
    for name in names:
        assert PATHS[name]()[1](many=False)(), f"{name}: not all came out"
    for name in names:
        # To compile a kernel takes more than a join: the last line of a path counts.
        compiled = None
        while compiled != (compiled := _compiled()):
            _measure_apart(name)


def _compiled():
    folder = os.environ.get("NUMBA_CACHE_DIR") or "dovetail"  # else beside the sources
    return len(list(Path(folder).rglob("*.nbc")))


def _measure_apart(name):
    """Print it from a process of its own, which begins with all imported."""
    child = os.fork()
    if not child:
        print(name, *measure(name), flush=True)
        os._exit(0)
    if os.waitpid(child, 0)[1]:
        sys.exit(f"{name} failed")


if __name__ == "__main__":
    main(sys.argv[1:])
