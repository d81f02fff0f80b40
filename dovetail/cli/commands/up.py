"""`dovetail up`: the whole pipeline on this machine."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import Console

from deploy.local import run as stack
from dovetail.cli import exits
from dovetail.cli.commands.oracle import audited, verified
from dovetail.cli.output import Output
from dovetail.cli.parsing import add_json

if TYPE_CHECKING:
    import argparse


def add_up(parser: argparse.ArgumentParser) -> None:
    stack.add_arguments(parser)
    add_json(parser)
    parser.set_defaults(run=_up)


def _up(arguments: argparse.Namespace) -> int:
    """Run until it is told to end; with --json only the outcome is printed to stdout."""
    console = Console(highlight=False, soft_wrap=True, stderr=arguments.json)
    outcome = stack.run(arguments, console)
    if arguments.json:
        verdict = outcome.verdict and verified(outcome.verdict)
        Output.of(arguments).json({"audit": audited(outcome.audit), "verify": verdict})
    else:
        stack.tell(outcome, console.print)
    return exits.FINE if outcome.fine else exits.NO
