"""Tests that draw their cases, with one new seed after the other until the time is over.

    python -m tests.fuzz.search <name> <seconds> <seed>

What breaks is printed with its seed and with the case that Hypothesis made of it, and is tried
first the next time. Mend it, and give the case to the test for good (`@example`, or a line of its
table): `make test` draws the same every time and would not find it.
"""

from __future__ import annotations

import itertools
import os
import random
import sys
import time

import hypothesis
import pytest
from hypothesis import is_hypothesis_test

from tests.draws import DRAWS, SEARCH, draw_anew

SEARCHES = {
    "properties": ("tests/property", "tests/unit", "tests/chaos/test_schedule.py"),
    "requests": ("tests/integration/test_control_schema.py",),
}


class Search:
    """Runs the tests that draw, over and over."""

    def __init__(self, seconds: float, seed: int) -> None:
        self._seconds = seconds
        self._seed = self._first = seed
        self._ran = 0
        self._broken: dict[str, int] = {}

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        items[:] = [item for item in items if _draws(item)]

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        if session.testsfailed:
            return False  # nothing can be run: it could not be collected
        end = time.monotonic() + self._seconds
        # From anywhere: in a short time all tests have to have their turn.
        start = random.Random(self._first).randrange(len(session.items))
        turns = itertools.islice(itertools.cycle(session.items), start, None)
        for item, after in itertools.pairwise(turns):
            if time.monotonic() > end or self._broken:
                break
            self._seed = self._first + self._ran // len(session.items)
            draw_anew(self._seed)
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=after)
            self._ran += 1
        return True

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self._broken.setdefault(report.nodeid, self._seed)

    def told(self, name: str) -> str:
        broken = [f"{test} broke with seed {seed}" for test, seed in self._broken.items()]
        told = ", ".join(broken) or "nothing broke"
        return f"{name:16} {self._ran:9,} tests with seeds {self._first} to {self._seed}, {told}"


def _draws(item: pytest.Item) -> bool:
    """Of a test that makes its property as it runs, its module's name says it."""
    function = getattr(item, "obj", None)
    return is_hypothesis_test(function) or "test_control_schema" in item.nodeid


def main() -> int:
    name, seconds, seed = sys.argv[1:]
    search = Search(float(seconds), int(seed))
    # Hypothesis would draw the same every time where it takes the machine for a CI's.
    os.environ[DRAWS] = SEARCH
    hypothesis.settings.load_profile(SEARCH)
    quiet = ["-q", "--no-header", "--disable-warnings", "-rN", "-o", "console_output_style=classic"]
    code = pytest.main([*quiet, *SEARCHES[name]], plugins=[search])
    print(search.told(name), flush=True)
    return int(code)


if __name__ == "__main__":
    sys.exit(main())
