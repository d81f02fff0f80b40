"""The order of the output, whatever happens to the slots: undone, restarted, moved at any moment.

As in test_disk_phase.py, Kafka is played by what it promises. Batches come as the cache phase sends
them: of each one the cache knows some keys, and all events of a key alike.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dovetail.join.algorithms import ALGORITHMS
from dovetail.join.columns import Column
from dovetail.join.entry import Entries, MasterRows
from dovetail.join.line import Line
from dovetail.join.pool import BYTES_A_BLOCK
from dovetail.pipeline.spec import Pipeline
from dovetail.stream.ledger import parse
from dovetail.testing.disorder import disorder, disorder_of_keys
from dovetail.testing.fakes import join_keys
from tests.property.test_disk_phase import (
    DEEDS,
    DISK_BUFFER,
    PIPELINE,
    SLOTS,
    Cluster,
    Node,
    filled,
    joined,
)

ORDERS = st.sampled_from(["key", "source", {"within": 1}, {"within": 4}])
# Few keys, so that their events meet; rows small and large, so that answers outgrow what is usual.
KEY = st.integers(0, 9)
ROW = st.sampled_from([0, 1, 300]).map(lambda size: b'{"name":"%b"}' % (b"x" * size))
ROWS = st.dictionaries(KEY, st.lists(ROW, min_size=1, max_size=3), min_size=4)
KEYS = st.lists(st.lists(KEY, min_size=1, max_size=8), min_size=5, max_size=25)


class WatchedLine(Line):
    """A line that never takes more than its room, or one batch."""

    def __init__(self, within, room, largest):
        super().__init__(within, room)
        self._most = max(room, largest)

    def require_room(self, waiting):
        super().require_room(waiting)
        assert self.nbytes <= self._most


def by_cache(batch, known, rows):
    """The batch with the entries of the keys that the cache knows."""
    keys = batch.keys.values.tolist()
    hits = [key for key in dict.fromkeys(keys) if key in known]
    if not hits:
        return batch
    pairs = [(key, row) for key in hits for row in rows.get(key, ())]
    master = MasterRows(join_keys([key for key, _ in pairs]), Column.of([row for _, row in pairs]))
    entries = Entries.of(join_keys(hits), master)
    column = dict(zip(hits, Column(entries.data, entries.bounds), strict=True))
    return replace(batch, entries=Column.of([column.get(key, b"") for key in keys]))


def known_to_the_cache(broker, rows, choose):
    for slot, log in broker.logs.items():
        broker.logs[slot] = [by_cache(batch, choose(), rows) for batch in log]


def came(broker, slot):
    """The slot's events, each with its key."""
    for batch in broker.logs[slot]:
        origins = (b"sales/0/%d" % offset for offset in batch.offsets.tolist())
        yield from zip(batch.keys.values.tolist(), origins, strict=True)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@given(
    order=ORDERS,
    rows=ROWS,
    keys=KEYS,
    deeds=DEEDS,
    pool=st.integers(200, 300),
    room=st.integers(200, 3_000),
    random=st.randoms(use_true_random=False),
)
@settings(max_examples=25, deadline=None)
def test_the_output_is_in_order_and_every_event_is_answered_once(
    algorithm, order, rows, keys, deeds, pool, room, random
):
    pipeline = Pipeline.model_validate({**PIPELINE.model_dump(mode="json"), "order": order})
    within = pipeline.order.within
    broker, events = filled(keys)
    known_to_the_cache(broker, rows, lambda: set(random.sample(range(10), random.randint(0, 10))))
    largest = max(batch.nbytes for log in broker.logs.values() for batch in log)

    def new_node():
        line = None if within is None else WatchedLine(within, room, largest)
        memory = DISK_BUFFER + 200 + pool * BYTES_A_BLOCK
        return Node(broker, rows, algorithm, memory, pipeline, line)

    cluster = Cluster(new_node)
    for deed, which, more in deeds:
        getattr(cluster, deed)(which, more)
    cluster.drain()

    assert broker.outputs == joined(events, rows)
    taken = sum((parse(text) for _, text in broker.committed.values()), Counter())
    assert taken["in"] == taken["enriched"] + taken["unmatched"] == len(events)
    for slot in range(SLOTS):
        if within is None:
            assert disorder_of_keys(came(broker, slot), broker.sink[slot]) == 0
        else:
            assert disorder([one for _, one in came(broker, slot)], broker.sink[slot]) <= within


def test_disorder_is_how_far_the_furthest_is_off():
    assert disorder("abcd", "aabbcd") == 0
    assert disorder("abcd", "bacd") == 1
    assert disorder("abcd", "bcda") == 3
    assert disorder("abcd", "da") == 1, "places count among those that have an output"
    with pytest.raises(ValueError, match="do not stand together"):
        disorder("ab", "aba")
    keyed = [(1, "a"), (2, "b"), (1, "c")]
    assert disorder_of_keys(keyed, ["b", "a", "c"]) == 0
    assert disorder_of_keys(keyed, ["c", "b", "a"]) == 1


def test_an_empty_line_takes_no_memory():
    assert Line(0, 100).nbytes == 0
    assert Line(0, 100).due(np.empty(0, np.int64)) is None
