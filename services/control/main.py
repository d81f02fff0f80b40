from __future__ import annotations

import sys

import uvicorn

from dovetail.errors import DovetailError
from dovetail.pipeline.load import load_pipeline
from dovetail.service import logs
from dovetail.service.stage import exit_code
from dovetail.settings import Settings
from dovetail.stream.topics import ensure_topics
from dovetail.topology import CONTROL, Topology
from services.control.app import create_app
from services.control.monitor import Monitor
from services.control.plans import plan_routes
from services.control.runs import RunsCollector, run_routes
from services.spark.runs import control_engine


def main() -> int:
    try:
        settings = Settings.from_environment()
        logs.configure(service=CONTROL, node=settings.node)
        pipeline = load_pipeline(settings.pipeline)
        topology = Topology(pipeline)
        ensure_topics(settings, topology.topics())
        engine = control_engine(settings.database_url)
    except DovetailError as error:
        print(f"{CONTROL}: {error}", file=sys.stderr)
        return exit_code(error)
    runs = RunsCollector(pipeline.name, engine)
    app = create_app(pipeline, Monitor(settings, topology), [runs])
    app.include_router(run_routes(pipeline.name, engine))
    app.include_router(plan_routes(pipeline, settings.database_url))
    uvicorn.run(app, host=settings.host, port=settings.port, log_config=None, access_log=False)
    return 0


if __name__ == "__main__":
    sys.exit(main())
