"""A whole pipeline under test: real services as processes, a real Kafka, a real PostgreSQL.

    with RunningPipeline(home, bootstrap, database_url, spec) as pipeline:
        pipeline.send(events)
        pipeline.drain()
        assert pipeline.verdict().equal

Use it from the main thread: it starts processes (see `deploy.local.processes.guarded`).
"""

from __future__ import annotations

import json
import os
import signal
import time
import urllib.error
import urllib.request
from itertools import cycle
from typing import TYPE_CHECKING, Any, Self

import yaml
from confluent_kafka import Producer

from deploy.local.files import last_lines
from deploy.local.home import CHECKOUT
from deploy.local.ports import Ports
from deploy.local.processes import reap_leftovers
from deploy.local.services import Services
from dovetail.audit import Audit, Auditor
from dovetail.errors import StackError, Unavailable
from dovetail.pipeline.load import load_pipeline
from dovetail.pipeline.spec import Engine
from dovetail.service.metrics import figures_of
from dovetail.settings import Settings
from dovetail.stream.topics import ensure_topics
from dovetail.topology import CONTROL, ENRICH, NODE, Topology
from dovetail.verify import Verdict, headers_of, read_all, verify

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from pathlib import Path
    from types import TracebackType

    from confluent_kafka import Message

    from deploy.local.admission import Admission
    from deploy.local.home import Home
    from deploy.local.services import Service
    from dovetail.topology import Topic

_STUCK_S = {Engine.SERVICES: 60.0, Engine.SPARK: 300.0}
"""Without any movement for so long, waiting is given up: it may have to start anew meanwhile."""
_LOOK_EVERY_S = 0.2


