"""The disk phase over a snapshot: waits for the first one, and reads it when it is there."""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
import pytest

from dovetail.errors import Unavailable
from dovetail.join.columns import Column, JoinKeys
from dovetail.join.entry import MasterRows
from dovetail.join.exchange import Events
from dovetail.master.snapshot.versions import versions_of
from dovetail.pipeline.spec import Algorithm, Pipeline
from dovetail.service.metrics import Metrics
from dovetail.service.stage import Context
from dovetail.settings import Settings
from dovetail.topology import DISK_PHASE, Topology
from services.disk_phase.build import build_join
from services.disk_phase.relation import relation_of
from tests.unit.engine_kit import rows_each
from tests.unit.snapshot_kit import publish

KEYS = 500


def pipeline_over(folder, algorithm):
    return Pipeline.model_validate(
        {
            "name": "sales",
            "source": {"fields": {"id": "int"}},
            "key": "id",
            "master": {"table": "goods", "columns": ["r"], "snapshot": str(folder)},
            "algorithm": str(algorithm),
            "slots": 4,
        }
    )


@pytest.mark.parametrize("algorithm", list(Algorithm))
def test_events_wait_for_the_first_snapshot_and_are_answered_by_it(algorithm, tmp_path):
    of = pipeline_over(tmp_path, algorithm)
    settings = Settings("none", "none", Path("some/pipeline.yaml"))
    context = Context(settings, of, Topology(of), Metrics(DISK_PHASE))
    relation = relation_of(context)
    (annex,) = context.annexes
    assert annex.waiting_for().endswith("yet: run `dovetail spark snapshot some/pipeline.yaml`")
    join = build_join(of, relation, 4 << 20, time.monotonic)
    join.keep(range(4))
    keys = JoinKeys.of_ints(np.arange(KEYS))
    events = Events(keys, Column.of([b"{}"] * KEYS), np.arange(KEYS))
    assert join.offer(events).accepted
    with pytest.raises(Unavailable, match="dovetail spark snapshot"):
        join.step()
    known = np.repeat(np.arange(KEYS // 2), 3)
    rows = MasterRows(JoinKeys.of_ints(known), Column.of([b'{"r":1}'] * len(known)))
    publish(versions_of(tmp_path, of.name), of, rows)
    assert not annex.waiting_for()
    found = {}
    at = join.pending
    while join.pending or at < KEYS:
        at += join.offer(events.slice(at, KEYS)).accepted
        answers = join.step()
        if answers is not None:
            found |= dict(zip(answers.ids.tolist(), rows_each(answers), strict=True))
    join.close()
    assert found == {key: 3 if key < KEYS // 2 else 0 for key in range(KEYS)}
