"""The parent of Spark's Python workers, which has loaded what they need before it forks them.

So a worker starts in no time, and the pages of libraries and compiled kernels are there once, not
once a worker.

What is there by then stays: Spark's daemon collects garbage after every task, which would go
through all of it each time, and write to the pages that are shared.
"""

from __future__ import annotations

import gc
import os

from pyspark.daemon import manager

import services.spark.enrich_node  # noqa: F401 - for the workers' sake
from services.spark.warming import warm_as_told

if __name__ == "__main__":
    warm_as_told(os.environ)
    gc.collect()
    gc.freeze()
    manager()
