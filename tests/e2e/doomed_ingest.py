"""What takes events by HTTP and kills itself in a request's transaction:

`doomed_ingest.py sent|committed PROCESS`

sent       the events and the marker are at the broker, and the commit is about to be asked for
committed  the broker has committed, and the answer is about to be given

The process is `ingest`, a fused `node-0`, or `enrich`, where Spark runs the pipeline.
"""

from __future__ import annotations

import os
import signal
import sys
import threading

from dovetail.service.stage import run_stage
from dovetail.stream.rdkafka import Producer
from dovetail.topology import ENRICH, INGEST, NODE

commit = Producer.commit


def die(producer, timeout_s=None):
    of_a_request = threading.current_thread().name == "inbox"
    if of_a_request and sys.argv[1] == "sent":
        producer.flush(30)
    else:
        commit(producer, timeout_s)
    if of_a_request:
        os.kill(os.getpid(), signal.SIGKILL)


def run():
    if sys.argv[2] == ENRICH:
        from services.spark.__main__ import main

        return main([ENRICH])
    if sys.argv[2] == INGEST:
        from services.ingest.main import build
        from services.ingest.settings import step

        return run_stage(INGEST, step, build)
    from services.node import main as node

    return run_stage(NODE, node.step, node.build)


if __name__ == "__main__":
    Producer.commit = die
    sys.exit(run())
