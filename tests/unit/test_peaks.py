"""The memory of every path of the join: its process never takes much more than the budget."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.unit.peaks import MIB, PATHS

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="measured by /proc")


@pytest.fixture(scope="module")
def peaks():
    done = subprocess.run(
        [sys.executable, "-m", "tests.unit.peaks", *PATHS],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    lines = [line.split() for line in done.stdout.splitlines()]
    return {name: (int(memory), int(peak)) for name, memory, peak in lines}


@pytest.mark.timeout(600)
@pytest.mark.parametrize("path", PATHS)
def test_a_process_takes_little_more_than_its_memory(path, peaks):
    memory, peak = peaks[path]
    assert peak < 1.5 * memory + 64 * MIB, f"{peak / MIB:.1f} MiB at memory={memory / MIB:.0f}MiB"
