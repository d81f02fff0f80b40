"""The demo's master data, loaded into DATABASE_URL unless it is there: `catalogue [rows]`."""

from __future__ import annotations

import os
import sys

from dovetail.demo.catalogue import ROWS, load_catalogue
from dovetail.errors import DovetailError
from dovetail.settings import database_url


def main() -> int:
    rows = sys.argv[1] if len(sys.argv) > 1 else str(ROWS)
    if not rows.isdecimal():
        print(f"catalogue: {rows!r} is not a number of rows", file=sys.stderr)
        return 2
    try:
        load_catalogue(database_url(os.environ), int(rows))
    except DovetailError as error:
        print(f"catalogue: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
