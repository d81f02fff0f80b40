"""`make sbom`: write what the images hold, from the packages that are installed here.

    python -m deploy.sbom --into folder [--extra spark]

`bom.json` is CycloneDX 1.6, `licences.md` a table for people. A package that does not say its
licence is named on stderr; it stands in the table as unknown.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from deploy.local import jars
from deploy.sbom.cyclonedx import bill
from deploy.sbom.installed import packages
from dovetail.errors import DovetailError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from deploy.sbom.installed import Package

_SPARK = "spark"
_UNKNOWN = "unknown"


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m deploy.sbom", description=__doc__)
    parser.add_argument("--into", type=Path, required=True, help="a folder, made if need be")
    parser.add_argument("--extra", action="append", default=[], help="of the package: spark")
    args = parser.parse_args(arguments)
    try:
        found = packages(extras=args.extra)
    except DovetailError as error:
        print(error, file=sys.stderr)
        return 1
    added = jars.SPARK.lock() if _SPARK in args.extra else []
    args.into.mkdir(parents=True, exist_ok=True)
    (args.into / "bom.json").write_text(json.dumps(bill(found, added), indent=1) + "\n")
    (args.into / "licences.md").write_text(licence_list(list(found.values())))
    for one in found.values():
        if not one.licence:
            print(f"{one.name} {one.version} does not say its licence", file=sys.stderr)
    print(f"{len(found)} packages and {len(added)} jars: {args.into}/bom.json, licences.md")
    return 0


def licence_list(found: Sequence[Package]) -> str:
    rows = (
        f"| {one.name} | {one.version} | {one.licence or _UNKNOWN} | {one.homepage} |"
        for one in found
    )
    head = ("# Licences", "", "| package | version | licence | from |", "| --- | --- | --- | --- |")
    return "\n".join((*head, *rows)) + "\n"


if __name__ == "__main__":
    sys.exit(main())
