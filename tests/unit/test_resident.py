"""A process imports what it uses, and nothing large beside it."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

COMPILER = {"numba", "llvmlite"}
ARROW = {"pyarrow", "pandas"}
HTTP_CLIENT = {"httpx"}
SQL = {"sqlalchemy"}
FORBIDDEN = {
    "ingest": COMPILER | ARROW | SQL | HTTP_CLIENT,
    "mapper": COMPILER | ARROW | SQL | HTTP_CLIENT,
    "cache_phase": COMPILER | ARROW | SQL | HTTP_CLIENT,
    "disk_phase": COMPILER | ARROW | SQL | HTTP_CLIENT,
    "node": COMPILER | ARROW | SQL | HTTP_CLIENT,
    "control": COMPILER | ARROW | HTTP_CLIENT,
}
LOADED = """
import importlib, json, sys
importlib.import_module(f"services.{sys.argv[1]}.main")
print(json.dumps(sorted(sys.modules)))
"""
WARMED = """
import importlib, json, sys
from dovetail.pipeline.spec import Pipeline
from services.warm import warm_stage
importlib.import_module(f"services.{sys.argv[1]}.main")
warm_stage(sys.argv[1].replace("_", "-"), Pipeline.model_validate(json.loads(sys.argv[2])))
print(json.dumps(sorted(sys.modules)))
"""
PIPELINE = {
    "name": "sales",
    "source": {"fields": {"id": "int", "amount": "decimal"}},
    "key": "id",
    "master": {"table": "goods", "columns": ["name"]},
    "algorithm": "srj",
    "slots": 4,
}


def modules(code: str, *words: str) -> set[str]:
    done = subprocess.run(
        [sys.executable, "-c", code, *words], check=True, capture_output=True, text=True
    )
    return set(json.loads(done.stdout.splitlines()[-1]))


@pytest.mark.parametrize("service", FORBIDDEN)
def test_a_service_imports_nothing_large_that_it_does_not_use(service):
    assert modules(LOADED, service) & FORBIDDEN[service] == set()


@pytest.mark.parametrize("service", ["ingest", "mapper", "cache_phase", "disk_phase"])
def test_a_stage_whose_kernels_are_compiled_starts_without_the_compiler(service):
    words = service, json.dumps(PIPELINE)
    modules(WARMED, *words)
    assert modules(WARMED, *words) & FORBIDDEN[service] == set()
