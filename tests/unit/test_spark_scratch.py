"""A run's folder goes with it, however it ends."""

from __future__ import annotations

import subprocess
import sys
from types import SimpleNamespace
from unittest.mock import MagicMock, Mock

import pytest
from py4j.protocol import Py4JJavaError

from dovetail.errors import Unavailable
from dovetail.pipeline.spec import Pipeline
from dovetail.settings import Settings
from services.spark import enrich
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


def test_a_folder_that_cannot_be_written_is_told_with_the_cure(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(Unavailable, match=r"file/in cannot be written .*SPARK_LOCAL_DIRS"):
        Scratch(tmp_path / "file" / "in", "run")
    scratch = Scratch(tmp_path, "run")
    scratch.path.rmdir()
    with pytest.raises(Unavailable, match=r"run-\w+ cannot be written .*SPARK_LOCAL_DIRS"):
        scratch.folder().__enter__()
    scratch.remove()


def test_a_full_disk_is_told_so_when_the_query_begins(tmp_path, monkeypatch):
    """A folder takes no room on many a full disk, but Spark's checkpoint does."""
    monkeypatch.setenv("SPARK_LOCAL_DIRS", str(tmp_path))
    full = Mock(_target_id="o1", toString=lambda: "java.io.IOException: No space left on device")
    spark = MagicMock()
    begun = spark.readStream.format().options().option()
    begun.option.return_value = begun
    written = begun.load().writeStream.foreachBatch().option()
    written.start.side_effect = Py4JJavaError("calling o38.start", full)
    pipeline = Pipeline.model_validate(
        {
            "name": "sales",
            "source": {"fields": {"sku": "int"}},
            "key": "sku",
            "master": {"table": "products", "columns": ["price"]},
        }
    )
    settings = Settings("nowhere:9092", "postgresql://nowhere/none", "pipeline.yaml")
    application = enrich.Enrichment(settings, pipeline, spark, print, 1)
    monkeypatch.setattr(application, "_take_over", lambda: (SimpleNamespace(pipeline=pipeline), {}))
    monkeypatch.setattr(application, "_placed", lambda *_: {})
    with pytest.raises(Unavailable, match=r"checkpoint .*No space left .*SPARK_LOCAL_DIRS"):
        application.start()
    application.stop()
    assert list(tmp_path.iterdir()) == []
