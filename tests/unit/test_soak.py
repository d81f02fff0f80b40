"""The soak's verdict: what it fails for, and what it lets pass."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bench.measure import MIB
from bench.soak import Sample, Soaked

if TYPE_CHECKING:
    from collections.abc import Callable

RATE = 1_000.0


def soaked(
    resident: Callable[[int], float] = lambda _: 200.0,
    held: Callable[[int], float] = lambda _: 4.0,
    lag: Callable[[int], int] = lambda _: 300,
    name: str = "cache_phase-0",
) -> Soaked:
    """Ten minutes, given what was resident (MiB), held (of 4 MiB) and behind at each second."""
    samples = [
        Sample(
            float(second),
            {name: int(resident(second) * MIB)},
            {name: (held(second) * MIB, 4.0 * MIB)},
            lag(second),
        )
        for second in range(600)
    ]
    return Soaked(RATE, 10, samples=samples, equation="in 1 = enriched 1", conserved=True)


def test_a_flat_run_passes() -> None:
    assert soaked().problems() == []


def test_growth_in_the_first_minutes_is_warming_up() -> None:
    assert soaked(resident=lambda second: 100 + min(second, 179)).problems() == []


def test_a_leak_fails() -> None:
    (problem,) = soaked(resident=lambda second: 200 + second / 6).problems()
    assert problem.startswith("cache_phase-0 grew from 234.9 to 294.9 MiB")


def test_the_brokers_memory_is_its_own_affair() -> None:
    assert soaked(resident=lambda second: 200 + second, name="kafka").problems() == []


def test_one_heartbeat_over_the_budget_fails() -> None:
    found = soaked(held=lambda second: 4.1 if second == 17 else 4.0).problems()
    assert found == ["cache_phase-0 held more than its budget"]


def test_ten_seconds_behind_fails_but_not_while_warming_up() -> None:
    assert soaked(lag=lambda second: 19_000 if second < 60 else 300).problems() == []
    found = soaked(lag=lambda second: 10_001 if second == 200 else 300).problems()
    assert found == ["10,001 events were behind, more than 10 s of them"]


def test_a_sum_that_is_off_and_a_restart_fail() -> None:
    run = soaked()
    run.conserved, run.restarts = False, 2
    assert run.problems() == [
        "the sum is off: in 1 = enriched 1",
        "services were started again 2 times",
    ]
