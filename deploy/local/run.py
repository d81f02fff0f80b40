"""`make run`: the whole pipeline on this machine, from nothing to enriched events.

1. Start Kafka and PostgreSQL, load the demo catalogue, compile the kernels meanwhile.
2. Start every service as a process of its own; wait until all are ready. Spark, if it is not there
   yet, is installed meanwhile where the pipeline runs on it, and else beside what follows.
3. Send demo events and show what happens, until Ctrl-C or the time given is over.
4. Stop sending and drain: everything taken is answered.
5. With `--for`: compare the output with SQL's, and the conservation sum with zero.
6. Stop everything that was started.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.live import Live

from deploy.local.admission import Admission
from deploy.local.home import CHECKOUT, Home
from deploy.local.kernels import compiling
from deploy.local.live import fetch
from deploy.local.planning import EVERY, FIRST_S, planning
from deploy.local.ports import Ports
from deploy.local.processes import Managed
from deploy.local.prometheus import observing
from deploy.local.security import Security
from deploy.local.services import Services
from deploy.local.spark_install import SparkInstall
from deploy.local.stack import Stack
from deploy.local.startup import Startup
from dovetail.audit import Audit, Auditor
from dovetail.cli.live import line, render
from dovetail.demo.catalogue import load_catalogue
from dovetail.errors import DovetailError, StackError
from dovetail.permissions import FREQUENCY, GENERATOR
from dovetail.pipeline.check import require_master
from dovetail.pipeline.load import load_pipeline
from dovetail.pipeline.spec import Layout
from dovetail.settings import Settings, kafka_options
from dovetail.stream.topics import ensure_topics
from dovetail.topology import Topology
from dovetail.verify import Verdict, ends_of, verify

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

_STUCK_S = 60.0
"""Draining is given up when nothing has moved for so long."""


@dataclass(frozen=True, slots=True)
class Outcome:
    audit: Audit
    verdict: Verdict | None
    """None where nobody asked for one."""

    @property
    def fine(self) -> bool:
        lost = self.audit.off or self.audit.in_flight
        wrong = self.verdict and (self.verdict.events == 0 or not self.verdict.equal)
        return not (lost or wrong)


def main() -> int:
    parser = argparse.ArgumentParser(prog="make run", description=__doc__)
    add_arguments(parser)
    console = Console(highlight=False, soft_wrap=True)
    try:
        outcome = run(parser.parse_args(), console)
    except DovetailError as error:
        console.print(f"[red]error[/red] {error}", markup=True)
        return 1
    except KeyboardInterrupt:
        console.print("stopped")
        return 130
    tell(outcome, console.print)
    return 0 if outcome.fine else 1


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--for", dest="seconds", type=float, help="stop and verify after this")
    parser.add_argument("--rate", default="20000", help="demo events a second, or max")
    parser.add_argument("--skew", default="1.0", help="Zipf exponent of the demo's keys")
    parser.add_argument("--timing", default="steady", help="steady or bursty")
    parser.add_argument("--pipeline", type=Path, default=CHECKOUT / "pipeline.yaml")
    parser.add_argument("--plan-every", default=EVERY, help="how often caches are planned, or off")
    parser.add_argument(
        "--prometheus", action="store_true", help="start a Prometheus with the rules and alerts"
    )
    parser.add_argument(
        "--secure", action="store_true", help="with TLS, users, ACLs, roles and tokens"
    )
    parser.add_argument("--engine", help="services or spark; as the pipeline says unless given")
    parser.add_argument(
        "--layout", help="split, or fused with one node; as the pipeline says unless given"
    )


def run(arguments: argparse.Namespace, console: Console) -> Outcome:
    signal.signal(signal.SIGTERM, _interrupt)
    report = console.print
    os.environ.update(overrides(arguments, os.environ))  # for the services as well
    pipeline = load_pipeline(arguments.pipeline)
    topology = Topology(pipeline)
    home = _home(arguments)
    security = Security.of_home(home) if arguments.secure else None
    with (
        Startup(console) as startup,
        compiling(home, arguments.pipeline, report) as wait_for_kernels,
        Stack(home, security=security, report=report) as stack,
        contextlib.ExitStack() as beside,
    ):
        spark = beside.enter_context(SparkInstall(home, pipeline, report))
        startup.step("loading the catalogue")
        load_catalogue(stack.database_url, report=report)
        for warning in require_master(pipeline, stack.database_url):
            report(str(warning))
        settings = _settings(stack, arguments.pipeline)
        ensure_topics(settings, topology.topics())
        begin = ends_of(settings, topology)
        ports = Ports(home)
        admission = _admission(stack, topology, arguments.pipeline, report)
        services = Services(
            home,
            pipeline,
            arguments.pipeline,
            stack.environment(),
            ports,
            report,
            admission,
        )
        try:
            startup.step("compiling the kernels")
            wait_for_kernels(startup.part)
            spark.wait()
            startup.step("starting the services")
            _start(services, startup, report)
            if arguments.seconds is None or arguments.seconds > FIRST_S:
                spark.start()
            _tell_urls(services, security, report)
            if arguments.prometheus:
                beside.enter_context(observing(home, pipeline, services.url, ports, report=report))
            generator = _generator(
                home,
                arguments,
                topology,
                {**stack.environment(), **_own(admission, GENERATOR)},
            )
            plans = planning(
                home,
                pipeline,
                arguments.pipeline,
                arguments.plan_every,
                {**stack.environment(), **_own(admission, FREQUENCY)},
                report,
            )
            with contextlib.ExitStack() as ended:
                ended.callback(generator.stop)
                generator.start()
                watched = [stack.check, services.watch, generator.check, spark.watch]
                if plans is not None:
                    ended.callback(plans.stop)
                    watched.append(plans.watch)
                _watch(arguments.seconds, stack, services.control_url, watched, console)
            with contextlib.closing(Auditor(settings, topology)) as auditor:
                final = _drain(auditor, services, report)
            verdict = None
            if arguments.seconds is not None:
                verdict = verify(settings, pipeline, topology, report=report, begin=begin)
        finally:
            report("stopping the services")
            services.stop()
            report("stopping Kafka and PostgreSQL")
    return Outcome(final, verdict)


def overrides(
    arguments: argparse.Namespace, environment: Mapping[str, str] = os.environ
) -> dict[str, str]:
    """What the arguments change of the pipeline's file, as variables that override it."""
    found = {}
    if arguments.engine:
        found["DOVETAIL_ENGINE"] = arguments.engine
    if arguments.layout:
        found["DOVETAIL_LAYOUT"] = arguments.layout
        if arguments.layout == Layout.FUSED and not environment.get("DOVETAIL_NODES"):
            # It has one node, and the demo's pipeline has two.
            found["DOVETAIL_NODES"] = "1"
    return found


