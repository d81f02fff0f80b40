"""What `check` says of the file alone; the master table is in tests/integration."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

from dovetail.pipeline.check import check_command
from dovetail.pipeline.spec import Pipeline
from dovetail.pipeline.summary import summary

ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def _no_overrides(monkeypatch: pytest.MonkeyPatch) -> None:
    for setting in ("MEMORY", "NODES", "JOIN", "SLOTS", "ALGORITHM"):
        monkeypatch.delenv(f"DOVETAIL_{setting}", raising=False)


def test_without_a_database_the_file_alone_is_checked() -> None:
    out = io.StringIO()
    assert check_command(ROOT / "pipeline.yaml", None, out) == 0
    first, second, *_ = out.getvalue().splitlines()
    assert first == "info: the master table was not looked at; give --database to check it too"
    assert second == "pipeline sales"


def test_a_wrong_file_fails_with_its_problems(tmp_path: Path) -> None:
    path = tmp_path / "wrong.yaml"
    path.write_text("name: sales\n")
    out = io.StringIO()
    assert check_command(path, None, out) == 1
    assert [line.split(": ")[1] for line in out.getvalue().splitlines()] == [
        "source",
        "key",
        "master",
    ]


def test_the_summary_shows_a_composite_key_and_renamed_columns() -> None:
    made = Pipeline.model_validate(
        {
            "name": "sales",
            "source": {"fields": {"country": "text", "sku": "int"}},
            "key": ["country", "sku"],
            "master": {"table": "items", "key": ["land", "nr"], "columns": {"price": "list_price"}},
            "memory": "16MiB",
        }
    )
    assert summary(made).splitlines() == [
        "pipeline sales",
        "  source   sales: json, 2 fields, up to 64KiB an event, 4 partitions",
        "  key      country, sku (composite)",
        "  master   items by land, nr: adds price as list_price",
        "  join     inner by auto",
        "  order    none: outputs leave when they are ready",
        "  memory   16MiB a node, 1 node: 16MiB in all; 8 slots",
        "  overload backpressure: events wait in Kafka",
        "  sink     sales.enriched",
    ]


def test_a_join_without_columns_adds_nothing() -> None:
    made = Pipeline.model_validate(
        {
            "name": "sales",
            "source": {"fields": {"sku": "int"}},
            "key": "sku",
            "master": {"table": "items"},
            "join": "anti",
            "order": {"within": 50},
            "overload": {"criterion": "random-sample"},
        }
    )
    lines = summary(made).splitlines()
    assert "  master   items by sku: adds nothing" in lines
    assert "  order    within 50 events of where an event stood in its slot" in lines
    assert "  overload sheds by auto for random-sample when behind by 30s" in lines
