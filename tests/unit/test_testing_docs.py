"""docs/testing.md lists every suite that `make` has."""

from __future__ import annotations

import re

from deploy.local.home import CHECKOUT

SEARCHES = {"matrix", "chaos", "fuzz", "soak"}
HALVES = {"test-pipeline", "test-parts"}


def test_every_suite_is_listed_with_what_it_holds_how_long_it_takes_and_when_it_was_green():
    rows = re.findall(r"^\| `([a-z0-9-]+)` \|(.+)\|$", _named_suites(), re.MULTILINE)
    assert {name for name, _ in rows} == _targets() - HALVES
    assert all(len([cell for cell in row.split("|") if cell.strip()]) == 3 for _, row in rows)


def _named_suites() -> str:
    return (CHECKOUT / "docs" / "testing.md").read_text().partition("## Named suites")[2]


def _targets() -> set[str]:
    names = re.findall(r"^([a-z0-9-]+):.*##", (CHECKOUT / "Makefile").read_text(), re.MULTILINE)
    return {name for name in names if name in SEARCHES or re.fullmatch(r"test(-.+)?", name)}