class RunningPipeline:
    """Starts every service on entry, and on leaving ends whatever still runs."""

    def __init__(
        self,
        home: Home,
        bootstrap: str,
        database_url: str,
        spec: Mapping[str, Any],
        *,
        environment: Mapping[str, str] | None = None,
        admit: Callable[[Topology], Admission] | None = None,
        code: Path = CHECKOUT,
    ) -> None:
        """`spec` is a pipeline file's content; `environment` is the services' alone.

        `admit` is how it comes into a secured stack; `code` is the folder that services run.
        """
        self._home = home
        self._code = code
        self._file = home.run / "pipeline.yaml"
        self._file.write_text(yaml.safe_dump(dict(spec), allow_unicode=True, sort_keys=False))
        self.spec = load_pipeline(self._file, {})
        self.topology = Topology(self.spec)
        self.admission = admit(self.topology) if admit else None
        self.settings = (
            self.admission.settings(self._file)
            if self.admission
            else Settings(bootstrap, database_url, self._file)
        )
        self.reports: list[str] = []
        """What the supervisor had to say."""
        self._auditor = Auditor(self.settings, self.topology)
        self._producer = Producer(self.settings.client({"linger.ms": 5, "log_level": 0}))
        self._partitions = cycle(range(self.topology.source.partitions))
        self._services = Services(
            home,
            self.spec,
            self._file,
            {"KAFKA_BOOTSTRAP": bootstrap, "DATABASE_URL": database_url, **(environment or {})},
            Ports(home, {}, {}),
            self.reports.append,
            self.admission,
            code,
        )

    def __enter__(self) -> Self:
        reap_leftovers(self._home)
        if self._code == CHECKOUT:  # another release makes its own
            ensure_topics(self.settings, self.topology.topics())
        if self.admission:
            self.admission.grant(self._file)
        try:
            self._services.start()
            self._services.wait_until_ready()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    def stop(self) -> None:
        self._services.stop()

    # --- events in, outputs out

    def send(self, events: Iterable[bytes | None]) -> None:
        """Send events, to each source partition in turn; return when Kafka has them all."""
        failures: list[str] = []

        def delivered(error: object, _: Message) -> None:
            if error is not None:
                failures.append(str(error))

        for event in events:
            self._producer.produce(
                self.topology.source.name,
                event,
                partition=next(self._partitions),
                on_delivery=delivered,
            )
            self._producer.poll(0)
        if self._producer.flush(30) or failures:
            raise Unavailable(f"events were not sent: {failures[:3] or 'no answer within 30 s'}")

    def messages(self, topic: Topic) -> Iterator[tuple[dict[str, str], bytes | None]]:
        """Give the headers and the value of every committed message of a topic."""
        for message in read_all(self.settings, topic):
            yield headers_of(message), message.value()

    def audit(self) -> Audit:
        return self._auditor.audit()

    def verdict(self) -> Verdict:
        """Compare with SQL; the pipeline has to be drained."""
        return verify(self.settings, self.spec, self.topology)

    def drain(self) -> Audit:
        """Wait until everything sent is answered; a sum that is off ends the wait at once."""
        return self.wait_until(lambda seen: seen.drained or seen.off, "all is answered")

    # --- processes

    def wait_until(self, satisfied: Callable[[Audit], bool], what: str) -> Audit:
        """Watch the services until the audit is as wanted, for as long as anything moves."""
        moved, before = time.monotonic(), None
        while not satisfied(seen := self.audit()):
            now = time.monotonic()
            if (seen.stages, seen.waiting) != before:
                moved, before = now, (seen.stages, seen.waiting)
            elif now - moved > _STUCK_S[self.spec.engine]:
                raise StackError(
                    f"waiting until {what}, but nothing has moved for {now - moved:.0f} s: "
                    f"{self.why_stuck(seen)}"
                )
            self.pause(_LOOK_EVERY_S)
        return seen

    def pause(self, seconds: float) -> None:
        """Let time pass, and start again whatever ends meanwhile."""
        end = time.monotonic() + seconds
        while True:
            self._services.watch()
            rest = end - time.monotonic()
            if rest <= 0:
                return
            time.sleep(min(rest, _LOOK_EVERY_S))

    def kill(self, name: str) -> int:
        """End a service by SIGKILL, which it can neither see nor delay; return its pid.

        It is dead on return, and starts again with the next `pause` or wait.
        """
        pid = self.pid(name)
        os.kill(pid, signal.SIGKILL)
        while self.service(name).process.exit_code() is None:
            time.sleep(0.01)
        return pid

    def send_signal(self, name: str, number: signal.Signals) -> bool:
        """Send a service a signal; False if it does not run at the moment."""
        process = self.service(name).process
        if process.exit_code() is not None:
            return False
        process.send(number)
        return True

    def add_node(self, node: int) -> None:
        """Start the processes of one more node; it takes its share of the slots when ready."""
        self._services.add_node(node)

    def remove_node(self, node: int, stop_signal: signal.Signals = signal.SIGTERM) -> None:
        """Tell a node's processes to end, for good, without waiting; by SIGKILL it is lost."""
        self._services.remove_node(node, stop_signal)

    def replace(self, name: str) -> Service:
        """Start another process under a service's name; give back the old one, left to itself."""
        return self._services.replace(name)

    def exchange(self, name: str, code: Path) -> int | None:
        """End a service in order and start it from another folder of code; give its exit code."""
        return self._services.exchange(name, code)

    def wait_until_ready(self) -> None:
        self._services.wait_until_ready()

    def lifetime(self, name: str) -> float:
        """Seconds since a service was started last; 0 while it does not run."""
        service = self.service(name)
        runs = service.process.exit_code() is None
        return time.monotonic() - service.started_at if runs else 0.0

    def url(self, name: str) -> str:
        return self.service(name).url

    def pid(self, name: str) -> int:
        pid = self.service(name).process.pid
        if pid is None:
            raise StackError(f"{name} has not been started")
        return pid

    def pids(self) -> dict[str, int]:
        return {service.name: self.pid(service.name) for service in self._services.all}

    def names(self) -> list[str]:
        """The services that are watched, in the order in which the data flows."""
        return [service.name for service in self._services.all]

    def process_of(self, name: str) -> str:
        """Which process does the work of a service: its own, or the one that does all of it.

        Of fused nodes, the one of the same number for the same table.
        """
        if name == CONTROL or not self.topology.in_one:
            return name
        if self.topology.by_spark:
            return ENRICH
        service, _, node = name.partition("-")
        link = service.partition(".")[2]
        return f"{NODE}{'.' if link else ''}{link}-{node or 0}"

    @property
    def has_nodes(self) -> bool:
        """Whether nodes are processes that come and go: Spark's are tasks."""
        return not self.topology.by_spark

    @property
    def has_phases(self) -> bool:
        """Whether the cache phase and the disk phase are processes of their own."""
        return not self.topology.in_one

    def starts(self, name: str) -> int:
        """How often the supervisor has started a service again."""
        return self.service(name).restarts

    def figures(self, name: str) -> dict[str, float]:
        """The figures of this moment that a service shows in its /metrics."""
        with urllib.request.urlopen(f"{self.service(name).url}/metrics", timeout=5) as answer:  # noqa: S310 - our own
            return figures_of(answer.read().decode())

    def not_ready_because(self, name: str) -> str:
        """Ask a service's /ready for its reason; empty if it is ready."""
        try:
            with urllib.request.urlopen(f"{self.service(name).url}/ready", timeout=5):  # noqa: S310 - our own
                return ""
        except urllib.error.HTTPError as answer:
            return str(json.load(answer)["reason"])
        except OSError as error:
            return f"it does not answer: {error}"

    def service(self, name: str) -> Service:
        for service in self._services.all:
            if service.name == name:
                return service
        known = ", ".join(service.name for service in self._services.all)
        raise StackError(f"no service is called {name}; there are {known}")

    def why_stuck(self, seen: Audit) -> str:
        """Name the stage that has events in front of it, and let its logs speak."""
        stage = max(seen.backlogs, key=lambda service: seen.backlogs[service])
        guilty = self.process_of(stage)
        accused = [service for service in self._services.all if service.name.startswith(guilty)]
        logs = "\n".join(
            f"{service.name} ({self.not_ready_because(service.name) or 'ready'}), the end of "
            f"{service.process.log}:\n{last_lines(service.process.log)}"
            for service in accused
        )
        return f"in front of {stage} are {seen.backlogs[stage]:,} events. {seen.equation()}\n{logs}"
