"""`make lock`: write the *.lock files beside this one, which images are installed from.

    build.lock       what builds packages and the bill of materials, and is left behind
    services.lock    what the services need
    spark.lock       what the jobs on Spark need beside that
    jgo.lock         what fetches jars where there is no Maven (deploy/local/jars.py)
    base.lock        the pip of a base from Debian's archive (deploy/image/base.py)

Versions are those of constraints.txt; with each stand the hashes of all files that were published
of it, for any machine. uv asks the package index for them.
"""

from __future__ import annotations

import os
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

from deploy.local import install
from deploy.local.home import CHECKOUT

HERE = Path(__file__).parent
LOCKS = ("build", "services", "spark", "jgo", "base")
_TOOLS = "hatchling\npackaging\nsetuptools\n"
_JGO = "jgo==3.2.0\n"
_PIP = "pip==24.0\n"
_COMPILE = (
    *("uv", "pip", "compile", "--quiet", "--universal", "--generate-hashes", "--no-header"),
    *("--no-annotate", "--python-version", "3.11", "-c", "constraints.txt"),
)


def main() -> int:
    build, services = _compiled("-", given=_TOOLS), _compiled("pyproject.toml")
    all_of_it = _compiled("pyproject.toml", "--extra", "spark")
    spark = {name: text for name, text in all_of_it.items() if services.get(name) != text}
    jgo, base = _compiled("-", given=_JGO), _compiled("-", given=_PIP)
    for name, pinned in zip(LOCKS, (build, services, spark, jgo, base), strict=True):
        (HERE / f"{name}.lock").write_text("".join(pinned.values()))
    return 0


def read(text: str) -> dict[str, str]:
    """What is pinned, by name: each with the lines of its hashes."""
    lines = text.splitlines(keepends=True)
    starts = [number for number, line in enumerate(lines) if not line.startswith(" ")]
    return {
        lines[start].partition("==")[0]: "".join(lines[start:end])
        for start, end in pairwise([*starts, len(lines)])
    }


def _compiled(*words: str, given: str = "") -> dict[str, str]:
    done = subprocess.run(
        [*_COMPILE, *words],
        input=given,
        cwd=CHECKOUT,
        # uv reads none of pip's settings, where a mirror may be named.
        env=install.environment(install.pip_settings(), os.environ),
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return read(done.stdout)


if __name__ == "__main__":
    sys.exit(main())
