"""What the handbook's procedures are done with: its own commands, over a pipeline under load."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path

from tests.chaos.load import Load
from tests.chaos.run import KEYS, spec

RATE = 1_500.0
WITHIN_S = 180.0


def sales(**settings):
    """A pipeline's file: the demo's events over a table in which a seventh of the keys is twice."""
    content = spec("srj")
    del content["name"]
    return {**content, **settings}


class Dovetail:
    """The command line as whoever is on call has it, in the folder of the pipeline's file."""

    def __init__(self, pipeline):
        self._pipeline = pipeline
        settings = pipeline.settings
        self._folder = settings.pipeline.parent
        self._environment = {
            **os.environ,
            "DOVETAIL_URL": pipeline.url("control"),
            "KAFKA_BOOTSTRAP": settings.bootstrap,
            "DATABASE_URL": settings.database_url,
            "COLUMNS": "200",
        }

    def __call__(self, line, code=0):
        """Run `dovetail <line>`; give what it prints."""
        command = [Path(sys.executable).with_name("dovetail"), *shlex.split(line)]
        ended = subprocess.run(
            command,
            cwd=self._folder,
            env=self._environment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert ended.returncode == code, (line, ended.returncode, ended.stdout, ended.stderr)
        return ended.stdout

    def json(self, line, code=0):
        return json.loads(self(f"{line} --json", code))

    def until(self, look, what):
        """Wait until something is so, and start again whatever ends meanwhile."""
        deadline = time.monotonic() + WITHIN_S
        while not (found := look()):
            assert time.monotonic() < deadline, f"never {what}"
            self._pipeline.pause(0.5)
        return found

    def owners(self):
        """For each phase, which slots each node has; None while a slot is nobody's."""
        slots = self.json("slots")
        found = {}
        for phase in ("cache_phase", "disk_phase"):
            for slot in slots:
                found.setdefault(phase, {}).setdefault(slot[phase], set()).add(slot["slot"])
        return None if any(None in nodes for nodes in found.values()) else found

    def wait_for_owners(self, *nodes):
        """Wait until these nodes have all slots of both phases, and each of them some."""

        def owned():
            found = self.owners()
            return found if found and all(set(of) == set(nodes) for of in found.values()) else None

        return self.until(owned, f"all slots are those of the nodes {nodes}")


@contextmanager
def under_load(pipeline, rate=RATE):
    load = Load(pipeline, rate, seed=7, keys=KEYS)
    load.start()
    try:
        yield load
    finally:
        load.stop()
    load.check()


def goes_on(pipeline):
    """See that events are answered, by both phases, from now on."""
    seen = pipeline.audit()
    pipeline.wait_until(
        lambda now: now.enriched - now.hits > seen.enriched - seen.hits and now.hits > seen.hits,
        "both phases answer",
    )


def assert_exact(pipeline, dovetail, sent, taken=None):
    """All is answered, as the ledgers, the API and SQL say; `taken` of them since the last loss."""
    assert pipeline.drain().problems == []
    audit = dovetail.json("audit pipeline.yaml")
    assert audit["problems"] == []
    assert audit["in"] == (sent if taken is None else taken)
    assert audit["in_flight"] == audit["waiting"] == 0
    verdict = dovetail.json("verify pipeline.yaml")
    assert verdict["differences"] == []
    assert verdict["equal"]
    assert verdict["events"] == sent
    assert verdict["outputs"] == verdict["expected"] > 0
    return audit
