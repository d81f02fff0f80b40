"""`master.refresh`: how long a cached row answers."""

import math

import pytest

from dovetail.errors import ConfigError
from dovetail.pipeline.load import load_pipeline

FILE = """\
name: sales
source:
  fields: {product_id: int}
key: product_id
master:
  table: products
  columns: [name]
"""


def loaded(tmp_path, line=""):
    path = tmp_path / "pipeline.yaml"
    path.write_text(FILE + line)
    return load_pipeline(path, {})


@pytest.mark.parametrize(
    ("line", "seconds"),
    [
        ("", 600),
        ("  refresh: 10m\n", 600),
        ("  refresh: 1s\n", 1),
        ("  refresh: 1.5h\n", 5400),
        ("  refresh: 90\n", 90),
        ("  refresh: never\n", math.inf),
    ],
)
def test_a_duration_or_never(tmp_path, line, seconds):
    assert loaded(tmp_path, line).master.refresh == seconds


@pytest.mark.parametrize(
    ("value", "told"),
    [
        ("soon", "'soon' is not a duration; write a number and a unit, e.g. 30s or 10m"),
        ("10 minutes", "'10 minutes' has an unknown unit; write 10m"),
        ("0s", "0ms is too short for a cache to be of use; write at least 1s, or never"),
        ("500ms", "500ms is too short for a cache to be of use; write at least 1s, or never"),
        ("", "a duration is needed here; e.g. 30s or 10m"),
        ("[1s]", "a duration is needed here; e.g. 30s or 10m"),
        ("yes", "a duration is needed here; e.g. 30s or 10m"),
    ],
)
def test_anything_else_is_told_with_its_line(tmp_path, value, told):
    with pytest.raises(ConfigError) as raised:
        loaded(tmp_path, f"  refresh: {value}\n")
    assert f"pipeline.yaml:8: master.refresh: {told}" in str(raised.value)
