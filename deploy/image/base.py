"""Makes a base for the images from Debian's archive, where none can be fetched from a registry.

    python -m deploy.image.base          # dovetail-base:bookworm
    make image BUILD='--build-arg PYTHON_IMAGE=localhost/dovetail-base:bookworm'

Debian 12 as debootstrap (as root) sets it up, its Python 3.11, and pip where python's own images
have it: below /usr/local.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

from deploy.image.build import ENGINES, environment, find

NAME = "dovetail-base:bookworm"
_RELEASE = "bookworm"
_PIP = ("--require-hashes", "--only-binary", ":all:", "-r", Path(__file__).with_name("base.lock"))
_RECIPE = """\
FROM scratch
ADD root.tar.gz /
COPY pip-*.whl /tmp/
RUN rm /usr/lib/python3.11/EXTERNALLY-MANAGED \\
    && PYTHONPATH=$(echo /tmp/pip-*.whl) python3 -m pip install --no-index /tmp/pip-*.whl \\
    && rm /tmp/pip-*.whl \\
    && ln -s /usr/bin/python3 /usr/local/bin/python
ENV PATH=/usr/local/bin:/usr/local/sbin:/usr/sbin:/usr/bin:/sbin:/bin
"""


def main() -> int:
    engine = find()
    if engine is None:
        return 1
    make(engine)
    return 0


def make(engine: str) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        root, context = folder / "root", folder / "context"
        context.mkdir()
        parts = "--include=ca-certificates,python3"
        _run("debootstrap", "--variant=minbase", parts, _RELEASE, root)
        # Neither packages nor lists of them: they are fetched anew where they are wanted.
        left_out = ("--exclude=./var/cache/apt/*", "--exclude=./var/lib/apt/lists/*")
        _run("tar", *left_out, "-C", root, "-czf", context / "root.tar.gz", ".")
        _run(sys.executable, "-m", "pip", "download", *_PIP, "-q", "-d", context)
        (context / "Dockerfile").write_text(_RECIPE)
        _run(engine, "build", *ENGINES[engine], "-t", NAME, context)


def _run(*words: str | Path) -> None:
    subprocess.run(words, env=environment(), check=True)


if __name__ == "__main__":
    sys.exit(main())
