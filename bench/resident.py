"""What a service's process holds before its first event, and which libraries take it.

    python -m bench.resident [pipeline.yaml]

Each line is a fresh interpreter: first libraries alone, then each service, with its modules
imported and, for a stage, with its kernels loaded as at its start. Nothing is started; what the
running processes of a stack hold is in the benchmark's tables (`make bench-e2e`).
"""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
from dataclasses import asdict, dataclass
from pathlib import Path

from dovetail.service.allocator import keep_freed_memory
from dovetail.topology import CACHE_PHASE, CONTROL, DISK_PHASE, INGEST, MAPPER, NODE

_LIBRARIES = (
    *("numpy", "confluent_kafka", "google.protobuf.message", "fastapi", "uvicorn", "psycopg"),
    *("sqlalchemy", "pyarrow", "pandas", "numba", "httpx"),
)
_SERVICES = (INGEST, MAPPER, CACHE_PHASE, DISK_PHASE, NODE, CONTROL)
_HEAVY = ("numba", "llvmlite", "pyarrow", "pandas", "sqlalchemy", "psycopg", "httpx")


@dataclass(frozen=True, slots=True)
class Held:
    """MiB, as the kernel tells."""

    rss: float
    pss: float
    own: float
    """Shared with nobody."""


@dataclass(frozen=True, slots=True)
class Found:
    bare: Held
    imported: Held
    warm: Held
    heavy: list[str]


def held() -> Held:
    found = {}
    for line in Path("/proc/self/smaps_rollup").read_text().splitlines()[1:]:
        name, size, _ = line.split()
        found[name] = int(size) / 1024
    own = found["Private_Clean:"] + found["Private_Dirty:"]
    return Held(found["Rss:"], found["Pss:"], own)


def look(kind: str, pipeline: str) -> Found:
    """Import a library, or a service as its process does."""
    bare = held()
    if kind not in _SERVICES:
        importlib.import_module(kind)
        return Found(bare, held(), held(), [])
    keep_freed_memory()
    importlib.import_module(f"services.{kind.replace('-', '_')}.main")
    imported = held()
    if kind != CONTROL:
        load = importlib.import_module("dovetail.pipeline.load").load_pipeline
        importlib.import_module("services.warm").warm_stage(kind, load(Path(pipeline)))
    return Found(bare, imported, held(), [name for name in _HEAVY if name in sys.modules])


def _asked(kind: str, pipeline: str) -> dict[str, dict[str, float]]:
    command = [sys.executable, "-m", "bench.resident", pipeline, kind]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    told: dict[str, dict[str, float]] = json.loads(done.stdout)
    return told


def _line(name: str, of: dict[str, float], more: str = "") -> str:
    return f"{name:<24}{of['rss']:>10.1f}{of['pss']:>12.1f}{of['own']:>9.1f}  {more}"


def main(pipeline: str = "pipeline.yaml", kind: str = "") -> None:
    if kind:
        print(json.dumps(asdict(look(kind, pipeline))))
        return
    print(f"{'MiB':<24}{'resident':>10}{'shared out':>12}{'its own':>9}")
    for library in _LIBRARIES:
        told = _asked(library, pipeline)
        print(_line(library, {k: told["imported"][k] - told["bare"][k] for k in told["bare"]}))
    for service in _SERVICES:
        told = _asked(service, pipeline)
        print(_line(service, told["imported"], "imported"))
        if service != CONTROL:
            print(_line(f"  {service}", told["warm"], f"kernels loaded; {told['heavy']}"))


if __name__ == "__main__":
    main(*sys.argv[1:])
