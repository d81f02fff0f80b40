"""The dashboards as Grafana gets them: up to date, laid out, explained, of metrics that exist."""

from __future__ import annotations

import json
import re

import pytest
import yaml

from deploy.grafana.__main__ import ALL, FOLDER, written
from deploy.grafana.model import DATA_SOURCE
from deploy.local.prometheus import CONFIGURATION
from dovetail.service import declared
from services.spark import backfill

PROVISIONING = FOLDER.parent / "provisioning"
OTHERS = {"up", "ALERTS"} | {
    f"process_{name}" for name in ("cpu_seconds_total", "resident_memory_bytes", "open_fds")
}
NOT_ON_A_DASHBOARD = {
    # How many there should be, not how many there are: for the variable, and for who asks.
    "dovetail_pipeline_nodes",
    "dovetail_member_silence_seconds",
    # Of a run, for who looks into it: the plan's own are shown.
    *(f"dovetail_spark_run_{name}" for name in ("version", "pairs", "error_ratio", "plan")),
    *(f"dovetail_spark_run_{name}" for name in ("expected_hit_ratio", "sent_keys")),
    # Of a backfill's run, likewise: the pipeline's counter is shown.
    *(
        declared.RUN_FIGURES[name].name
        for name in ("messages", "lost_messages", *backfill.FIGURES.values())
        if name != "outputs"
    ),
}
JSON = {dashboard.name: json.loads(written(dashboard)) for dashboard in ALL}


def rules(file):
    groups = yaml.safe_load((CONFIGURATION / file).read_text())["groups"]
    return [rule for group in groups for rule in group["rules"]]


RECORDED = {rule["record"]: rule["expr"] for rule in rules("recording.yml")}


def metrics_in(expression):
    """The names of series in an expression: before a brace or a bracket, or alone."""
    bare = re.sub(r'"[^"]*"|\{[^}]*\}|\[[^]]*\]|\bby \([^)]*\)', " ", expression)
    words = set(re.findall(r"[a-zA-Z_:][a-zA-Z0-9_:]*", bare))
    return {word for word in words if "_" in word or word in OTHERS} - FUNCTIONS


FUNCTIONS = {"histogram_quantile", "clamp_min"}


def declared_series():
    for metric in declared.ALL:
        if metric.kind is declared.Kind.HISTOGRAM:
            yield from (f"{metric.name}_{part}" for part in ("bucket", "count", "sum"))
        else:
            yield metric.name


EXPRESSIONS = [
    query.expression for dashboard in ALL for panel in dashboard.panels() for query in panel.queries
]
ASKED = [*EXPRESSIONS, *RECORDED.values(), *(rule["expr"] for rule in rules("alerts.yml"))]


def test_the_dashboards_are_those_of_the_code():
    """Else run `make grafana`."""
    files = {file.stem: file.read_text() for file in FOLDER.glob("*.json")}
    assert files == {dashboard.name: written(dashboard) for dashboard in ALL}


def test_every_query_is_of_series_that_exist():
    known = {*declared_series(), *RECORDED, *OTHERS}
    for expression in ASKED:
        assert metrics_in(expression), expression
        assert metrics_in(expression) <= known, expression


def test_every_metric_is_on_a_dashboard():
    shown = set().union(*map(metrics_in, EXPRESSIONS))
    through = set().union(*(metrics_in(RECORDED[name]) for name in shown if name in RECORDED))
    again = set().union(*(metrics_in(RECORDED[name]) for name in through if name in RECORDED))
    seen = shown | through | again
    names = {metric.name for metric in declared.ALL}
    unseen = {name for name in names if not seen & {name, f"{name}_bucket", f"{name}_count"}}
    assert unseen == NOT_ON_A_DASHBOARD


@pytest.mark.parametrize("name", JSON)
def test_panels_lie_side_by_side_and_within_the_page(name):
    taken = set()
    for panel in JSON[name]["panels"]:
        place = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not taken & cells, panel["title"]
        assert max(x for x, _ in cells) < 24
        taken |= cells


@pytest.mark.parametrize("name", JSON)
def test_every_panel_is_explained_and_has_a_unit_and_our_data_source(name):
    dashboard = JSON[name]
    ids = [panel["id"] for panel in dashboard["panels"]]
    assert len(ids) == len(set(ids))
    titles = [panel["title"] for panel in dashboard["panels"]]
    for panel in dashboard["panels"]:
        if panel["type"] in ("row", "alertlist"):
            continue
        assert panel["description"].endswith("."), panel["title"]
        assert panel["fieldConfig"]["defaults"]["unit"]
        assert panel["targets"]
        for target in panel["targets"]:
            assert target["datasource"] == DATA_SOURCE
            assert len({t["refId"] for t in panel["targets"]}) == len(panel["targets"])
            # A legend that names no label would give all series of a panel the same name.
            several = len(panel["targets"]) > 1
            assert target["legendFormat"] != "__auto" or not several, panel["title"]
    assert len(titles) > 8


def test_every_variable_in_a_query_is_one_of_the_dashboards_own():
    for dashboard in ALL:
        names = {variable.name for variable in dashboard.variables}
        for panel in dashboard.panels():
            for query in panel.queries:
                used = set(re.findall(r"\$(\w+)", query.expression)) - {"__rate_interval"}
                assert used <= names, panel.title


def test_provisioning_fits_the_dashboards():
    sources = yaml.safe_load((PROVISIONING / "datasources/prometheus.yml").read_text())
    (source,) = sources["datasources"]
    assert {"type": source["type"], "uid": source["uid"]} == DATA_SOURCE
    configuration = yaml.safe_load((CONFIGURATION / "prometheus.yml").read_text())
    assert source["jsonData"]["timeInterval"] == configuration["global"]["scrape_interval"]
    providers = yaml.safe_load((PROVISIONING / "dashboards/dovetail.yml").read_text())
    (provider,) = providers["providers"]
    assert provider["options"]["path"] == "/var/lib/grafana/dashboards"
    uids = [dashboard["uid"] for dashboard in JSON.values()]
    assert len(set(uids)) == len(uids) == 5
