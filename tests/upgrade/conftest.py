"""Pipelines that run the previous release's code, until it is exchanged."""

from __future__ import annotations

import re
import uuid
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from deploy.local.home import CHECKOUT, Home
from deploy.local.kernels import compiling
from dovetail.testing.pipeline import RunningPipeline
from tests.chaos.load import Load
from tests.e2e.conftest import running
from tests.upgrade.releases import PREVIOUS, code_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager
    from pathlib import Path

    from deploy.local.stack import Stack

DOVETAIL = CHECKOUT / ".dovetail"
_LOGS_KEPT = 20


@pytest.fixture(scope="session")
def previous() -> Path:
    """Give the folder of the previous release's code."""
    return code_of(PREVIOUS, Home(DOVETAIL))


@pytest.fixture
def run_previous(
    request: pytest.FixtureRequest, stack: Stack, previous: Path, database: str
) -> Callable[[dict[str, Any]], AbstractContextManager[RunningPipeline]]:
    """Run the pipeline of a spec by the previous release; the kernels of both are compiled."""
    folder = re.sub(r"[^a-z0-9]+", "-", request.node.name).strip("-")
    home = Home(stack.home.folder / "pipelines" / folder, DOVETAIL, _LOGS_KEPT)

    @contextmanager
    def run(spec: dict[str, Any]) -> Iterator[RunningPipeline]:
        named = {**spec, "name": f"test-{uuid.uuid4().hex[:12]}"}
        file = home.run / "kernels.yaml"
        file.write_text(yaml.safe_dump(named))
        for code in (previous, CHECKOUT):
            with compiling(home, file, print, code) as wait:
                wait()
        pipeline = RunningPipeline(home, stack.bootstrap, database, named, code=previous)
        with running(pipeline):
            yield pipeline

    return run


@contextmanager
def under_load(*of_load: Any) -> Iterator[Load]:
    load = Load(*of_load)
    load.start()
    try:
        yield load
    finally:
        load.stop()
