"""Every figure is a metric of the table, by Prometheus' conventions, and in the documentation."""

from __future__ import annotations

import ast
import re
import threading
from collections import Counter
from pathlib import Path

import pytest
from prometheus_client import generate_latest

from dovetail.join.shedding.shedder import Shedder
from dovetail.join.shedding.strategies import KeepW
from dovetail.pipeline.shape import Algorithm
from dovetail.pipeline.spec import Pipeline
from dovetail.service import declared
from dovetail.service.declared import FIGURES, RUN_FIGURES, Kind, metric_of
from dovetail.service.metrics import Metrics, figures_of
from dovetail.service.revision import Revision
from dovetail.settings import Settings
from dovetail.stream import ledger
from dovetail.topology import CACHE_PHASE, DISK_PHASE, ENRICH, INGEST, MAPPER
from services.mapper.overload import OverloadGuard
from services.spark import backfill
from services.spark.enrich_orders import Standing
from services.spark.enrich_service import EnrichService
from tests.unit.test_cache_phase_handler import Cache
from tests.unit.test_disk_phase_handler import Disk
from tests.unit.test_mapper_handler import Stepped, Told

ROOT = Path(__file__).parents[2]
NAMED = re.compile(r"\bdovetail_[a-z_]+")
ROLES = {"dovetail_reader", "dovetail_control", "dovetail_gate"}
"""Names of the database, which are no metrics."""
BY_STAGE = {"ready", "alarm", "lag"}
"""Of every stage (dovetail/service/stage.py)."""


def shown(figures, kind=DISK_PHASE):
    metrics = Metrics(kind)
    metrics.show(figures)
    return generate_latest(metrics.registry).decode()


def figures_of_the_cache():
    cache = Cache()
    cache.migrate(1, age=5)
    cache.step(1, 2)
    cache.now += 10_000
    cache.migrate(2)
    cache.handler.between_steps()
    return cache.handler.figures()


def figures_of_the_mapper():
    mapper = Stepped(OverloadGuard(Shedder(1.0, KeepW()), Told()))
    mapper.step([1, 2, 3])
    return mapper.handler.figures()


def figures_of_the_disk(algorithm):
    disk = Disk(algorithm=algorithm)
    disk.step(1, 2, 3)
    return disk.handler.figures()


def figures_of_enrich():
    pipeline = Pipeline.model_validate(
        {
            "name": "sales",
            "source": {"fields": {"id": "int"}},
            "key": "id",
            "master": {"table": "goods", "columns": ["name"]},
        }
    )
    service = EnrichService(
        Settings("127.0.0.1:9", "postgresql://nobody@127.0.0.1:9/none", ROOT),
        Standing(Revision(ROOT, b"", pipeline)),
        threading.Event(),
    )
    service.note([], 0.5, {})
    return service._figures


@pytest.mark.parametrize("algorithm", list(Algorithm))
def test_every_figure_of_the_disk_phase_is_a_metric(algorithm):
    figures = figures_of_the_disk(algorithm)
    assert figures_of(shown(figures)) == pytest.approx(figures)
    components = {name: n for name, n in figures.items() if name.startswith("component_bytes.")}
    assert sum(components.values()) == figures["held_bytes"]


@pytest.mark.parametrize("look", [figures_of_the_cache, figures_of_the_mapper, figures_of_enrich])
def test_every_figure_of_the_other_services_is_a_metric(look):
    figures = look()
    assert figures
    assert figures_of(shown(figures)) == pytest.approx(figures)


def test_every_row_of_the_table_is_a_figure_that_some_service_has():
    found = {*BY_STAGE, *figures_of_the_cache(), *figures_of_the_mapper(), *figures_of_enrich()}
    for algorithm in Algorithm:
        found |= figures_of_the_disk(algorithm).keys()
    shapes = {name if name in FIGURES else f"{name.partition('.')[0]}." for name in found}
    assert shapes == FIGURES.keys()


def test_a_figure_without_a_row_is_an_error_that_names_the_cure():
    with pytest.raises(KeyError, match=r"'bytes_lost'.*dovetail/service/declared.py"):
        shown({"bytes_lost": 1.0})
    with pytest.raises(KeyError, match=r"'lag\.1'"):
        metric_of("lag.1")


