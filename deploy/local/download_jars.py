"""Downloads jars with the package jgo, which `jars` puts on this program's path.

python download_jars.py <folder> <group:artifact:version>…
"""

import importlib
import sys
import tempfile
from pathlib import Path


def main() -> None:
    folder = Path(sys.argv[1])
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=".jgo-") as repository:
        context = importlib.import_module("jgo.maven").MavenContext(
            repo_cache=Path(repository), timeout=60
        )
        for coordinate in sys.argv[2:]:
            group, artifact, version = coordinate.split(":")
            jar = context.project(group, artifact).at_version(version).artifact().resolve()
            jar.rename(folder / jar.name)


if __name__ == "__main__":
    main()
