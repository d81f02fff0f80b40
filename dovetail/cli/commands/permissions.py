"""`dovetail permissions`: what each service may do on Kafka and in PostgreSQL, and no more."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from dovetail.cli import exits
from dovetail.cli.output import Output, plain, table
from dovetail.cli.parsing import add_json
from dovetail.permissions import permissions_of, users

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator

    from rich.console import RenderableType

    from dovetail.permissions import Permission
    from dovetail.topology import Topology


def add_permissions(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", type=Path, help="the pipeline's file")
    either = parser.add_mutually_exclusive_group()
    either.add_argument(
        "--apply",
        action="store_true",
        help="give each user exactly these at KAFKA_BOOTSTRAP, as whoever the environment says",
    )
    either.add_argument(
        "--commands", action="store_true", help="print the commands of Kafka's own that give them"
    )
    either.add_argument(
        "--sql", action="store_true", help="print the script that makes PostgreSQL's roles"
    )
    add_json(parser)
    parser.set_defaults(run=_permissions)


def _permissions(arguments: argparse.Namespace) -> int:
    from dovetail.pipeline.load import load_pipeline
    from dovetail.topology import Topology

    pipeline = load_pipeline(arguments.file)
    output = Output.of(arguments)
    if arguments.sql:
        from dovetail.roles import script

        text = script(pipeline)
        output.show({"sql": text}, lambda _: [plain(text.rstrip())])
        return exits.FINE
    topology = Topology(pipeline)
    needed = {user: permissions_of(topology, service) for service, user in users(topology).items()}
    if arguments.apply:
        return _apply(needed, output)
    if arguments.commands:
        lines = [one.grant(user) for user, all_of in needed.items() for one in all_of]
        output.show(lines, lambda _: [plain(line) for line in lines])
        return exits.FINE
    output.show(_answer(topology), _shown)
    return exits.FINE


def _apply(needed: dict[str, tuple[Permission, ...]], output: Output) -> int:
    from dovetail.settings import Settings
    from dovetail.stream import acls
    from dovetail.stream.topics import admin_of

    changed = acls.apply(admin_of(Settings.of_kafka()), needed)
    answer = {
        user: {"given": sorted(map(str, given)), "taken": sorted(map(str, taken))}
        for user, (given, taken) in changed.items()
    }
    output.show(answer, lambda _: _applied(answer))
    return exits.FINE


def _answer(topology: Topology) -> list[dict[str, Any]]:
    return [
        {
            "service": service,
            "user": user,
            "operation": str(one.operation),
            "resource": str(one.resource),
            "name": one.name,
            "prefixed": one.prefixed,
        }
        for service, user in users(topology).items()
        for one in permissions_of(topology, service)
    ]


def _shown(answer: list[dict[str, Any]]) -> Iterator[RenderableType]:
    rows = (
        (
            one["service"],
            one["user"],
            one["operation"],
            one["resource"],
            f"{one['name']}{'*' if one['prefixed'] else ''}",
        )
        for one in answer
    )
    yield table(("service", "user", "operation", "resource", "name"), rows, "nobody needs any")


def _applied(answer: dict[str, dict[str, list[str]]]) -> Iterator[RenderableType]:
    rows = (
        (user, str(len(done["given"])), ", ".join(done["taken"])) for user, done in answer.items()
    )
    yield table(("user", "given", "taken"), rows, "there is no user")
