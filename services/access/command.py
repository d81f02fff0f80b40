"""Tokens from a terminal, where the database is at hand and control need not be.

    python -m services.access.command list
    python -m services.access.command create <name> --role <role> [--expires-in 30d]
    python -m services.access.command rotate <id> [--keep-old-for 1h]
    python -m services.access.command revoke <id>

A role is read, inspect, operate, send or admin (docs/api.md).

It reads CONTROL_DATABASE_URL or DATABASE_URL, or the files that they name, so that no password
stands in the list of processes.
"""

from __future__ import annotations

import argparse
import getpass
import os
import sys
from typing import TYPE_CHECKING

from dovetail.errors import DovetailError
from dovetail.pipeline.duration import parse_duration
from dovetail.settings import control_url, database_url
from services.access.roles import GRANTED, Role, Who
from services.access.tokens import Tokens
from services.control.store.changes import Changes
from services.control.store.migrations import migrate
from services.problem import ProblemError
from services.spark.runs import control_engine

if TYPE_CHECKING:
    from collections.abc import Sequence


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="dovetail tokens", description="Manage API tokens.")
    add_arguments(parser)
    try:
        return run(parser.parse_args(arguments))
    except (DovetailError, ProblemError) as error:
        print(f"dovetail tokens: {error}", file=sys.stderr)
        return 1


def add_arguments(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", required=True, metavar="action")
    actions.add_parser("list", help="show all tokens, without their values")
    create = actions.add_parser("create", help="make a token, and print it this once")
    create.add_argument("name")
    create.add_argument("--role", choices=[str(role) for role in GRANTED], required=True)
    create.add_argument("--expires-in", type=_seconds, metavar="30d")
    rotate = actions.add_parser("rotate", help="give a token another value")
    rotate.add_argument("id", type=int)
    rotate.add_argument("--keep-old-for", type=_seconds, default=0.0, metavar="1h")
    revoke = actions.add_parser("revoke", help="end a token")
    revoke.add_argument("id", type=int)


def run(arguments: argparse.Namespace) -> int:
    engine = control_engine(control_url(os.environ) or database_url(os.environ))
    migrate(engine)
    tokens, changes = Tokens(engine), Changes(engine)
    who = Who(f"{getpass.getuser()} at a terminal", Role.ADMIN)
    match arguments.action:
        case "list":
            for row in tokens.all():
                state = "revoked" if row.revoked_at else f"until {row.expires_at or 'revoked'}"
                print(f"{row.id:>4}  {row.role:<8}{row.name:<24}{state}")
        case "create":
            made, token = tokens.create(
                arguments.name, Role(arguments.role), who.name, arguments.expires_in
            )
            changes.note(who, "token.create", token=made.id, name=made.name, role=made.role)
            print(token)
        case "rotate":
            turned, token = tokens.rotate(arguments.id, arguments.keep_old_for)
            changes.note(who, "token.rotate", token=turned.id, name=turned.name)
            print(token)
        case "revoke":
            tokens.revoke(arguments.id)
            changes.note(who, "token.revoke", token=arguments.id)
    return 0


def _seconds(text: str) -> float:
    try:
        return parse_duration(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


if __name__ == "__main__":
    sys.exit(main())
