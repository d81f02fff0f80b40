"""A real broker and a real PostgreSQL for the whole test session.

They have a home and ports of their own, beside the stack of `make run`, and share its jars.
Each session starts empty; what a killed session left running is ended by the next one.
"""

from __future__ import annotations

import os
import uuid
from typing import TYPE_CHECKING

import hypothesis
import psycopg
import pytest
from confluent_kafka.admin import AdminClient
from psycopg import sql

from deploy.local.home import CHECKOUT, Home
from deploy.local.processes import sole_supervisor
from deploy.local.stack import Stack
from dovetail.errors import StackError
from tests.draws import DRAWS, SEARCH, draw_the_same

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

DOVETAIL = CHECKOUT / ".dovetail"

# A red run is the change's fault: whatever is random is searched by `make fuzz`, which sets this.
if os.environ.get(DRAWS) == SEARCH:
    hypothesis.settings.load_profile(SEARCH)
else:
    draw_the_same()

# Tests never touch what a developer's shell points to.
HIDDEN = {
    "KAFKA_BOOTSTRAP",
    "DATABASE_URL",
    "KAFKA_PORT",
    "KAFKA_CONTROLLER_PORT",
    "POSTGRES_PORT",
    "DOVETAIL_PORT_BASE",
    "DOVETAIL_HOME",
}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "stack" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.stack)


@pytest.fixture(scope="session")
def stack_environ() -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if name not in HIDDEN}
    return {"KAFKA_HEAP": "384m", **kept}


@pytest.fixture(scope="session")
def stack(stack_environ: dict[str, str]) -> Iterator[Stack]:
    stack = Stack(_unused_home(), environ=stack_environ, usual_ports={})
    stack.wipe()
    with stack:
        yield stack


@pytest.fixture(scope="session")
def spark(stack: Stack) -> Iterator[SparkSession]:
    """Start Spark in the tests' own process, once: it takes ten seconds."""
    from services.spark.session import spark_session
    from services.spark.settings import SparkSettings

    settings = SparkSettings(stack.bootstrap, stack.database_url, stack.home.folder / "none")
    session = spark_session(settings, "test")
    yield session
    session.stop()


@pytest.fixture
def bootstrap(stack: Stack) -> str:
    return stack.bootstrap


@pytest.fixture
def database_url(stack: Stack) -> str:
    """Give the stack's own database, which all tests share; see `database`."""
    return stack.database_url


@pytest.fixture
def kafka_namespace(bootstrap: str) -> Iterator[str]:
    """Give a prefix for topics and groups; topics that begin with it are deleted afterwards."""
    prefix = f"test-{uuid.uuid4().hex[:12]}-"
    yield prefix
    admin = AdminClient({"bootstrap.servers": bootstrap})
    topics = [name for name in admin.list_topics(timeout=30).topics if name.startswith(prefix)]
    for deletion in admin.delete_topics(topics).values() if topics else ():
        deletion.result(30)


@pytest.fixture
def database(database_url: str) -> Iterator[str]:
    """Give the URL of an empty database of the test's own, dropped afterwards."""
    name = f"test_{uuid.uuid4().hex[:12]}"
    with psycopg.connect(database_url, autocommit=True) as connection:
        connection.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
        yield f"{database_url.rpartition('/')[0]}/{name}"
        connection.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(sql.Identifier(name)))


def _unused_home() -> Home:
    """Return the first test home that no other test session of this checkout is using."""
    for number in range(1, 9):
        home = Home(DOVETAIL / ("test" if number == 1 else f"test-{number}"), DOVETAIL)
        try:
            with sole_supervisor(home):
                return home
        except StackError:
            continue
    raise StackError("eight test sessions are running in this checkout: wait for one to end")
