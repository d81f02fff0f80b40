"""`dovetail audit` and `dovetail verify`: whether everything is there, and right.

Both read the topics themselves, so that they need no service to be up. An audit can also be had
from the control service, which is where it comes from if no broker is named.
"""

from __future__ import annotations

import os
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dovetail.cli import exits
from dovetail.cli.output import Output, plain
from dovetail.cli.parsing import add_connection, add_json

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator

    from rich.console import RenderableType

    from dovetail.audit import Audit
    from dovetail.verify import Verdict

_BROKER = "KAFKA_BOOTSTRAP"


def add_audit(parser: argparse.ArgumentParser) -> None:
    _add_file(parser)
    add_connection(parser)
    parser.set_defaults(run=_audit)


def add_verify(parser: argparse.ArgumentParser) -> None:
    _add_file(parser)
    add_json(parser)
    parser.set_defaults(run=_verify)


def _add_file(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "file", type=Path, nargs="?", default=Path("pipeline.yaml"), help="(%(default)s)"
    )


def _audit(arguments: argparse.Namespace) -> int:
    by_broker = bool(os.environ.get(_BROKER)) and arguments.url is None
    seen = _by_broker(arguments.file) if by_broker else _by_control(arguments)
    Output.of(arguments).show(seen, _audit_shown)
    return exits.NO if seen["problems"] else exits.FINE


def _by_broker(file: Path) -> dict[str, Any]:
    from dovetail.audit import Auditor
    from dovetail.pipeline.load import load_pipeline
    from dovetail.settings import Settings
    from dovetail.topology import Topology

    settings = Settings.of_kafka()
    with closing(Auditor(settings, Topology(load_pipeline(file)))) as auditor:
        return audited(auditor.audit())


def _by_control(arguments: argparse.Namespace) -> dict[str, Any]:
    from dovetail.cli.client import connect

    answer: dict[str, Any] = connect(arguments).get("/v1/audit")
    return answer


def audited(seen: Audit) -> dict[str, Any]:
    """The same as the API's."""
    from services.control.monitor import totals

    return totals(seen)


def _audit_shown(seen: dict[str, Any]) -> Iterator[RenderableType]:
    yield plain(seen["equation"])
    yield plain(f"waiting to be taken: {seen['waiting']:,}")
    for problem in seen["problems"]:
        yield plain(f"off: {problem}")


def _verify(arguments: argparse.Namespace) -> int:
    from dovetail.pipeline.load import load_pipeline
    from dovetail.settings import Settings
    from dovetail.topology import Topology
    from dovetail.verify import verify

    output = Output.of(arguments)
    pipeline = load_pipeline(arguments.file)
    verdict = verify(Settings.from_environment(), pipeline, Topology(pipeline), output.say)
    output.show(verified(verdict), _verdict_shown)
    return exits.FINE if verdict.equal else exits.NO


def verified(verdict: Verdict) -> dict[str, Any]:
    return {
        "equal": verdict.equal,
        "events": verdict.events,
        "expected": verdict.expected,
        "outputs": verdict.outputs,
        "unmatched": verdict.unmatched,
        "shed": verdict.shed,
        "parked": verdict.parked,
        "dead_lettered": verdict.dead_letters,
        "differences": verdict.differences,
    }


def _verdict_shown(seen: dict[str, Any]) -> Iterator[RenderableType]:
    yield plain(f"{seen['events']:,} events, {seen['expected']:,} outputs expected")
    yield plain(f"{seen['outputs']:,} outputs found")
    if seen["shed"]:
        yield plain(f"{seen['shed']:,} events shed, of which no output is expected")
    for difference in seen["differences"]:
        yield plain(f"off: {difference}")
