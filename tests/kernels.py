"""Compiles what both halves of `make test` need, once, before each would for itself."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import yaml

from deploy.local.home import Home
from deploy.local.kernels import compiling
from tests.e2e import shop


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="dovetail-kernels-") as folder:
        home = Home(Path(folder), Home.of_checkout().folder)
        for shape in (shop.INT, shop.COMPOSITE):
            file = home.run / "pipeline.yaml"
            file.write_text(yaml.safe_dump({"name": "kernels", **shape.spec("inner")}))
            with compiling(home, file, print) as wait:
                wait()


if __name__ == "__main__":
    sys.exit(main())
