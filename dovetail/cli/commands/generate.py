"""`dovetail generate`: the benchmark's stream."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dovetail.cli.parsing import add_json
from dovetail.demo import generate
from dovetail.settings import Settings

if TYPE_CHECKING:
    import argparse


def add_generate(parser: argparse.ArgumentParser) -> None:
    generate.add_arguments(parser)
    add_json(parser)
    parser.set_defaults(run=_generate)


def _generate(arguments: argparse.Namespace) -> int:
    settings = Settings.of_kafka()
    return generate.run(arguments, settings.client(), as_json=arguments.json)
