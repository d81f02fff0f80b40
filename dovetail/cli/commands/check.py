"""`dovetail check`: whether a pipeline's file is right, and fits the master data that is there."""

from __future__ import annotations

import os
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dovetail.cli import exits
from dovetail.cli.parsing import add_json
from dovetail.errors import ConfigError, MasterDataError
from dovetail.pipeline.check import Level, check_command, examine
from dovetail.pipeline.problem import InvalidPipelineError
from dovetail.pipeline.summary import summary

if TYPE_CHECKING:
    import argparse


def add_check(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", type=Path, help="the pipeline's file")
    parser.add_argument(
        "--database", metavar="URL", help="also check the master table there (DATABASE_URL)"
    )
    add_json(parser)
    parser.set_defaults(run=_check)


def _check(arguments: argparse.Namespace) -> int:
    database = arguments.database or _given()
    if not arguments.json:
        return check_command(arguments.file, database, sys.stdout)
    from dovetail.cli.output import Output

    answer = _answer(arguments.file, database)
    Output.of(arguments).json(answer)
    return exits.FINE if answer["valid"] else exits.NO


def _given() -> str | None:
    from dovetail.settings import database_url

    named = os.environ.get("DATABASE_URL") or os.environ.get("DATABASE_URL_FILE")
    return database_url(os.environ) if named else None


def _answer(file: Path, database: str | None) -> dict[str, Any]:
    """Give `problems` of the file and `findings` of the tables, as the API's validate does."""
    try:
        pipeline, findings = examine(file, database)
    except InvalidPipelineError as error:
        return {"valid": False, "problems": [asdict(fault) for fault in error.faults]}
    except (ConfigError, MasterDataError) as error:
        return {"valid": False, "problems": [{"line": None, "field": "", "text": str(error)}]}
    return {
        "valid": not any(finding.level is Level.ERROR for finding in findings),
        "summary": summary(pipeline),
        "findings": [asdict(finding) for finding in findings],
        "problems": [],
    }
