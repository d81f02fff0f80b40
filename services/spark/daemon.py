"""The parent of Spark's Python workers, which has imported what they need before it forks them.

So a worker starts in no time, and the pages of libraries and compiled kernels are there once, not
once a worker.
"""

from __future__ import annotations

from pyspark.daemon import manager

import services.spark.enrich_node  # noqa: F401 - for the workers' sake

if __name__ == "__main__":
    manager()
