"""Pipelines for end-to-end tests: each with a name, topics and processes of its own."""

from __future__ import annotations

import re
import uuid
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from deploy.local.home import CHECKOUT, Home
from deploy.local.kernels import compiling
from dovetail.stream.topics import admin_of
from dovetail.testing.pipeline import RunningPipeline
from tests.e2e import shop

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager

    from deploy.local.stack import Stack


@pytest.fixture(scope="session")
def kernels(stack: Stack) -> None:
    """Compile what the services run, before seven processes at once would."""
    home = Home(stack.home.folder / "pipelines" / "kernels", CHECKOUT / ".dovetail")
    for shape in (shop.INT, shop.COMPOSITE):
        file = home.run / "pipeline.yaml"
        file.write_text(yaml.safe_dump({"name": "kernels", **shape.spec("inner")}))
        with compiling(home, file, print) as wait:
            wait()


@pytest.fixture
def run_pipeline(
    request: pytest.FixtureRequest, stack: Stack, kernels: None, database: str
) -> Callable[..., AbstractContextManager[RunningPipeline]]:
    """Run the pipeline of a spec over the test's own database; its topics are deleted afterwards.

    Logs stay in a folder named after the test, until the test runs again.
    """
    folder = re.sub(r"[^a-z0-9]+", "-", request.node.name).strip("-")
    home = Home(stack.home.folder / "pipelines" / folder, CHECKOUT / ".dovetail")

    @contextmanager
    def run(spec: dict[str, Any], **environment: str) -> Iterator[RunningPipeline]:
        named = {"name": f"test-{uuid.uuid4().hex[:12]}", **spec}
        pipeline = RunningPipeline(home, stack.bootstrap, database, named, environment=environment)
        try:
            with pipeline:
                yield pipeline
        finally:
            admin = admin_of(pipeline.settings)
            own = [topic.name for topic in pipeline.topology.topics()]
            own = [name for name in own if name.startswith(named["name"])]
            for deletion in admin.delete_topics(own).values():
                deletion.result(30)

    return run
