"""`dovetail set`, `start`, `pause`, `resume`, `drain`, `restart`: what a pipeline is told."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

import yaml

from dovetail.cli.client import connect
from dovetail.cli.commands.pipelines import revised
from dovetail.cli.following import conclude
from dovetail.cli.output import Output
from dovetail.cli.parsing import (
    add_change,
    add_connection,
    add_no_wait,
    add_pipeline,
    add_yes,
    changed,
    confirm,
    moment,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

_SETTINGS = ("algorithm", "memory", "order", "overload")


def add_set(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "setting",
        nargs="+",
        type=_setting,
        metavar="NAME=VALUE",
        help=f"{', '.join(_SETTINGS)}; a value is written as in the pipeline's file",
    )
    _add_shared(parser)
    parser.add_argument(
        "--from-revision", type=int, metavar="N", help="refuse if another change was made since"
    )
    parser.set_defaults(run=_set)


def add_start(parser: argparse.ArgumentParser) -> None:
    _add_shared(parser)
    parser.set_defaults(run=_tell, service=None)


def add_pause(parser: argparse.ArgumentParser) -> None:
    _add_shared(parser)
    _add_service(parser)
    parser.set_defaults(run=_tell)


def add_resume(parser: argparse.ArgumentParser) -> None:
    _add_shared(parser)
    _add_service(parser)
    parser.set_defaults(run=_tell)


def add_drain(parser: argparse.ArgumentParser) -> None:
    _add_shared(parser)
    parser.set_defaults(run=_tell, service=None)


def add_restart(parser: argparse.ArgumentParser) -> None:
    begin = parser.add_mutually_exclusive_group(required=True)
    begin.add_argument("--beginning", action="store_true", help="from the first event there is")
    begin.add_argument(
        "--time", type=moment, help="from the first at or after it: 2026-01-31T08:00Z, or 10m ago"
    )
    begin.add_argument(
        "--offset",
        action="append",
        type=_offset,
        metavar="PARTITION=OFFSET",
        help="repeatable; partitions that are not named stay where they are",
    )
    _add_shared(parser)
    add_yes(parser)
    parser.set_defaults(run=_restart)


def _add_shared(parser: argparse.ArgumentParser) -> None:
    add_connection(parser)
    add_pipeline(parser)
    add_change(parser)
    add_no_wait(parser)


def _add_service(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--service", help="only this stage, by its name in the topology")


def _set(arguments: argparse.Namespace) -> int:
    client = connect(arguments)
    body = changed(
        arguments, settings=dict(arguments.setting), from_revision=arguments.from_revision
    )
    return revised(client.patch(client.pipeline(arguments.pipeline), body), arguments, client)


def _tell(arguments: argparse.Namespace) -> int:
    return _order(arguments, arguments.command, changed(arguments, service=arguments.service))


def _restart(arguments: argparse.Namespace) -> int:
    begin: dict[str, Any] = {"beginning": True}
    if arguments.time:
        begin = {"time": arguments.time}
    elif arguments.offset:
        begin = {"offsets": dict(arguments.offset)}
    confirm(arguments, "every event that is read again has its outputs again")
    return _order(arguments, "restart", {**changed(arguments), "from": begin, "confirm": True})


def _order(arguments: argparse.Namespace, order: str, body: Mapping[str, object]) -> int:
    client = connect(arguments)
    job = client.post(f"{client.pipeline(arguments.pipeline)}/{order}", body)
    return conclude(job, arguments, client, Output.of(arguments))


def _setting(text: str) -> tuple[str, object]:
    """A name and a value in YAML: `memory=64MiB`, `order={within: 100}`."""
    name, equals, value = text.partition("=")
    if not equals or name not in _SETTINGS:
        raise argparse.ArgumentTypeError(
            f"'{text}' is no setting that can change: write "
            f"{', '.join(f'{one}=…' for one in _SETTINGS)}; for others there is"
            " `dovetail pipelines update`"
        )
    try:
        return name, yaml.safe_load(value)
    except yaml.YAMLError:
        raise argparse.ArgumentTypeError(f"'{value}' is no value of YAML") from None


def _offset(text: str) -> tuple[str, int]:
    partition, _, offset = text.partition("=")
    if not (partition.isdecimal() and offset.isdecimal()):
        raise argparse.ArgumentTypeError(f"'{text}' is no partition with its offset: write 0=1200")
    return partition, int(offset)
