"""A whole pipeline in one process: every stage's own loop and handler, each in a thread.

As exact as separate processes and started in a second; for the many combinations of settings. What
a process adds (its death, HTTP) is `RunningPipeline`'s, in pipeline.py.

    with ThreadedPipeline(folder, bootstrap, database_url, spec) as pipeline:
        pipeline.send(events)
        pipeline.drain()
        assert pipeline.verdict().equal

Its topics are deleted at the end.
"""

from __future__ import annotations

import threading
import time
from dataclasses import replace
from itertools import cycle
from typing import TYPE_CHECKING, Any, Self

import yaml
from confluent_kafka import Producer

from dovetail.audit import Audit, Auditor
from dovetail.errors import StackError, Unavailable
from dovetail.pipeline.load import load_pipeline
from dovetail.service.metrics import Metrics
from dovetail.service.stage import Context
from dovetail.settings import Settings
from dovetail.stream.loop import Loop
from dovetail.stream.topics import admin_of, ensure_topics
from dovetail.topology import CACHE_PHASE, DISK_PHASE, INGEST, INTAKE, MAPPER, NODE, Topology
from dovetail.verify import Verdict, headers_of, read_all, verify
from services.cache_phase import main as cache_phase
from services.disk_phase import main as disk_phase
from services.ingest import main as ingest
from services.mapper import main as mapper
from services.node import intake
from services.node import main as node

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from pathlib import Path

    from dovetail.topology import Stage, Topic

_SERVICES = {
    INGEST: ingest,
    MAPPER: mapper,
    CACHE_PHASE: cache_phase,
    DISK_PHASE: disk_phase,
    INTAKE: intake,
    NODE: node,
}
_STUCK_S = 60.0
_LOOK_EVERY_S = 0.1


class ThreadedPipeline:
    def __init__(
        self, folder: Path, bootstrap: str, database_url: str, spec: Mapping[str, Any]
    ) -> None:
        file = folder / "pipeline.yaml"
        file.write_text(yaml.safe_dump(dict(spec), allow_unicode=True, sort_keys=False))
        self.spec = load_pipeline(file, {})
        self.topology = Topology(self.spec)
        self.settings = Settings(bootstrap, database_url, file)
        self._auditor = Auditor(self.settings, self.topology)
        self._failures: list[BaseException] = []
        self._loops: list[Loop] = []
        self._threads: list[threading.Thread] = []
        self._partitions = cycle(range(self.topology.source.partitions))
        self._producer = Producer(self.settings.client({"linger.ms": 5}))

    def __enter__(self) -> Self:
        ensure_topics(self.settings, self.topology.topics())
        try:
            for stage in self.topology.stages:
                for node in range(self.spec.nodes if stage.per_node else 1):
                    self._start(stage, node)
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        for loop in self._loops:
            loop.stop()
        for thread in self._threads:
            thread.join(30)
        self._auditor.close()
        admin = admin_of(self.settings)
        own = [topic.name for topic in self.topology.topics()]
        own = [name for name in own if name.startswith(self.spec.name)]
        for deletion in admin.delete_topics(own).values():
            deletion.result(30)

    def send(self, events: Iterable[bytes | None]) -> None:
        """Send events, to each source partition in turn; return when Kafka has them all."""
        for event in events:
            partition = next(self._partitions)
            self._producer.produce(self.topology.source.name, event, partition=partition)
            self._producer.poll(0)
        if self._producer.flush(30):
            raise Unavailable("events were not sent within 30 s")

    def send_to(self, partitions: int, events: Iterable[bytes | None]) -> None:
        """Send events, to so many source partitions as there are by now."""
        self._partitions = cycle(range(partitions))
        self._producer = Producer(self.settings.client({"linger.ms": 5}))  # it knows all of them
        self.send(events)

    def drain(self) -> Audit:
        """Wait until everything sent is answered; a sum that is off ends the wait at once."""
        moved, before = time.monotonic(), None
        while not ((seen := self._auditor.audit()).drained or seen.off):
            if self._failures:
                raise self._failures[0]
            now = time.monotonic()
            if (seen.stages, seen.waiting) != before:
                moved, before = now, (seen.stages, seen.waiting)
            elif now - moved > _STUCK_S:
                reasons = [loop.reason for loop in self._loops]
                raise StackError(f"nothing moves: {seen.equation()}; {reasons}")
            time.sleep(_LOOK_EVERY_S)
        return seen

    def audit(self) -> Audit:
        return self._auditor.audit()

    def verdict(self) -> Verdict:
        """Compare with SQL; the pipeline has to be drained."""
        return verify(self.settings, self.spec, self.topology)

    def messages(self, topic: Topic) -> Iterator[tuple[dict[str, str], bytes | None]]:
        """Give the headers and the value of every committed message of a topic."""
        for message in read_all(self.settings, topic):
            yield headers_of(message), message.value()

    def _start(self, stage: Stage, node: int) -> None:
        service = _SERVICES[stage.kind]
        metrics = Metrics(stage.kind)
        settings = replace(self.settings, node=node, link=stage.link)
        spec, topology = self.spec.link(stage.link), self.topology.links[stage.link - 1]
        handler = service.build(Context(settings, spec, topology, metrics))
        loop = Loop(
            stage,
            self.topology.group(stage.keeper),
            settings,
            handler,
            service.step(spec),
            metrics.committed,
        )
        self._loops.append(loop)
        thread = threading.Thread(target=self._run, args=(loop,), name=f"{stage.service}-{node}")
        self._threads.append(thread)
        thread.start()

    def _run(self, loop: Loop) -> None:
        try:
            loop.run()
        except BaseException as failure:  # noqa: BLE001 - raised where the test waits
            self._failures.append(failure)
