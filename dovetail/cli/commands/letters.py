"""`dovetail dead-letters` and `dovetail parked`: events that were set aside, and their way back."""

from __future__ import annotations

import argparse
import base64
import sys
from typing import TYPE_CHECKING, Any

from dovetail.cli import exits
from dovetail.cli.client import connect
from dovetail.cli.following import conclude
from dovetail.cli.output import Figure, Output, fields, moment, plain, size, table
from dovetail.cli.parsing import (
    add_action,
    add_actions,
    add_change,
    add_connection,
    add_most,
    add_no_wait,
    add_pipeline,
    add_yes,
    changed,
    confirm,
)
from dovetail.cli.parsing import moment as time_given
from dovetail.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rich.console import RenderableType

_FILTERS = ("reason", "origin", "since", "until")


def add_dead_letters(parser: argparse.ArgumentParser) -> None:
    _add(parser)


def add_parked(parser: argparse.ArgumentParser) -> None:
    _add(parser)


def _add(parser: argparse.ArgumentParser) -> None:
    add_connection(parser)
    add_pipeline(parser)
    _add_filters(parser)
    add_most(parser, 20)
    parser.add_argument("--before", type=int, metavar="ID", help="only older ones: the next page")
    parser.set_defaults(run=_list)
    actions = add_actions(parser)
    show = add_action(actions, "show", "one, with all its bytes", _show, pipeline=True)
    show.add_argument("id", type=int)
    show.add_argument("--raw", action="store_true", help="only its bytes, as they came")
    replay = add_action(
        actions, "replay", "send them back to the source, after a fix", _replay, pipeline=True
    )
    replay.add_argument("id", type=int, nargs="*", help="these; else all that the options name")
    _add_filters(replay, nested=True)
    replay.add_argument(
        "--all", action="store_true", help="every letter there is, if no option narrows it"
    )
    replay.add_argument("--force", action="store_true", help="one that was replayed before, again")
    add_change(replay)
    add_no_wait(replay)
    add_yes(replay)


def _add_filters(parser: argparse.ArgumentParser, *, nested: bool = False) -> None:
    default = argparse.SUPPRESS if nested else None
    add = parser.add_argument
    add("--reason", default=default, help="only with this reason, e.g. wrong-type")
    add("--origin", default=default, help="only of this topic/partition/offset or its beginning")
    add("--since", default=default, type=time_given, metavar="TIME", help="a time, or 10m ago")
    add("--until", default=default, type=time_given, metavar="TIME", help="a time, or 10m ago")


def _list(arguments: argparse.Namespace) -> int:
    client = connect(arguments)
    answer = client.get(
        f"{client.pipeline(arguments.pipeline)}/{arguments.command}",
        **{name: getattr(arguments, name) for name in _FILTERS},
        before=arguments.before,
        most=arguments.most,
    )
    Output.of(arguments).show(answer, _list_shown)
    return exits.FINE


def _list_shown(answer: dict[str, Any]) -> Iterator[RenderableType]:
    rows = (
        (
            Figure(letter["id"]),
            moment(letter["at"]),
            letter["origin"],
            letter["reason"],
            letter["detail"],
            size(letter["bytes"]),
            "yes" if letter["replayed"] else "",
            letter["preview"],
        )
        for letter in answer["letters"]
    )
    headings = ("id", "at (UTC)", "origin", "reason", "detail", "size", "replayed", "preview")
    yield table(headings, rows, "there is none")
    more = f"; more: --before {answer['next']}" if answer["next"] is not None else ""
    yield plain(f"{len(answer['letters']):,} of {answer['total']:,}{more}")


def _show(arguments: argparse.Namespace) -> int:
    client = connect(arguments)
    answer = client.get(f"{client.pipeline(arguments.pipeline)}/{arguments.command}/{arguments.id}")
    if arguments.raw and not arguments.json:
        sys.stdout.buffer.write(base64.b64decode(answer["base64"]))
    else:
        Output.of(arguments).show(answer, _letter_shown)
    return exits.FINE


def _letter_shown(letter: dict[str, Any]) -> Iterator[RenderableType]:
    replayed = letter["replayed"]
    yield fields(
        {
            "id": str(letter["id"]),
            "at": moment(letter["at"]),
            "origin": letter["origin"],
            "reason": letter["reason"],
            "detail": letter["detail"],
            "bytes": letter["bytes"],
            "replayed": f"{moment(replayed['at'])} by {replayed['by']}, as {replayed['to']}"
            if replayed
            else "no",
        }
    )
    text = letter["text"]
    yield plain(f"\n{text}" if text is not None else "\nit is not UTF-8: --raw writes its bytes")


def _replay(arguments: argparse.Namespace) -> int:
    if len(arguments.id) == 1:
        return _replay_one(arguments)
    chosen = {name: getattr(arguments, name) for name in _FILTERS if getattr(arguments, name)}
    if arguments.force:
        raise ConfigError("--force is for one letter: name its id")
    if arguments.id and chosen:
        raise ConfigError("name ids, or options that choose letters, not both")
    if not (arguments.id or chosen or arguments.all):
        raise ConfigError(
            "which? Name ids, choose by --reason, --origin, --since or --until, or say --all"
        )
    these = f"{len(arguments.id):,} letters" if arguments.id else "every letter that is chosen"
    confirm(arguments, f"{these} will be sent to the source again")
    client = connect(arguments)
    body = changed(arguments, **chosen, ids=arguments.id or None, confirm=True)
    path = f"{client.pipeline(arguments.pipeline)}/{arguments.command}/replay"
    return conclude(client.post(path, body), arguments, client, Output.of(arguments))


def _replay_one(arguments: argparse.Namespace) -> int:
    client = connect(arguments)
    path = f"{client.pipeline(arguments.pipeline)}/{arguments.command}/{arguments.id[0]}/replay"
    answer = client.post(path, changed(arguments, force=arguments.force))
    Output.of(arguments).show(
        answer, lambda _: [plain(f"{answer['origin']} is sent again, as {answer['to']}")]
    )
    return exits.FINE
