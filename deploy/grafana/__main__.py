"""`make grafana`: write the dashboards' JSON, which Grafana mounts."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from deploy.grafana import join, node, overview, quality, spark
from deploy.local.home import CHECKOUT

if TYPE_CHECKING:
    from deploy.grafana.model import Dashboard

ALL = tuple(one.DASHBOARD for one in (overview, node, join, spark, quality))
FOLDER = CHECKOUT / "deploy/grafana/dashboards"


def main() -> None:
    for dashboard in ALL:
        (FOLDER / f"{dashboard.name}.json").write_text(written(dashboard))


def written(dashboard: Dashboard) -> str:
    return json.dumps(dashboard.json(), indent=1, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    main()
