"""Options that many commands share, and how their values are read.

A command with actions (`dovetail jobs cancel 17`) takes shared options before and after the action:
`nested` ones have no default of their own, which would undo what stood before.
"""

from __future__ import annotations

import argparse
import sys
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from dovetail.errors import ConfigError
from dovetail.pipeline.duration import parse_duration

if TYPE_CHECKING:
    from collections.abc import Callable

    Actions = argparse._SubParsersAction[argparse.ArgumentParser]  # noqa: SLF001 - it has no other
    Run = Callable[[argparse.Namespace], int]


class DeclinedError(Exception):
    """The user was asked, and said no."""


def add_json(parser: argparse.ArgumentParser, *, nested: bool = False) -> None:
    parser.add_argument(
        "--json",
        action="store_true",
        default=argparse.SUPPRESS if nested else False,
        help="answer in JSON, for scripts",
    )


def add_connection(parser: argparse.ArgumentParser, *, nested: bool = False) -> None:
    """Everything that asks the control service takes these."""
    add_json(parser, nested=nested)
    parser.add_argument(
        "--url",
        default=argparse.SUPPRESS if nested else None,
        help="of the control service (DOVETAIL_URL; else the one of `make run`)",
    )


def add_pipeline(parser: argparse.ArgumentParser, *, nested: bool = False) -> None:
    parser.add_argument(
        "--pipeline",
        metavar="NAME",
        default=argparse.SUPPRESS if nested else None,
        help="the pipeline's name (the one that runs there)",
    )


def add_most(parser: argparse.ArgumentParser, default: int, *, nested: bool = False) -> None:
    parser.add_argument(
        "--most",
        type=int,
        metavar="N",
        default=argparse.SUPPRESS if nested else default,
        help=f"show so many at most ({default})",
    )


def add_link(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--link", type=int, metavar="N", help="which table of a chain, from 1 (the first)"
    )


def add_change(parser: argparse.ArgumentParser) -> None:
    """Whatever changes something takes a reason, which `dovetail changes` shows."""
    parser.add_argument("--why", default="", help="the reason, for those who look later")


def add_yes(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--yes", action="store_true", help="do not ask: I know what it does")


def add_no_wait(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--no-wait", action="store_true", help="start it and do not follow it")


def add_actions(parser: argparse.ArgumentParser) -> Actions:
    """Actions of a command; without one it lists."""
    return parser.add_subparsers(dest="action", metavar="action", title="actions")


def add_action(
    actions: Actions, name: str, text: str, run: Run, *, pipeline: bool = False
) -> argparse.ArgumentParser:
    parser = actions.add_parser(name, help=text, description=text, allow_abbrev=False)
    add_connection(parser, nested=True)
    if pipeline:
        add_pipeline(parser, nested=True)
    parser.set_defaults(run=run)
    return parser


def changed(arguments: argparse.Namespace, /, **body: object) -> dict[str, Any]:
    """The body of a change: with its reason, if there is one, and without what was not given."""
    given = {name: value for name, value in body.items() if value is not None}
    return {**given, "why": arguments.why} if arguments.why else given


def confirm(arguments: argparse.Namespace, consequence: str) -> None:
    """Let the user agree to what cannot be undone."""
    if arguments.yes:
        return
    if not sys.stdin.isatty() or arguments.json:
        raise ConfigError(f"{consequence}: say --yes if that is meant")
    print(f"{consequence}. Go on? [y/N] ", end="", file=sys.stderr, flush=True)
    if sys.stdin.readline().strip().casefold() not in {"y", "yes"}:
        raise DeclinedError


def moment(text: str) -> str:
    """A time (`2026-01-31T08:00`, in UTC unless it says otherwise), or how long ago (`10m`)."""
    try:
        at = datetime.now(UTC) - timedelta(seconds=parse_duration(text))
    except ValueError:
        try:
            at = datetime.fromisoformat(text)
        except ValueError:
            raise argparse.ArgumentTypeError(
                f"'{text}' is no time: write 2026-01-31T08:00:00Z, or 10m for ten minutes ago"
            ) from None
    at = at if at.tzinfo else at.replace(tzinfo=UTC)
    return at.astimezone(UTC).isoformat().replace("+00:00", "Z")


def duration(text: str) -> float:
    try:
        return parse_duration(text)
    except ValueError as problem:
        raise argparse.ArgumentTypeError(str(problem)) from problem
