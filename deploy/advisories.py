"""`make advisories`, and a part of `make check`: ask for advisories on all that is pinned.

    python -m deploy.advisories [--strict]

pip-audit asks the package index for the advisories on every line of constraints.txt. What it finds
is named, and the check goes on: an advisory is published on any day, and is no fault of a change.
With --strict a known vulnerability ends it with 1, and so does a package of which nothing could be
learned, as of all of them where the index is a mirror that keeps no advisories, or is not reached.
Jars are not looked at: the index knows nothing of them.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from deploy.local.home import CHECKOUT
from dovetail.errors import DovetailError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

PINS = CHECKOUT / "constraints.txt"
_NAMED = 5
"""Packages that are named where nothing was learned of many."""


@dataclass(frozen=True)
class Found:
    vulnerable: list[str]
    unknown: list[str]
    """Packages of which nothing was learned."""
    why: str
    audited: int

    @classmethod
    def of(cls, report: Mapping[str, Any]) -> Found:
        """Read pip-audit's report."""
        vulnerable, unknown, why = [], [], ""
        packages = report["dependencies"]
        for package in packages:
            if reason := package.get("skip_reason"):
                unknown.append(package["name"])
                why = why or reason
            for flaw in package.get("vulns", ()):
                names = ", ".join([flaw["id"], *flaw["aliases"]])
                cure = " or ".join(flaw["fix_versions"])
                vulnerable.append(
                    f"{package['name']} {package['version']}: {names}; "
                    + (f"mended in {cure}" if cure else "there is no version without it")
                )
        return cls(vulnerable, unknown, why, len(packages) - len(unknown))


def asked(*whom: str) -> Found:
    """Ask about every pin; nothing is known of any if nobody answers. `whom` is pip-audit's."""
    what = ["--requirement", str(PINS), "--no-deps", "--disable-pip"]
    how = ["--format=json", "--progress-spinner=off"]
    done = subprocess.run(
        [sys.executable, "-m", "pip_audit", *what, *how, *whom],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.stdout.strip():
        return Found.of(json.loads(done.stdout))
    lines = done.stderr.strip().splitlines() or [f"pip-audit ended with {done.returncode}"]
    pins = [line.partition("==")[0] for line in PINS.read_text().splitlines() if "==" in line]
    if not pins:
        raise DovetailError(f"{PINS} pins nothing")
    return Found([], pins, lines[-1], 0)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m deploy.advisories", description=__doc__)
    parser.add_argument("--strict", action="store_true", help="fail unless all are known and fine")
    strict = parser.parse_args(arguments).strict
    return judge(asked(), strict=strict)


def judge(found: Found, *, strict: bool) -> int:
    for flaw in found.vulnerable:
        print(f"vulnerable: {flaw}", file=sys.stderr)
    if found.unknown:
        named = ", ".join(found.unknown[:_NAMED]) + (", …" if len(found.unknown) > _NAMED else "")
        print(
            f"not audited: {len(found.unknown)} packages ({named}), as the index says nothing of "
            f"them: {found.why}",
            file=sys.stderr,
        )
    print(f"{found.audited} packages audited, {len(found.vulnerable)} known vulnerabilities")
    return 1 if strict and (found.vulnerable or found.unknown) else 0


if __name__ == "__main__":
    sys.exit(main())
