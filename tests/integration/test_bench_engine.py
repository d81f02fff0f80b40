"""The engine's benchmark runs from end to end: on a tiny R, for windows of milliseconds."""

import math
import os

import pytest

from bench.engine import data
from bench.engine.__main__ import QUICK, Settings, measure
from bench.engine.setup import Cell
from deploy.local.home import CHECKOUT

FIGURES = {
    "cache_hits_per_s",
    "ssbj_over_meshjoin_skew1",
    "ssbj_over_optimum",
    "ssbj_over_meshjoin_skew0",
    "hybrid_over_meshjoin_min",
    "meshjoin_over_inlj",
    "pcsrj2_over_cachejoin",
    "srj_over_tuple",
    "auto_over_best_min",
    "cloop_error_max",
}


@pytest.fixture
def folder(monkeypatch):
    """Files of this test alone, so that it can run beside a benchmark; its database's, too."""
    chosen = CHECKOUT / ".dovetail" / f"test-bench-{os.getpid()}"
    monkeypatch.setattr(data, "FOLDER", chosen)
    yield chosen
    data.clear()


@pytest.mark.usefixtures("folder")
def test_every_figure_is_measured(capsys):
    cells = [Cell(20_000, skew, 0.1) for skew in (0.0, 1.0)]
    settings = Settings(
        cells,
        QUICK,
        warm_up=0.05,
        window=0.02,
        windows=3,
        calibration=0.05,
        single=0.1,
        looked_up=2_000,
    )
    figures = measure(settings)
    assert set(figures) >= FIGURES
    assert all(math.isfinite(figure) and figure >= 0 for figure in figures.values())
    assert figures["cache_hits_per_s"] > 0
    told = capsys.readouterr().out
    for algorithm in QUICK:
        assert told.count(f"\n  {algorithm:12} ") == len(cells)
