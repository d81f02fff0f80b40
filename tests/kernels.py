"""Compiles what both halves of `make test` need, once, before each would for itself."""

from __future__ import annotations

import tempfile
from pathlib import Path

import yaml

from deploy.local.home import Home
from deploy.local.kernels import compiling
from tests.e2e import shop


def compile_for_tests(home: Home) -> None:
    for shape in (shop.INT, shop.COMPOSITE):
        file = home.run / "pipeline.yaml"
        file.write_text(yaml.safe_dump({"name": "kernels", **shape.spec("inner")}))
        with compiling(home, file, print) as wait:
            wait()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory(prefix="dovetail-kernels-") as folder:
        compile_for_tests(Home(Path(folder), Home.of_checkout().folder))
