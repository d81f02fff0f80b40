"""Puts the connectors' jars into a folder, when the image of the jobs is built: `jars <folder>`."""

from __future__ import annotations

import shutil
import sys

from deploy.local import jars
from deploy.local.home import Home


def main() -> None:
    shutil.copytree(jars.fetch(jars.SPARK, Home.of_checkout()), sys.argv[1])


if __name__ == "__main__":
    main()
