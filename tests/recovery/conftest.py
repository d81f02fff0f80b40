"""A broker and a PostgreSQL that may be lost with their data: nobody else's."""

from __future__ import annotations

import re
import uuid
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
import yaml
from psycopg import sql

from deploy.local.home import Home
from deploy.local.kernels import compiling
from deploy.local.stack import Stack
from dovetail.testing.pipeline import RunningPipeline
from tests.chaos.run import DOVETAIL, load_master, spec

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


@pytest.fixture(scope="session")
def stack(stack_environ: dict[str, str]) -> Iterator[Stack]:
    stack = Stack(Home(DOVETAIL / "recovery", DOVETAIL), environ=stack_environ, usual_ports={})
    stack.wipe()
    with stack:
        yield stack


@pytest.fixture(scope="session")
def kernels(stack: Stack) -> None:
    file = stack.home.run / "kernels.yaml"
    file.write_text(yaml.safe_dump(spec("srj")))
    with compiling(stack.home, file, print) as wait:
        wait()


@pytest.fixture
def database(stack: Stack) -> str:
    """Give the URL of a database of the test's own, with the master table."""
    name = f"shop_{uuid.uuid4().hex[:12]}"
    with psycopg.connect(stack.database_url, autocommit=True) as connection:
        connection.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
    url = stack.database.url_of(name)
    load_master(url)
    return url


@pytest.fixture
def make_pipeline(
    request: pytest.FixtureRequest, stack: Stack, kernels: None, database: str
) -> Callable[..., RunningPipeline]:
    """Make the test's pipeline, to be entered; made again it has the same name, file and folder."""
    folder = re.sub(r"[^a-z0-9]+", "-", request.node.name).strip("-")
    home = Home(stack.home.folder / "pipelines" / folder, DOVETAIL)
    name = f"test-{uuid.uuid4().hex[:12]}"

    def make(content: dict[str, Any], **environment: str) -> RunningPipeline:
        named = {"name": name, **content}
        return RunningPipeline(home, stack.bootstrap, database, named, environment=environment)

    return make
