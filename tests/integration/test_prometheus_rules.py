"""The rules and alerts by promtool itself, and that none is left untested or unexplained."""

from __future__ import annotations

import pytest
import yaml

from deploy.local.home import CHECKOUT, Home
from deploy.local.prometheus import CONFIGURATION, find_binaries, promtool
from deploy.prometheus.targets import written
from dovetail.errors import StackError
from dovetail.pipeline.load import load_pipeline
from dovetail.pipeline.spec import Pipeline

OPERATIONS = CHECKOUT / "docs/operations.md"


@pytest.fixture(scope="module")
def binaries():
    return find_binaries(Home.of_checkout({}))


def rules(name):
    groups = yaml.safe_load((CONFIGURATION / name).read_text())["groups"]
    return [rule for group in groups for rule in group["rules"]]


ALERTS = {rule["alert"]: rule for rule in rules("alerts.yml")}
TESTS = yaml.safe_load((CONFIGURATION / "tests.yml").read_text())["tests"]


def test_the_configuration_is_one_that_prometheus_takes(binaries):
    told = promtool(binaries, "check", "config", CONFIGURATION / "prometheus.yml")
    assert "2 rule files found" in told


def test_rules_and_alerts_do_what_their_tests_say(binaries):
    assert "SUCCESS" in promtool(binaries, "test", "rules", CONFIGURATION / "tests.yml")


def test_a_rule_that_does_something_else_is_found(binaries, tmp_path):
    for file in CONFIGURATION.glob("*.yml"):
        text = file.read_text().replace("conservation_problems > 0", "conservation_problems > 9")
        (tmp_path / file.name).write_text(text)
    with pytest.raises(StackError, match="DovetailConservationOff"):
        promtool(binaries, "test", "rules", tmp_path / "tests.yml")


@pytest.mark.parametrize("alert", ALERTS)
def test_every_alert_is_tested_both_ways_or_by_who_else_does_not_fire(alert):
    cases = [
        case
        for test in TESTS
        for case in test.get("alert_rule_test", ())
        if case["alertname"] == alert
    ]
    firing = [case for case in cases if case.get("exp_alerts")]
    assert firing
    (fired,) = firing[0]["exp_alerts"]
    annotations = ALERTS[alert]["annotations"]
    assert fired["exp_annotations"].keys() == annotations.keys()


@pytest.mark.parametrize("record", [rule["record"] for rule in rules("recording.yml")])
def test_every_recording_rule_is_tested(record):
    expressions = [case["expr"] for test in TESTS for case in test.get("promql_expr_test", ())]
    assert any(expression.partition("{")[0] == record for expression in expressions)


@pytest.mark.parametrize("alert", ALERTS)
def test_every_alert_says_what_to_do_here_and_at_length(alert):
    rule = ALERTS[alert]
    assert rule["labels"]["severity"] in ("warning", "critical")
    assert rule["annotations"].keys() == {"summary", "description", "runbook_url"}
    page, _, anchor = rule["annotations"]["runbook_url"].partition("#")
    assert CHECKOUT / page == OPERATIONS
    headings = [line for line in OPERATIONS.read_text().splitlines() if line.startswith("### ")]
    assert f"### {alert}" in headings
    assert anchor == alert.lower()


def test_the_page_has_no_alert_that_is_gone():
    headings = {line[4:] for line in OPERATIONS.read_text().splitlines() if line[:4] == "### "}
    assert {name for name in headings if name.startswith("Dovetail")} == set(ALERTS)


def test_the_targets_of_the_demo_are_those_of_its_pipeline():
    """Else run: python -m deploy.prometheus.targets pipeline.yaml > deploy/prometheus/targets/…"""
    pipeline = load_pipeline(CHECKOUT / "pipeline.yaml", {})
    assert (CONFIGURATION / "targets/sales.yml").read_text() == written(pipeline)


def test_targets_tell_pipeline_service_node_and_table():
    pipeline = Pipeline.model_validate(
        {
            "name": "sales",
            "source": {"fields": {"id": "int", "vendor": "int"}},
            "key": "id",
            "master": {"table": "goods", "columns": ["name"]},
            "nodes": 2,
            "then": [{"key": "vendor", "master": {"table": "vendors", "columns": ["city"]}}],
        }
    )
    entries = yaml.safe_load(written(pipeline, "{process}.shop.svc:8080"))
    found = {entry["targets"][0]: entry["labels"] for entry in entries}
    assert len(found) == len(entries) == 3 + 2 * 2 * 2
    assert found["control.shop.svc:8080"] == {"service": "control"}
    assert found["ingest.shop.svc:8080"] == {"pipeline": "sales", "service": "ingest"}
    assert found["disk-phase-2-1.shop.svc:8080"] == {
        "pipeline": "sales",
        "service": "disk_phase",
        "node": "1",
        "link": "2",
    }
