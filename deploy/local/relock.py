"""Writes a bundle's lock anew from its pom, for other versions. Needs Maven.

python -m deploy.local.relock kafka|spark
"""

from __future__ import annotations

import hashlib
import subprocess
import sys
import tempfile
from pathlib import Path

from deploy.local.home import Home
from deploy.local.jars import KAFKA, SPARK


def main() -> None:
    bundle = {"kafka": KAFKA, "spark": SPARK}[sys.argv[1]]
    with tempfile.TemporaryDirectory(dir=Home.of_checkout().cache) as scratch:
        folder = Path(scratch) / "jars"
        command = [
            "mvn",
            "--batch-mode",
            f"--file={bundle.pom}",
            "dependency:copy-dependencies",
            "-DincludeScope=runtime",
            "-Dmdep.useRepositoryLayout=true",
            f"-DoutputDirectory={folder}",
            f"-Dmaven.repo.local={scratch}/m2",
        ]
        subprocess.run(command, check=True)
        jars = sorted(folder.rglob("*.jar"), key=lambda jar: jar.name.lower())
        bundle.lock_file.write_text("".join(_row(folder, jar) for jar in jars))


def _row(folder: Path, jar: Path) -> str:
    *group, artifact, version, _ = jar.relative_to(folder).parts
    content = jar.read_bytes()
    coordinate = f"{'.'.join(group)}:{artifact}:{version}"
    return f"{hashlib.sha256(content).hexdigest()} {len(content):>9} {coordinate}\n"


if __name__ == "__main__":
    main()
