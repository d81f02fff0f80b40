"""`dovetail size`: the cost models' answer."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dovetail.join.cost import command

if TYPE_CHECKING:
    import argparse


def add_size(parser: argparse.ArgumentParser) -> None:
    command.add_arguments(parser)
    parser.set_defaults(run=command.run)