def _start(services: Services, startup: Startup, report: Callable[[str], None]) -> None:
    report("starting the services")
    services.start()
    services.wait_until_ready(progress=startup.part)
    startup.end()


def _admission(
    stack: Stack, topology: Topology, file: Path, report: Callable[[str], None]
) -> Admission | None:
    """Let the pipeline into a secured stack; None where everything is open."""
    if stack.security is None:
        return None
    admission = Admission(stack, topology)
    admission.grant(file)
    report("secured: TLS, a user with ACLs of its own for each service, SQL roles, API by token")
    return admission


def _settings(stack: Stack, file: Path) -> Settings:
    kafka = stack.client or kafka_options(os.environ)
    return Settings(stack.bootstrap, stack.database_url, file, kafka=kafka)


def _own(admission: Admission | None, service: str) -> dict[str, str]:
    return admission(service) if admission else {}


def _home(arguments: argparse.Namespace) -> Home:
    """A secured stack has one of its own: what was written without users stays apart."""
    home = Home.of_checkout()
    return Home(home.folder / "secure", home.folder) if arguments.secure else home


def _generator(
    home: Home, arguments: argparse.Namespace, topology: Topology, environment: dict[str, str]
) -> Managed:
    command = [sys.executable, "-m", "dovetail.cli", "generate", "--topic", topology.source.name]
    options = ["--rate", arguments.rate, "--skew", arguments.skew, "--timing", arguments.timing]
    return Managed(
        home, "generator", [*command, *options], env={**os.environ, **environment}, cwd=CHECKOUT
    )


