"""`make test` is no lottery: what a test draws, it draws every time; `make fuzz` searches."""

from __future__ import annotations

import subprocess
import sys

import hypothesis
from hypothesis import HealthCheck, given
from hypothesis import strategies as st
from hypothesis.internal.conjecture import providers

from deploy.local.home import CHECKOUT
from dovetail.join.seeds import SEEDS

RARE = """
from hypothesis import given, settings, strategies as st

@settings(max_examples=10)
@given(st.integers(0, 2**40))
def test_rare(number):
    assert number % 23 != 5

@given(st.integers())
def test_fine(number):
    assert number == number

def test_draws_nothing():
    raise AssertionError
"""


def drawn():
    found = []

    @given(st.lists(st.integers() | st.text()))
    def look(values):
        found.append(values)

    look()
    return found


def test_a_test_draws_the_same_every_time():
    first = drawn()
    assert len(first) > 50
    assert drawn() == first


def test_what_a_test_draws_does_not_depend_on_the_modules_that_others_loaded():
    assert len(providers._get_local_constants()) == 0


def test_no_example_fails_by_the_clock():
    settings = hypothesis.settings()
    assert settings.deadline is None
    assert HealthCheck.too_slow in settings.suppress_health_check


def test_a_search_goes_on_with_new_seeds_and_tells_which_one_broke_a_test(tmp_path):
    file = tmp_path / "test_rare.py"
    file.write_text(RARE)
    program = (
        "import sys; from tests.fuzz import search;"
        f"search.SEARCHES['rare'] = ({str(file)!r},);"
        "sys.argv[1:] = ['rare', '200', '4']; sys.exit(search.main())"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=CHECKOUT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 1, done.stdout + done.stderr
    told = done.stdout[done.stdout.index("\nrare ") :]
    assert "with seeds 4 to " in told
    assert "test_rare.py::test_rare broke with seed " in told
    assert "test_rare(\n" in done.stdout  # with the number


def test_tables_in_memory_are_the_same_every_time():
    assert SEEDS.tolist()[:2] == [11530976094092348043, 16550673365885938325]
