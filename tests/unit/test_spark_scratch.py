"""A run's folder goes with it, however it ends."""

from __future__ import annotations

import subprocess
import sys

from services.spark.scratch import Scratch


def test_it_is_removed_with_all_that_is_in_it(tmp_path):
    scratch = Scratch(tmp_path, "run")
    with scratch.folder() as one, scratch.folder() as other:
        (one / "file").touch()
        assert one.parent == other.parent == scratch.path != tmp_path
    assert not one.exists()
    scratch.remove()
    assert list(tmp_path.iterdir()) == []


def test_those_that_live_leave_each_other_alone(tmp_path):
    first, second = Scratch(tmp_path, "run"), Scratch(tmp_path, "run")
    assert first.path.exists()
    first.remove()
    assert second.path.exists()
    second.remove()


def test_what_a_killed_run_has_left_is_removed_by_the_next(tmp_path):
    program = (
        "import os, sys, pathlib\n"
        "from services.spark.scratch import Scratch\n"
        "Scratch(pathlib.Path(sys.argv[1]), 'run')\n"
        "os.kill(os.getpid(), 9)\n"
    )
    (tmp_path / "another").mkdir()
    subprocess.run([sys.executable, "-c", program, str(tmp_path)], check=False)
    (left,) = tmp_path.glob("run-*")
    scratch = Scratch(tmp_path, "run")
    assert not left.exists()
    assert scratch.path.exists()
    assert (tmp_path / "another").exists()
    scratch.remove()