def _tell_urls(
    services: Services, security: Security | None, report: Callable[[str], None]
) -> None:
    report(f"console       {services.control_url}  (the API's documentation at /docs)")
    for service in services.all:
        report(f"{service.name:<14}{service.url}  /health /ready /metrics")
    if security is not None:
        report(f"the API's token: export DOVETAIL_TOKEN_FILE={security.token_file()}")
    report("what they show, with dashboards and alerts: docs/observability.md")


def _watch(
    seconds: float | None,
    stack: Stack,
    control_url: str,
    watched: list[Callable[[], None]],
    console: Console,
) -> None:
    """Show the live table until the time is over or the user says so."""
    end = None if seconds is None else time.monotonic() + seconds
    token = stack.security.token_file().read_text() if stack.security else ""
    with contextlib.suppress(KeyboardInterrupt), _display(console, token) as show:
        while end is None or time.monotonic() < end:
            for look in watched:
                look()
            left = "" if end is None else f"{max(0, end - time.monotonic()):.0f} s to go; "
            show(control_url, f"{left}Ctrl-C drains and stops")
            time.sleep(1)


@contextlib.contextmanager
def _display(console: Console, token: str) -> Iterator[Callable[[str, str], None]]:
    """Redraw in place on a terminal; elsewhere print a line every five seconds."""
    if console.is_terminal:
        with Live(console=console, auto_refresh=False, transient=False) as display:

            def redraw(url: str, notice: str) -> None:
                display.update(render(fetch(url, token), notice), refresh=True)

            yield redraw
        return
    printed = 0.0

    def print_line(url: str, _: str) -> None:
        nonlocal printed
        if time.monotonic() - printed >= 5:
            printed = time.monotonic()
            console.print(line(fetch(url, token)))

    yield print_line


def _drain(auditor: Auditor, services: Services, report: Callable[[str], None]) -> Audit:
    """Wait until everything sent is answered."""
    moved = told = time.monotonic()
    before: Audit | None = None
    while True:
        now = auditor.audit()
        if now.drained or now.off:
            return now
        if before is None or now.stages != before.stages:
            moved = time.monotonic()
        elif time.monotonic() - moved > _STUCK_S:
            raise StackError(
                f"nothing has moved for {_STUCK_S:.0f} s with {now.waiting:,} events waiting and "
                f"{now.in_flight:,} in flight; the services' logs say why"
            )
        if before is None or time.monotonic() - told > 2:
            report(f"draining: {now.waiting:,} events waiting, {now.in_flight:,} in flight")
            told = time.monotonic()
        before = now
        services.watch()
        time.sleep(0.3)


def tell(outcome: Outcome, report: Callable[[str], None]) -> None:
    final, verdict = outcome.audit, outcome.verdict
    report(f"conservation  {final.equation()}")
    for problem in final.problems:
        report(f"[red]off[/red]  {problem}")
    if final.in_flight and not final.problems:
        report("[red]off[/red]  events are in flight although nothing waits")
    if verdict is not None:
        verb = "equals" if verdict.equal else "[red]differs from[/red]"
        report(
            f"output {verb} SQL's  {verdict.events:,} events, {verdict.expected:,} outputs "
            f"expected, {verdict.outputs:,} found"
        )
        if verdict.events == 0:
            report("[red]off[/red]  no events arrived: the generator's log says why")
        for difference in verdict.differences:
            report(f"[red]off[/red]  {difference}")


def _interrupt(*_: object) -> None:
    raise KeyboardInterrupt


if __name__ == "__main__":
    sys.exit(main())
