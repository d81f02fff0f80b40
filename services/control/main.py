from __future__ import annotations

import sys

import uvicorn

from dovetail.errors import DovetailError
from dovetail.service import logs, tls
from dovetail.service.stage import end_in_order, exit_code
from dovetail.settings import Settings
from dovetail.stream.acls import settle_topics
from dovetail.topology import CONTROL
from services.access.settings import AccessSettings
from services.control.app import create_app
from services.control.hub import Hub
from services.control.metrics import PlansCollector, RunsCollector
from services.control.store.grants import let_gates_in, require_tables
from services.control.store.migrations import migrate
from services.spark.runs import control_engine


def main() -> int:
    try:
        settings = Settings.from_environment()
        logs.configure(service=CONTROL, node=settings.node)
        access = AccessSettings.from_environment(settings.host)
        engine = control_engine(settings.control_database, pooled=True)
        migrate(engine)
        require_tables(engine)
        let_gates_in(engine)
        certificate = tls.served()
        hub = Hub(settings, access, engine)
        stored = [RunsCollector(hub.name, engine), PlansCollector(hub.name, engine)]
        app = create_app(hub, stored)
        # Now, and not in a thread that nobody hears.
        settle_topics(settings, hub.topology, CONTROL)
        hub.begin()
    except DovetailError as error:
        print(f"{CONTROL}: {error}", file=sys.stderr)
        return exit_code(error)
    end_in_order()
    uvicorn.run(
        app,
        host=settings.host,
        port=settings.port,
        log_config=None,
        access_log=False,
        proxy_headers=False,
        **certificate,
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
