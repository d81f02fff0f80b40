"""The parent of Spark's Python workers, which has loaded what they need before it forks them.

So a worker starts in no time, and the pages of libraries and compiled kernels are there once, not
once a worker.

What is there by then stays: Spark's daemon collects garbage after every task, which would go
through all of it each time, and write to the pages that are shared.

A worker whose task is ended has nobody to write to any more. That is no failure, and is not told.
"""

from __future__ import annotations

import gc
import os
from typing import TYPE_CHECKING

from pyspark import daemon

import services.spark.enrich_node  # noqa: F401 - for the workers' sake
from services.spark.warming import warm_as_told

if TYPE_CHECKING:
    from socket import socket

_worker = daemon.worker


def _ending_quietly(sock: socket, authenticated: bool) -> int:
    try:
        code: int = _worker(sock, authenticated)
    except BrokenPipeError:
        os._exit(1)
    return code


if __name__ == "__main__":
    daemon.worker = _ending_quietly
    warm_as_told(os.environ)
    gc.collect()
    gc.freeze()
    daemon.manager()
