"""A stage's kernels are loaded without those of the stages before it."""

from __future__ import annotations

import pytest

from dovetail.pipeline.spec import Pipeline
from dovetail.topology import CACHE_PHASE, DISK_PHASE, INGEST, MAPPER
from services import warm
from services.warm import warm_stage

PIPELINE = {
    "name": "sales",
    "source": {"fields": {"id": "int", "amount": "decimal"}},
    "key": "id",
    "master": {"table": "goods", "columns": ["name"]},
    "algorithm": "srj",
    "slots": 4,
}
RUNS = {
    INGEST: {"IngestHandler"},
    MAPPER: {"MapperHandler"},
    CACHE_PHASE: {"CacheHandler", "DiskHandler"},
    DISK_PHASE: {"CacheHandler", "DiskHandler"},
}


@pytest.mark.parametrize("kind", RUNS)
@pytest.mark.parametrize("key_type", ["int", "text"])
def test_a_stage_is_warmed_by_events_like_those_that_it_reads(kind, key_type, monkeypatch):
    answered = []

    def handled(handler, messages):
        sent = real(handler, messages)
        answered.append((type(handler).__name__, sum(map(len, sent.values()))))
        return sent

    real = warm._handled
    monkeypatch.setattr(warm, "_handled", handled)
    fields = {"fields": {"id": key_type, "amount": "decimal"}}
    warm_stage(kind, Pipeline.model_validate({**PIPELINE, "source": fields}))
    assert {name for name, _ in answered} == RUNS[kind]
    assert all(sent for _, sent in answered), "nothing was refused as foreign or unread"
