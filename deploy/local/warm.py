"""Compiles the kernels of the services and of the demo's generator."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

from dovetail.demo.generate import GenerateSettings
from dovetail.pipeline.load import load_pipeline
from services.warm import warm

if __name__ == "__main__":
    warm(load_pipeline(Path(sys.argv[1])))
    GenerateSettings().events().batch(1, np.zeros(10, np.int64))
