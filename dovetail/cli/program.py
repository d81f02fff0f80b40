"""Parses, runs a command, and turns its outcome into an exit code."""

from __future__ import annotations

import argparse
import io
import json
import os
import sys
from typing import TYPE_CHECKING

from dovetail.cli import exits
from dovetail.cli.commands import COMMANDS
from dovetail.cli.parsing import DeclinedError
from dovetail.errors import DovetailError, RefusedError

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

_DESCRIPTION = "Enrich a Kafka stream from master data in PostgreSQL; see and control it."
_EPILOG = (
    "exit codes: 0 fine, 1 the answer is no, 2 wrong usage or configuration, 3 not reachable, "
    "4 not allowed, 130 interrupted"
)
_BROKEN_PIPE = 141
"""As of a program that SIGPIPE has ended."""


def main(arguments: Sequence[str] | None = None) -> int:
    words = list(sys.argv[1:] if arguments is None else arguments)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            # Whatever the terminal's encoding: a character that it lacks is no reason to fail.
            stream.reconfigure(errors="backslashreplace")
    try:
        if words[:1] == ["spark"]:
            from dovetail.cli.commands.spark import run_here

            code = run_here(words[1:])
            if code is not None:
                return code
        code = _run(make_parser(words[:1]).parse_args(words))
        sys.stdout.flush()  # while a reader who is gone can still be told from an error
    except KeyboardInterrupt:
        return exits.INTERRUPTED
    except BrokenPipeError:
        # Whoever read it has seen enough. Python would complain when it closes stdout.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return _BROKEN_PIPE
    return code


def make_parser(wanted: Collection[str] = COMMANDS.keys()) -> argparse.ArgumentParser:
    """Know every command by name, and of those that are wanted what they take."""
    parser = argparse.ArgumentParser(
        prog="dovetail", description=_DESCRIPTION, epilog=_EPILOG, allow_abbrev=False
    )
    parser.add_argument("--version", action=_Version, nargs=0, help="print it and end")
    commands = parser.add_subparsers(dest="command", required=True, metavar="command")
    for name, command in COMMANDS.items():
        added = commands.add_parser(
            name, help=command.text, description=command.text, allow_abbrev=False
        )
        if name in wanted:
            command.add_arguments(added)
    return parser


class _Version(argparse.Action):
    """Looks the version up where it is asked for: that takes as long as all else."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object, **__: object) -> None:
        from importlib.metadata import version

        print(f"dovetail {version('dovetail')}")
        parser.exit()


def _run(arguments: argparse.Namespace) -> int:
    try:
        return int(arguments.run(arguments))
    except DovetailError as error:
        code = exits.exit_code(error)
        _tell(error, code, as_json=getattr(arguments, "json", False))
        return code
    except DeclinedError:
        print("nothing was done", file=sys.stderr)
        return exits.NO


def _tell(error: DovetailError, code: int, *, as_json: bool) -> None:
    """Say it on stderr: as the problem that it is for a script, else in words."""
    if as_json:
        problem = error.problem if isinstance(error, RefusedError) else {"detail": str(error)}
        print(json.dumps({**problem, "exit_code": code}), file=sys.stderr)
        return
    from dovetail.cli.output import console_on, plain

    told = plain(f"dovetail: {error}")
    told.stylize("bold red", 0, len("dovetail:"))
    console_on(sys.stderr).print(told, soft_wrap=True)
