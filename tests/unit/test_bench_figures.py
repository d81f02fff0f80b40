"""The benchmark's last line and its table, of made-up figures."""

import json

import pytest

from bench.arrivals import Latency
from bench.children import Sent
from bench.figures import AUTO, Figures, Scripted, summary, table
from bench.layouts import Measured
from bench.measure import MIB, Resident
from bench.sustained import HALF, HIGH, LOW, Sustained
from bench.trial import Drained

RESIDENT = {
    "control": Resident(100 * MIB, 80 * MIB, 70 * MIB),
    "cache_phase-0": Resident(300 * MIB, 280 * MIB, 270 * MIB),
}


def sustained(rate, p50_ms, share=None):
    sent = Sent(1, round(rate * 10), 10.0, 0.0)
    cpu_s = {"kafka": 0.3, "ingest": 0.2, "generator": 9.0, "reader": 9.0}
    return Sustained(rate, share, sent, Latency(10, p50_ms, p50_ms * 2, p50_ms * 3), cpu_s, 0.0)


def drained(rate):
    cpu_s = {"kafka": 3.0, "ingest": 1.0, "mapper": 0.5, "cache_phase-0": 2.0, "disk_phase-0": 1.5}
    counts = {"reads": 300.0}
    return Drained(rate, rate, 1_000_000, 0.7, 300_000, cpu_s, 0.0, counts)


def scripted(rate, cpu_s, queries):
    result = {"events_per_s": rate, "seconds": 10.0, "hit_rate": 0.72, "queries": queries}
    return Scripted(result, cpu_s, 0.0, 200 * MIB)


@pytest.fixture
def figures():
    held = [sustained(LOW, 120), sustained(HIGH, 300), sustained(50_000, 610, HALF)]
    held.append(sustained(80_000, 1_000, 0.8))
    return Figures(
        relation_bytes=185 * MIB,
        memory=9 * MIB,
        resident_memory=32 * MIB,
        nodes=1,
        pipelines={AUTO: drained(100_000.0), "srj": drained(80_000.0)},
        layouts={"split": Measured(drained(100_000.0), held, 6.5, RESIDENT)},
        preload_rate=500_000.0,
        resident={"ingest": 200 * MIB},
        held={"cache_phase-0": (4.0 * MIB, 4.6 * MIB)},
        lru=scripted(50_000.0, {"kafka": 4.0, "lru": 6.0}, 100.0),
        lru_sustained=[sustained(LOW, 15), sustained(HIGH, 20)],
        copy_sustained=[sustained(HIGH, 8)],
        one_by_one=scripted(3_000.0, {"tuple": 9.0}, 30_000.0),
        broker_rate=350_000.0,
    )


def test_the_last_line_has_a_layouts_figures_by_its_name(figures):
    result = json.loads(json.dumps(summary(figures)))
    expected = {
        "split_over_lru": 2.0,
        # 8 s for a million events, where the script takes 10 s for half a million.
        "split_cpu_over_lru": 0.4,
        "split_over_broker": 0.29,
        "split_p50_ms_1k": 120,
        "split_p99_ms_1k": 240,
        "split_p50_ms_20k": 300,
        "split_p99_ms_20k": 600,
        "split_p50_ms_half": 610,
        "split_p99_ms_half": 1220,
        "split_p50_over_lru_1k": 8.0,
        "split_p50_over_lru_20k": 15.0,
        "split_p50_over_copy_20k": 37.5,
        "split_resident_mib": 400,
        "split_pss_mib": 360,
        "split_start_s": 6.5,
    }
    assert {key: value for key, value in result.items() if key.startswith("split_")} == expected
    assert (result["lru_p50_ms_20k"], result["copy_p50_ms_20k"]) == (20, 8)


def test_a_second_layout_has_the_same_keys_under_its_own_name(figures):
    held = figures.layouts["split"].sustained
    figures.layouts["fused"] = Measured(drained(150_000.0), held, 3.0, RESIDENT)
    result = summary(figures)
    ours, theirs = (
        {key.removeprefix(name) for key in result if key.startswith(name)}
        for name in ("split_", "fused_")
    )
    assert ours == theirs
    assert (result["fused_over_lru"], result["fused_start_s"]) == (3.0, 3.0)
    assert "fused: first output 3.0 s" in table(result)


def test_what_was_drained_over_a_snapshot_is_compared_too(figures):
    figures.layouts["split"].snapshot = drained(175_000.0)
    result = summary(figures)
    assert (result["split_snapshot_over_lru"], result["split_snapshot_over_broker"]) == (3.5, 0.5)
    assert "split over a snapshot: 3.5 times the script, and 0.5" in table(result)


def test_what_the_readme_quotes_is_still_there(figures):
    result = summary(figures)
    assert (result["p50_ms"], result["p99_ms"]) == (610, 1220)
    assert (result["auto_over_lru"], result["auto_over_best_min"]) == (2.0, 1.25)
    assert result["algorithms"]["srj"]["cpu_s_per_million"] == 8.0


def test_cpu_at_a_rate_is_without_the_generators_and_the_readers(figures):
    (at,) = (at for at in summary(figures)["latency_at_rate"] if at["who"] == "copy")
    assert at["cpu_s_per_million"] == 2.5


def test_the_table_says_what_each_process_has_in_memory_and_all_together(figures):
    shown = table(summary(figures)).splitlines()
    at = next(i for i, line in enumerate(shown) if line.startswith("split: in memory"))
    assert [line.split() for line in shown[at + 2 : at + 5]] == [
        ["cache_phase-0", "300.0", "280.0", "270.0"],
        ["control", "100.0", "80.0", "70.0"],
        ["all", "400.0", "360.0", "340.0"],
    ]


def test_the_table_has_a_line_for_each_rate(figures):
    shown = [line.split() for line in table(summary(figures)).splitlines()]
    assert ["auto,", "split", "1,000", "120", "240", "360", "50.00"] in shown
    assert ["auto,", "split", "50%", "=", "50,000", "610", "1,220", "1,830", "1.00"] in shown
    assert ["bare", "copy", "20,000", "8", "16", "24", "2.50"] in shown


def test_a_rate_that_others_disturbed_is_named(figures):
    assert "noisy" not in table(summary(figures))
    figures.copy_sustained[0].others = 0.3
    assert "others took 30% of the cores beside copy at 20k" in table(summary(figures)).replace(
        "other processes", "others"
    )
