"""Pipelines for end-to-end tests: each with a name, topics and processes of its own."""

from __future__ import annotations

import os
import re
import uuid
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest

from deploy.local.home import CHECKOUT, Home
from dovetail.pipeline.spec import Engine, Layout
from dovetail.stream.topics import admin_of
from dovetail.testing.pipeline import RunningPipeline
from dovetail.testing.threads import ThreadedPipeline
from tests.e2e import shop
from tests.kernels import compile_for_tests

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager
    from pathlib import Path

    from deploy.local.stack import Stack
    from tests.e2e.secured import Secured

ENGINE = Engine(os.environ.get("DOVETAIL_ENGINE") or Engine.SERVICES)
"""What runs the pipelines of all these tests: `make test-spark-e2e` sets it to spark."""

LAYOUT = Layout(os.environ.get("DOVETAIL_TESTED_LAYOUT") or Layout.SPLIT)
"""Which processes the services are: `make test-fused` sets it to fused."""

_STARTS_S = 1_800
"""Tests that kill Spark's driver wait for its starts, again and again."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if ENGINE is Engine.SPARK:
        for item in items:
            item.add_marker(pytest.mark.timeout(_STARTS_S), append=False)


@contextmanager
def running(pipeline: RunningPipeline) -> Iterator[None]:
    """Run a pipeline, and delete its topics afterwards."""
    try:
        with pipeline:
            yield
    finally:
        admin = admin_of(pipeline.settings)
        there = admin.list_topics(timeout=30).topics
        own = [name for name in there if name.startswith(pipeline.spec.name)]
        for deletion in admin.delete_topics(own).values() if own else ():
            deletion.result(30)


@pytest.fixture(scope="session")
def kernels(stack: Stack) -> None:
    """Compile what the services run, before seven processes at once would."""
    compile_for_tests(Home(stack.home.folder / "pipelines" / "kernels", CHECKOUT / ".dovetail"))


@pytest.fixture(scope="session")
def secured(stack_environ: dict[str, str]) -> Iterator[Secured]:
    """Start a secured stack, for all tests that need one."""
    from tests.e2e.secured import compile_kernels, secured_stack

    with secured_stack(stack_environ) as running:
        compile_kernels(running.stack, shop.INT.spec("inner"))
        yield running


@pytest.fixture
def database_name(secured: Secured) -> Iterator[str]:
    """Give the name of an empty database in the secured stack, dropped afterwards."""
    from tests.e2e.secured import database_of

    with database_of(secured.stack) as name:
        yield name


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
        named = _named({"engine": str(ENGINE), **spec})
        pipeline = RunningPipeline(home, stack.bootstrap, database, named, environment=environment)
        with running(pipeline):
            yield pipeline

    return run


@pytest.fixture
def run_within(
    request: pytest.FixtureRequest, stack: Stack, database: str, tmp_path: Path
) -> Callable[[dict[str, Any]], ThreadedPipeline]:
    """Run the pipeline of a spec in the test's own process, over the test's own database."""

    def run(spec: dict[str, Any]) -> ThreadedPipeline:
        named = _named(spec)
        of_test = tmp_path, stack.bootstrap, database, named
        if ENGINE is Engine.SERVICES:
            return ThreadedPipeline(*of_test)
        from dovetail.testing.spark import SparkPipeline

        return SparkPipeline(*of_test, request.getfixturevalue("spark"), stays=True)

    return run


def _named(spec: dict[str, Any]) -> dict[str, Any]:
    """Give the pipeline a name of its own, and the layout of all these tests."""
    laid_out = {} if ENGINE is Engine.SPARK else {"layout": str(LAYOUT)}
    return {"name": f"test-{uuid.uuid4().hex[:12]}", **laid_out, **spec}
