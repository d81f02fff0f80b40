"""Documents that come by the API: changed as little as it takes, refused where they must be."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from dovetail.pipeline.problem import InvalidPipelineError
from services.control import documents
from services.problem import ProblemError

FILE = Path(__file__).parents[2] / "pipeline.yaml"
TEXT = FILE.read_text()


def parsed(document, environment=None):
    return documents.written(documents.parse(document, FILE, environment or {}))


def test_a_patch_changes_the_setting_and_nothing_else():
    new = documents.patched(TEXT, {"algorithm": "ssbj", "memory": "64MiB", "order": "key"})
    assert documents.changes(parsed(TEXT), parsed(new)) == [
        "algorithm: auto → ssbj",
        "memory: 32MiB → 64MiB",
        "order: none → key",
    ]
    kept = [line for line in TEXT.splitlines() if not line.startswith(("algorithm", "memory"))]
    assert set(kept) <= set(new.splitlines())
    assert "# per node, for everything the join holds" in new


@pytest.mark.parametrize(
    "settings",
    [
        {"overload": {"shed": "topw", "when_behind": "30s"}},
        {"overload": "backpressure"},
        {"order": {"within": 100}},
        {"memory": 8 << 20},
    ],
)
@pytest.mark.parametrize(
    "before",
    [
        TEXT,
        TEXT + "overload:\n  shed: auto\n  when_behind: 10s\n\n# the end\n",
        "overload: {shed: auto}   # why\norder: source\n" + TEXT,
        TEXT.rstrip() + "\norder:\n  within: 5\n",
    ],
)
def test_a_patch_gives_what_rewriting_the_data_would(settings, before):
    new = documents.patched(before, settings)
    assert yaml.safe_load(new) == {**yaml.safe_load(before), **settings}
    assert [line for line in before.splitlines() if line.startswith("#")] == [
        line for line in new.splitlines() if line.startswith("#")
    ]
    parsed(new)


def test_a_document_in_braces_is_patched_too():
    before = yaml.safe_dump(yaml.safe_load(TEXT), default_flow_style=True, width=10_000)
    new = documents.patched(before, {"algorithm": "srj"})
    assert yaml.safe_load(new) == {**yaml.safe_load(before), "algorithm": "srj"}


@pytest.mark.parametrize(
    ("old", "new", "field"),
    [
        ("slots: 4", "slots: 8", "slots"),
        ("nodes: 2", "nodes: 3", "nodes"),
        ("topic: sales  ", "topic: other ", "source.topic"),
        ("key: product_id              #", "key: sale_id #", "key"),
        ("join: inner", "join: left", "join"),
        ("    channel: text\n", "", "source.fields.channel"),
        ("customer_id: int?", "customer_id: int", "source.fields.customer_id"),
        ("quantity: int", "quantity: text", "source.fields.quantity"),
        ("table: products", "table: goods", "master.table"),
        ("topic: sales.enriched", "topic: elsewhere", "sink.topic"),
    ],
)
def test_what_places_or_explains_events_in_flight_cannot_change(old, new, field):
    assert old in TEXT
    with pytest.raises(ProblemError) as refused:
        documents.require_free(parsed(TEXT), parsed(TEXT.replace(old, new)))
    assert refused.value.kind.name == "SETTING_FIXED"
    assert field in str(refused.value)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("algorithm: auto", "algorithm: inlj"),
        ("memory: 32MiB", "memory: 64MiB"),
        ("    channel: text\n", "    channel: text?\n    coupon: text?\n"),
        ("max_event_bytes: 65536", "max_event_bytes: 4096"),
        ("table: products", "table: products\n  refresh: never"),
        ("nodes: 2", "nodes: 2\norder: source"),
        ("nodes: 2", "nodes: 2\noverload: {shed: auto}"),
    ],
)
def test_the_rest_can(old, new):
    assert old in TEXT
    documents.require_free(parsed(TEXT), parsed(TEXT.replace(old, new)))


def test_a_setting_that_the_environment_overrides_cannot_be_changed():
    new = documents.patched(TEXT, {"algorithm": "srj"})
    with pytest.raises(ProblemError, match="DOVETAIL_ALGORITHM"):
        documents.require_not_overridden(TEXT, new, {"DOVETAIL_ALGORITHM": "ssbj"})
    documents.require_not_overridden(TEXT, new, {"DOVETAIL_MEMORY": "64MiB"})


@pytest.mark.parametrize(
    "path",
    ["/etc/passwd", "../../secrets/x.avsc", "x://../../../etc/passwd", "https://../../etc/passwd"],
)
def test_files_elsewhere_are_not_read_for_somebody_outside(path):
    document = TEXT.replace("format: json", f"format: avro\n  schema_file: {path}")
    with pytest.raises(InvalidPipelineError) as refused:
        documents.parse(document, FILE, {})
    assert [fault.field for fault in refused.value.faults] == ["source.schema_file"]
    assert refused.value.faults[0].line is not None


@pytest.mark.parametrize(
    ("section", "setting", "path", "taken"),
    [
        ("source", "registry", "http://registry:8081", True),
        ("source", "registry", "https://registry/a/../b", True),
        ("source", "registry", "schemas", True),
        ("source", "registry", "file://../../etc", False),
        ("source", "registry", "x://../../etc", False),
        ("source", "registry", " https://../../etc", False),
        ("master", "snapshot", "http://../../etc", False),
        ("master", "snapshot", "/var/lib", False),
        ("master", "snapshot", "snapshots/a", True),
    ],
)
@pytest.mark.parametrize("link", [False, True])
def test_a_url_is_a_registrys_alone(section, setting, path, taken, link):
    inner = {section: {setting: path}}
    document = yaml.safe_dump({"then": [inner]} if link else inner)
    if taken:
        documents._require_near(document, "")
        return
    with pytest.raises(InvalidPipelineError, match="is not beside the pipeline file"):
        documents._require_near(document, "")


def test_problems_have_line_field_and_cure():
    document = TEXT.replace("algorithm: auto", "algorithm: ssjb").replace("slots: 4", "slots: 0")
    with pytest.raises(InvalidPipelineError) as refused:
        documents.parse(document, FILE, {})
    found = {fault.field: fault for fault in refused.value.faults}
    assert set(found) == {"algorithm", "slots"}
    assert "did you mean 'ssbj'" in found["algorithm"].text
    lines = document.splitlines()
    assert lines[(found["slots"].line or 0) - 1].startswith("slots: 0")
