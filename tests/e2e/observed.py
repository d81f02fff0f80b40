"""A real Prometheus over a running pipeline, asked what dashboards, rules and alerts ask."""

from __future__ import annotations

import math
import time
from contextlib import contextmanager

import yaml

from deploy.grafana.__main__ import ALL
from deploy.local.home import CHECKOUT, Home
from deploy.local.ports import Ports
from deploy.local.prometheus import CONFIGURATION, observing

EVERY = "1s"
RATE_INTERVAL = "5s"
"""What Grafana would take for `$__rate_interval`: four scrapes, and one to spare."""
_LOOKS = 1_000
"""After so many it is given up; Spark's first batch takes minutes on a busy machine."""
_LOOK_EVERY_S = 0.5


class Observed:
    def __init__(self, prometheus, pipeline):
        self.prometheus = prometheus
        self._name = pipeline.spec.name

    def filled(self, expression):
        """An expression with its variables as Grafana would fill them in."""
        values = {
            "$pipeline": self._name,
            "$node": ".*",
            "$__rate_interval": RATE_INTERVAL,
        }
        for variable, value in values.items():
            expression = expression.replace(variable, value)
        return expression

    def samples(self, expression):
        """What an expression gives now, but for what is not a number."""
        found = self.prometheus.query(self.filled(expression))
        return [one for one in found if math.isfinite(float(one["value"][1]))]

    def values(self, expression, *labels):
        """The same as numbers by these labels."""
        return {
            tuple(one["metric"].get(label, "") for label in labels): float(one["value"][1])
            for one in self.samples(expression)
        }

    def unanswered(self, expressions, tick):
        """Ask until each has been answered once; give those that never were."""
        left = dict(expressions)
        for _ in range(_LOOKS):
            tick()
            left = {
                name: expression
                for name, expression in left.items()
                if not self.samples(expression)
            }
            if not left:
                break
        return left

    def wait(self, expression, tick=lambda: None):
        """Wait until an expression gives something; give that, or nothing if it never does."""
        for _ in range(_LOOKS):
            if found := self.samples(expression):
                return found
            tick()
            time.sleep(_LOOK_EVERY_S)
        return []


@contextmanager
def observed(pipeline, folder):
    """Let Prometheus scrape every process of a pipeline once a second."""
    home = Home(folder, CHECKOUT / ".dovetail")
    ports = Ports(home, {}, {})
    with observing(home, pipeline.spec, pipeline.url, ports, every=EVERY) as prometheus:
        yield Observed(prometheus, pipeline)


def panels(*, spark):
    """Every query of every panel, by where it stands."""
    return {
        f"{dashboard.name}: {panel.title}: {query.expression}": query.expression
        for dashboard in ALL
        for panel in dashboard.panels()
        if panel.spark == spark
        for query in panel.queries
    }


def rules(file):
    groups = yaml.safe_load((CONFIGURATION / file).read_text())["groups"]
    return [rule for group in groups for rule in group["rules"]]
