"""`dovetail me`, `tokens`, `changes`: who may, and who did."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dovetail.cli import exits
from dovetail.cli.client import connect
from dovetail.cli.output import Output, count, fields, moment, plain, table
from dovetail.cli.parsing import (
    add_action,
    add_actions,
    add_connection,
    add_most,
    add_pipeline,
    add_yes,
    confirm,
    duration,
)
from dovetail.cli.parsing import moment as time_given
from dovetail.errors import ConfigError

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator

    from rich.console import RenderableType

_ROLES = ("read", "inspect", "operate", "send", "admin")


def add_me(parser: argparse.ArgumentParser) -> None:
    add_connection(parser)
    parser.set_defaults(run=_me)


def add_changes(parser: argparse.ArgumentParser) -> None:
    add_connection(parser)
    add_pipeline(parser)
    add_most(parser, 20)
    parser.add_argument("--by", metavar="NAME", help="only of this token's name")
    parser.add_argument("--action", help="only these, e.g. pipeline.update, access.refused")
    parser.add_argument("--since", type=time_given, metavar="TIME", help="a time, or 10m ago")
    parser.set_defaults(run=_changes)


def add_tokens(parser: argparse.ArgumentParser) -> None:
    add_connection(parser)
    parser.set_defaults(run=_tokens)
    actions = add_actions(parser)
    create = add_action(actions, "create", "make one; it is shown this once", _create)
    create.add_argument("name", help="of whoever will use it")
    create.add_argument("role", choices=_ROLES)
    create.add_argument(
        "--expires-in", type=duration, metavar="TIME", help="e.g. 30d; never unless given"
    )
    _add_save(create)
    rotate = add_action(actions, "rotate", "replace one by another of the same name", _rotate)
    rotate.add_argument("id", type=int)
    rotate.add_argument(
        "--keep-old-for", type=duration, default=0.0, metavar="TIME", help="e.g. 1h (not at all)"
    )
    _add_save(rotate)
    revoke = add_action(actions, "revoke", "let it hold no longer", _revoke)
    revoke.add_argument("id", type=int)
    add_yes(revoke)


def _add_save(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--save",
        type=Path,
        metavar="FILE",
        help="write the token to a new file that only you may read, and do not show it",
    )


def _me(arguments: argparse.Namespace) -> int:
    client = connect(arguments)
    answer = client.get("/v1/me")
    Output.of(arguments).show(answer, lambda _: [fields({"at": client.url, **answer})])
    return exits.FINE


def _changes(arguments: argparse.Namespace) -> int:
    answer = connect(arguments).get(
        "/v1/changes",
        by=arguments.by,
        action=arguments.action,
        pipeline=arguments.pipeline,
        since=arguments.since,
        most=arguments.most,
    )
    Output.of(arguments).show(answer, _changes_shown)
    return exits.FINE


def _changes_shown(changes: list[dict[str, Any]]) -> Iterator[RenderableType]:
    rows = (
        (
            moment(one["at"]),
            one["by"],
            one["role"],
            one["address"],
            one["action"],
            one["pipeline"],
            _detail(one["detail"]),
            one["why"],
        )
        for one in changes
    )
    headings = ("at (UTC)", "by", "role", "from", "action", "pipeline", "detail", "why")
    yield table(headings, rows, "nobody has changed anything")


def _detail(detail: dict[str, Any]) -> str:
    said = {name: value for name, value in detail.items() if value not in (None, "", [])}
    return json.dumps(said, ensure_ascii=False) if said else ""


def _tokens(arguments: argparse.Namespace) -> int:
    Output.of(arguments).show(connect(arguments).get("/v1/tokens"), _tokens_shown)
    return exits.FINE


def _tokens_shown(tokens: list[dict[str, Any]]) -> Iterator[RenderableType]:
    rows = (
        (
            count(token["id"]),
            token["name"],
            token["role"],
            f"{moment(token['created_at'])} by {token['created_by']}",
            moment(token["expires_at"]),
            moment(token["last_used_at"]),
            moment(token["revoked_at"]),
        )
        for token in tokens
    )
    headings = ("id", "name", "role", "created (UTC)", "expires", "last used", "revoked")
    yield table(headings, rows, "there is no token")


def _create(arguments: argparse.Namespace) -> int:
    body = {"name": arguments.name, "role": arguments.role}
    if arguments.expires_in is not None:
        body["expires_in_s"] = round(arguments.expires_in)
    return _made(arguments, "/v1/tokens", body)


def _rotate(arguments: argparse.Namespace) -> int:
    body = {"keep_old_for_s": round(arguments.keep_old_for)}
    return _made(arguments, f"/v1/tokens/{arguments.id}/rotate", body)


def _made(arguments: argparse.Namespace, path: str, body: dict[str, Any]) -> int:
    """Ask for a token, which can be had only once: the file for it is there before."""
    client, output = connect(arguments), Output.of(arguments)
    if arguments.save is None:
        output.show(client.post(path, body), _made_shown)
        return exits.FINE
    try:
        file = os.open(arguments.save, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except OSError as error:
        raise ConfigError(f"{arguments.save} cannot be made: {error.strerror}") from None
    try:
        with os.fdopen(file, "w", encoding="utf-8") as written:
            answer = client.post(path, body)
            written.write(f"{answer.pop('token')}\n")
    except BaseException:
        arguments.save.unlink()
        raise
    output.show(answer, lambda _: [*_tokens_shown([answer]), plain(f"saved: {arguments.save}")])
    return exits.FINE


def _made_shown(answer: dict[str, Any]) -> Iterator[RenderableType]:
    yield from _tokens_shown([answer])
    yield plain(f"\n{answer['token']}\n\nIt is not shown again.")


def _revoke(arguments: argparse.Namespace) -> int:
    confirm(arguments, f"whoever uses token {arguments.id} will be refused")
    connect(arguments).delete(f"/v1/tokens/{arguments.id}")
    Output.of(arguments).show(
        {"revoked": arguments.id}, lambda _: [plain(f"token {arguments.id} is revoked")]
    )
    return exits.FINE
