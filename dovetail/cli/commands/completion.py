"""`dovetail completion`: a script that a shell reads once."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dovetail.cli import exits

if TYPE_CHECKING:
    import argparse

_SHELLS = ("bash", "zsh", "fish")


def add_completion(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("shell", choices=_SHELLS)
    parser.set_defaults(run=_completion)


def _completion(arguments: argparse.Namespace) -> int:
    import shtab

    from dovetail.cli.program import make_parser

    print(shtab.complete(make_parser(), arguments.shell))
    return exits.FINE
