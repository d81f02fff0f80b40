from __future__ import annotations

import re
from pathlib import Path

import pytest

from dovetail.pipeline.column_types import OUTPUT
from dovetail.pipeline.load import OVERRIDES, load_pipeline
from dovetail.pipeline.spec import (
    DERIVED_TOPICS,
    FieldType,
    Master,
    Overload,
    Pipeline,
    Sink,
    Source,
)

REFERENCE = (Path(__file__).parents[2] / "docs" / "pipeline.md").read_text()
EXAMPLES = re.findall(r"```yaml\n(.*?)```", REFERENCE, re.DOTALL)
CATALOGUE_NAMES = {
    "int2": "smallint",
    "int4": "integer",
    "int8": "bigint",
    "float4": "real",
    "float8": "double precision",
    "bool": "boolean",
}


@pytest.mark.parametrize("example", EXAMPLES)
def test_every_example_is_a_pipeline(tmp_path: Path, example: str) -> None:
    path = tmp_path / "pipeline.yaml"
    path.write_text(example)
    load_pipeline(path, {})


def test_the_reference_has_every_setting() -> None:
    sections = (
        *(("", Pipeline), ("source.", Source), ("master.", Master)),
        *(("overload.", Overload), ("sink.", Sink)),
    )
    settings = [f"{at}{name}" for at, model in sections for name in model.model_fields]
    rows = set(re.findall(r"^\| `([a-z_.]+)` \|", REFERENCE, re.MULTILINE))
    assert set(settings) - {"source", "master", "sink"} <= rows


def test_the_reference_has_every_variable_topic_and_type() -> None:
    columns = {CATALOGUE_NAMES.get(name, name) for name in OUTPUT}
    for word in (*OVERRIDES, *FieldType, *columns):
        assert f"`{word}`" in REFERENCE
    for suffix in DERIVED_TOPICS:
        assert f".{suffix}`" in REFERENCE
