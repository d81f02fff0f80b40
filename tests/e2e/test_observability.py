"""A real Prometheus over real services: every panel and every rule has data, and alerts fire."""

from __future__ import annotations

import itertools
import json
import urllib.request

import psycopg
import pytest
import sqlalchemy as sa

from deploy.local import jars
from deploy.local.home import Home
from deploy.local.prometheus import find_binaries, promtool
from dovetail.service import declared
from services.spark.plan_tables import PLANS, PlanTables
from services.spark.runs import Run, control_engine
from tests.e2e.observed import observed, panels, rules
from tests.unit.test_dashboards import metrics_in

KEYS, HOT = 2_000, 20
WAVE = 400
SPEC = {
    "source": {
        "partitions": 2,
        "fields": {"sale": "int", "product": "int", "sold_at": "timestamp"},
        "event_time": "sold_at",
    },
    "key": "product",
    "master": {"table": "goods", "key": "id", "columns": ["name"], "refresh": "1m"},
    "memory": "8MiB",
    "slots": 4,
}
BY_SERVICES = {**SPEC, "nodes": 2, "overload": {"shed": "auto", "when_behind": "10m"}}
BY_SPARK = {**SPEC, "nodes": 1, "engine": "spark"}
OF_ENRICH = {"in", "enriched", "unmatched", "outputs"}
OF_STAGES = {"dovetail_lag_records", "pipeline:dovetail_master_queries:rate1m"}
"""On the overview, what `enrich` does not have: it is not a consumer group's member."""


@pytest.fixture
def goods(database):
    """Without an index, so that `auto` has to scan; two rows a key for every third one."""
    with psycopg.connect(database) as connection:
        connection.execute("CREATE TABLE goods (id int, name text)")
        connection.execute(
            "INSERT INTO goods SELECT k, 'row ' || n FROM generate_series(1, %s) k,"
            " generate_series(1, 1 + (k %% 3) / 2) n",
            (KEYS,),
        )
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute("VACUUM ANALYZE goods")


