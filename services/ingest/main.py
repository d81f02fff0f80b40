from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from dovetail.service.stage import Context, run_stage
from dovetail.topology import INGEST
from services.ingest.handler import IngestHandler
from services.ingest.settings import step

if TYPE_CHECKING:
    from dovetail.stream.loop import Handler


def build(context: Context) -> Handler:
    return IngestHandler(context.pipeline, context.topology)


if __name__ == "__main__":
    sys.exit(run_stage(INGEST, step, build))
