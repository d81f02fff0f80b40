"""Compiles the kernels of the services and of the demo's generator, in two processes.

python -m deploy.local.warm <pipeline file> [door]
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np

from deploy.local.processes import guarded
from dovetail.demo.generate import GenerateSettings
from dovetail.pipeline.load import load_pipeline
from services.warm import warm_door, warm_join

DOOR = "door"
"""What the other kernels do not need: the generator's, and those of events that come by HTTP."""


def main() -> int:
    file, *part = sys.argv[1:]
    if part == [DOOR]:
        GenerateSettings().events().batch(1, np.zeros(10, np.int64))
        warm_door()
        return 0
    door = subprocess.Popen(guarded([sys.executable, "-m", "deploy.local.warm", file, DOOR]))
    warm_join(load_pipeline(Path(file)))
    return door.wait()


if __name__ == "__main__":
    sys.exit(main())