class Sales:
    """Half of the events have hot keys, some have no master row, one in ten is bad."""

    def __init__(self, pipeline):
        self._pipeline = pipeline
        self._numbers = itertools.count()

    def event(self, number):
        if number % 20 == 0:
            return b"{"
        product = number % HOT if number % 2 else number * 7_919 % (KEYS * 11 // 10)
        event = {"sale": number, "product": product, "sold_at": "2026-01-31T09:00:00Z"}
        if number % 20 == 10:
            event["product"] = None
        return json.dumps(event).encode()

    def wave(self, events=WAVE):
        self._pipeline.send(map(self.event, itertools.islice(self._numbers, events)))

    def tick(self):
        self.wave()
        self._pipeline.pause(0.3)

    def post(self):
        """One more event, by HTTP."""
        request = urllib.request.Request(
            f"{self._pipeline.url('ingest')}/v1/events",
            self.event(1),
            {"Content-Type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=30) as answer:
            assert answer.status == 202


def note_runs(engine, pipeline):
    """What Spark's jobs leave in the control database: a run that is done, a plan two days old."""
    with Run(engine, pipeline, "frequency") as run:
        for name in declared.RUN_FIGURES.keys() - OF_ENRICH:
            run.figure(name, 1.5)
    tables = PlanTables(engine, pipeline)
    tables.create()
    version = tables.add(run.id, {"expected_hit_rate": 0.5}, [])
    tables.note_sent(version, 7)
    with engine.begin() as connection:
        old = sa.func.now() - sa.text("interval '2 days'")
        connection.execute(sa.update(PLANS).values(made_at=old))


def fail_run(engine, pipeline):
    with pytest.raises(ValueError, match="no room"), Run(engine, pipeline, "snapshot"):
        raise ValueError("no room")


def firing(alert, labels=""):
    return f'ALERTS{{alertname="{alert}", alertstate="firing"{labels}}}'


def recorded():
    names = [rule["record"] for rule in rules("recording.yml")]
    return {name: f'{name}{{pipeline="$pipeline"}}' for name in names}


def selectors():
    """Every series that an alert's expression looks at."""
    return {
        f"{rule['alert']}: {name}": name
        for rule in rules("alerts.yml")
        for name in metrics_in(rule["expr"])
    }


@pytest.mark.timeout(900)
def test_every_panel_and_rule_has_data_and_alerts_fire(run_pipeline, goods, database, tmp_path):
    engine = control_engine(database)
    with run_pipeline(BY_SERVICES) as pipeline, observed(pipeline, tmp_path) as seen:
        note_runs(engine, pipeline.spec.name)
        sales = Sales(pipeline)
        sales.post()
        asked = {**panels(spark=False), **recorded(), **selectors()}
        assert len(asked) > 120
        assert seen.unanswered(asked, sales.tick) == {}
        assert_series_are_those_declared(seen)
        assert_promtool_finds_nothing_to_mend(pipeline)
        assert_variables_have_values(seen)
        assert_every_alert_can_be_asked_for(seen)
        assert_totals_are_those_of_sql(pipeline, seen)

        with psycopg.connect(database, autocommit=True) as connection:
            connection.execute("UPDATE goods SET id = -id")
        fail_run(engine, pipeline.spec.name)
        assert seen.wait("dovetail_alarm == 1", lambda: sales.wave(4_000))
        pipeline.kill("disk_phase-1")  # and nobody starts it again before the next pause
        assert seen.wait(firing("DovetailNodeLost", ', member="disk_phase-1"'))
        assert seen.wait(firing("DovetailMatchRateCollapsed"))
        assert seen.wait(firing("DovetailSparkJobFailed", ', spark_job="snapshot"'))
        assert seen.samples('up{service="disk_phase", node="1"} == 0')
        for alert in ("DovetailDeadLettersRising", "DovetailPlanStale"):
            assert seen.samples(f'ALERTS{{alertname="{alert}"}}'), "at least about to fire"
        for alert in ("DovetailConservationOff", "DovetailBudgetExceeded", "DovetailShedding"):
            assert not seen.samples(f'ALERTS{{alertname="{alert}"}}')

        pipeline.pause(0.5)  # the supervisor starts it again
        back = 'dovetail_member_up{member="disk_phase-1"} == 1'
        assert seen.wait(back, lambda: pipeline.pause(0.2))
        assert pipeline.drain().problems == []


def assert_series_are_those_declared(seen):
    names = seen.prometheus.ask("label/__name__/values")
    shown = {name for name in names if name.startswith("dovetail_")}
    wanted = {
        f"{metric.name}_{part}" if metric.kind is declared.Kind.HISTOGRAM else metric.name
        for metric in declared.ALL
        for part in ("bucket", "count", "sum")
    }
    of_spark = {declared.RUN_FIGURES[name].name for name in OF_ENRICH}
    of_spark |= {declared.FIGURES[name].name for name in ("batch_seconds", "batch_events")}
    assert shown == wanted - of_spark
    assert seen.samples('count({__name__=~".+", exported_job!=""})') == []


def assert_promtool_finds_nothing_to_mend(pipeline):
    binaries = find_binaries(Home.of_checkout({}))
    for name in pipeline.names():
        with urllib.request.urlopen(f"{pipeline.url(name)}/metrics", timeout=5) as answer:
            text = answer.read().decode()
        assert promtool(binaries, "check", "metrics", given=text) == ""


def assert_variables_have_values(seen):
    pipelines = seen.values("count by (pipeline) (dovetail_pipeline_nodes)", "pipeline")
    assert pipelines == {(seen.filled("$pipeline"),): 1}
    nodes = seen.values('count by (node) (dovetail_held_bytes{pipeline="$pipeline"})', "node")
    assert nodes == {("0",): 2, ("1",): 2}


def assert_every_alert_can_be_asked_for(seen):
    for rule in rules("alerts.yml"):
        seen.prometheus.query(rule["expr"])
    groups = seen.prometheus.ask("rules")["groups"]
    health = {rule["name"]: rule["health"] for group in groups for rule in group["rules"]}
    assert len(health) == len(rules("alerts.yml")) + len(rules("recording.yml"))
    assert set(health.values()) == {"ok"}


def assert_totals_are_those_of_sql(pipeline, seen):
    final = pipeline.drain()
    verdict = pipeline.verdict()
    assert verdict.differences == []
    taken = f'dovetail_pipeline_taken_total{{pipeline="$pipeline"}} == {verdict.events}'
    assert seen.wait(taken, lambda: pipeline.pause(0.2))
    assert seen.wait("dovetail_pipeline_in_flight_events == 0", lambda: pipeline.pause(0.2))
    outcomes = seen.values("sum by (outcome) (dovetail_pipeline_events_total)", "outcome")
    assert sum(outcomes.values()) == verdict.events
    assert outcomes["unmatched",] == verdict.unmatched > 0
    assert outcomes["dead",] == final.dead_lettered > 0
    outputs = seen.values("dovetail_pipeline_outputs_total", "pipeline")
    assert set(outputs.values()) == {verdict.outputs}
    by_stages = 'sum(dovetail_events_total{outcome="enriched"})'
    assert seen.wait(f"{by_stages} == {final.enriched}", lambda: pipeline.pause(0.2))
    reasons = seen.values('dovetail_pipeline_events_total{outcome="dead"} > 0', "reason")
    assert reasons.keys() == {("invalid-json",), ("null-key",)}


@pytest.fixture
def connectors(stack):
    """What Spark needs beside PySpark, fetched before anybody waits for `enrich`."""
    jars.fetch(jars.SPARK, stack.home, print)


@pytest.mark.timeout(900)
def test_what_only_spark_has_is_shown_where_spark_runs_the_pipeline(
    connectors, run_pipeline, goods, tmp_path
):
    with run_pipeline(BY_SPARK) as pipeline, observed(pipeline, tmp_path) as seen:
        sales = Sales(pipeline)
        everywhere = {
            name: expression
            for name, expression in panels(spark=False).items()
            if name.startswith("overview") and not metrics_in(expression) & OF_STAGES
        }
        assert len(everywhere) > 20
        asked = {**panels(spark=True), **everywhere}
        assert seen.unanswered(asked, sales.tick) == {}
        assert pipeline.drain().problems == []