def test_what_is_not_shown_any_more_is_gone():
    metrics = Metrics(DISK_PHASE)
    metrics.show({"algorithm.srj": 1.0})
    metrics.show({"algorithm.ssbj": 1.0})
    text = generate_latest(metrics.registry).decode()
    assert figures_of(text) == {"algorithm.ssbj": 1.0}


def test_every_figure_of_a_run_is_a_metric():
    """Of the jobs' own calls, read from their sources: a run takes minutes."""
    named = set()
    for file in (ROOT / "services/spark").glob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Call) and _callee(node) in ("figure", "_timed"):
                named |= {a.value for a in node.args if isinstance(a, ast.Constant)}
    by_enrich = {ledger.IN, ledger.ENRICHED, ledger.UNMATCHED, ledger.OUTPUTS}
    named |= {*by_enrich, *backfill.FIGURES.values()}
    assert {name for name in named if isinstance(name, str)} == RUN_FIGURES.keys()


def _callee(call):
    return getattr(call.func, "attr", getattr(call.func, "id", ""))


def test_names_and_texts_follow_the_conventions():
    names = Counter(metric.name for metric in declared.ALL)
    assert max(names.values()) == 1
    for metric in declared.ALL:
        assert metric.name.startswith("dovetail_")
        assert metric.name.endswith("_total") == (metric.kind is Kind.COUNTER)
        assert not metric.name.endswith(("_s", "_ms", "_kb", "_mb", "_percent", "_rate"))
        assert metric.text[0].isupper() or metric.text[0] in "1bw"
        assert not metric.text.endswith(".")
        # Of Prometheus itself: they would be renamed to exported_….
        assert not {"job", "instance", "service", "node", "link"} & set(metric.labels)
        assert ("pipeline" in metric.labels) == (
            metric in declared.CONTROL or metric in RUN_FIGURES.values()
        )


@pytest.mark.parametrize("kind", [INGEST, MAPPER, CACHE_PHASE, DISK_PHASE, ENRICH])
def test_outcomes_are_there_from_the_beginning_and_add_up_to_what_was_taken(kind):
    metrics = Metrics(kind)
    before = values(metrics)
    assert set(before.values()) == {0}
    counts = Counter({"in": 10, "outputs": 12, "hits": 3})
    outcomes = [name for name in before if name not in ("in", "outputs", "hits")]
    counts.update(dict.fromkeys(outcomes, 1))
    metrics.committed(counts, 0.1)
    after = values(metrics)
    assert after.keys() == before.keys()
    assert (after["in"], after["outputs"], after["hits"]) == (10, 12, 3)
    assert sum(after[name] for name in outcomes) == len(outcomes) > 1


def values(metrics):
    """Counts by their names in the ledger."""
    beside = {
        declared.TAKEN.name: "in",
        declared.OUTPUTS.name: "outputs",
        declared.HITS.name: "hits",
    }
    found = {}
    for family in metrics.registry.collect():
        for sample in family.samples:
            if sample.name in beside:
                found[beside[sample.name]] = sample.value
            elif sample.name == declared.EVENTS.name:
                name = ".".join(filter(None, (sample.labels["outcome"], sample.labels["reason"])))
                found[name] = sample.value
    return found


def test_the_documentation_has_every_metric_with_its_kind_labels_and_meaning():
    """Else write the rows that are missed here into docs/observability.md."""
    page = (ROOT / "docs/observability.md").read_text()
    rows = [line for line in page.splitlines() if line.startswith("| `dovetail_")]
    assert rows == [documented(metric) for metric in declared.ALL]


def test_no_page_names_a_metric_that_does_not_exist():
    parts = ("", "_bucket", "_count", "_sum")
    known = {f"{metric.name}{part}" for metric in declared.ALL for part in parts}
    pages = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
    named = {(page.name, name) for page in pages for name in NAMED.findall(page.read_text())}
    assert {(page, name) for page, name in named if name not in known | ROLES} == set()


def documented(metric):
    labels = ", ".join(f"`{label}`" for label in metric.labels)
    return f"| `{metric.name}` | {metric.kind} | {labels} | {metric.text} |"
