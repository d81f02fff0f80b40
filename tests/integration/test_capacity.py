"""The handbook's capacity tables are what `make capacity` prints."""

from __future__ import annotations

import pytest

from bench.capacity import tables
from deploy.local.home import CHECKOUT


@pytest.fixture(scope="module")
def printed():
    return tables()


@pytest.mark.parametrize("name", ["join", "cores"])
def test_the_capacity_table_is_what_the_models_give(name, printed):
    """Else run `make capacity`, and put what it prints in its place."""
    page = (CHECKOUT / "docs" / "operations.md").read_text()
    text = page.split(f"<!-- {name} -->\n")[1]
    assert text.split("\n\n")[0].splitlines() == printed[name]
