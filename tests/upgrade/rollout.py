"""A running pipeline taken from one folder of code to another, under load.

A rollout is a list of waves: the processes of a wave are told to end together, and the next wave
comes when all are ready and have taken events in.
"""

from __future__ import annotations

import signal
import urllib.request
from contextlib import closing
from typing import TYPE_CHECKING

import psutil
from prometheus_client.parser import text_string_to_metric_families

from dovetail.service import declared
from dovetail.stream import ledger
from dovetail.stream.offsets import CommittedOffsets
from dovetail.topology import CONTROL, DISK_PHASE, INGEST, MAPPER

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from dovetail.testing.pipeline import RunningPipeline
    from tests.chaos.load import Load

_ENDED_IN_ORDER = (0, -signal.SIGTERM)
"""In 0.2.0 the web server's signal, raised anew when all was done. A process that did not end would
be killed after half a minute."""


def against_the_flow(names: Sequence[str]) -> list[list[str]]:
    """The order of docs/operations.md, one process at a time; `names` are in the flow's.

    Control first; then who reads a topic before who writes to it, of a phase the last node first.
    """
    control, *stages = names
    assert control == CONTROL
    return [[name] for name in (control, *reversed(stages))]


def at_once(names: Sequence[str]) -> list[list[str]]:
    """What `helm upgrade` does: every Deployment and StatefulSet for itself, at the same time.

    A Deployment has one process, a StatefulSet takes its nodes one by one, the last first.
    """
    alone = [CONTROL, INGEST, MAPPER]
    nodes = [name for name in names if name not in alone]
    numbers = sorted({_node(name) for name in nodes}, reverse=True)
    waves = [[name for name in nodes if _node(name) == number] for number in numbers]
    return [[*alone, *waves[0]], *waves[1:]]


def backwards(waves: list[list[str]]) -> list[list[str]]:
    """The way back: who writes to a topic changes before who reads it."""
    return waves[::-1]


def roll(
    pipeline: RunningPipeline,
    load: Load,
    waves: list[list[str]],
    code: Path,
    *,
    pending: bool = False,
) -> None:
    """Let the processes of these waves run that code from now on.

    With `pending` a disk phase ends when it has events that wait, and answers above what its slots
    have committed: the next one has to read both again, and to answer the former alone.
    """
    for wave in waves:
        for name in wave if pending else ():
            _wait_until_it_leaves_some(pipeline, name)
        for name in wave[1:]:  # the first is told by its exchange
            assert pipeline.send_signal(name, signal.SIGTERM), f"{name} had ended by itself"
        for name in wave:
            ended = pipeline.exchange(name, code)
            assert ended in _ENDED_IN_ORDER, f"{name} did not end in order: {ended}"
        pipeline.wait_until_ready()
        for name in wave:
            assert psutil.Process(pipeline.pid(name)).cwd() == str(code)
            _wait_until_it_works(pipeline, name)
        load.check()


def kill(pipeline: RunningPipeline, name: str) -> None:
    """`kill -9`; the supervisor starts the same code again."""
    pipeline.kill(name)
    pipeline.wait_until_ready()
    _wait_until_it_works(pipeline, name)


def _wait_until_it_leaves_some(pipeline: RunningPipeline, name: str) -> None:
    if name.startswith(DISK_PHASE):
        pipeline.wait_until(
            lambda _: pipeline.figures(name)["window_events"] > 0 and _has_progress(pipeline),
            f"{name} has something to leave behind",
        )


def _has_progress(pipeline: RunningPipeline) -> bool:
    group = pipeline.topology.group(DISK_PHASE)
    with closing(CommittedOffsets(pipeline.settings, group, pipeline.topology.missed)) as offsets:
        return any(ledger.parse(at.text)[ledger.PROGRESS] for at in offsets.read().values())


def _wait_until_it_works(pipeline: RunningPipeline, name: str) -> None:
    """Until the process, and not only its service, has taken events in."""
    if name != CONTROL:
        pipeline.wait_until(lambda _: _taken(pipeline, name) > 0, f"{name} takes events in")


def _taken(pipeline: RunningPipeline, name: str) -> float:
    with urllib.request.urlopen(f"{pipeline.url(name)}/metrics", timeout=30) as answer:
        families = text_string_to_metric_families(answer.read().decode())
        samples = [sample for family in families for sample in family.samples]
    return sum(sample.value for sample in samples if sample.name == declared.TAKEN.name)


def _node(name: str) -> int:
    return int(name.rpartition("-")[2])
