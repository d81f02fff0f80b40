from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import psutil
import psycopg
import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from deploy.local.home import CHECKOUT, Home
from deploy.local.ports import KAFKA
from deploy.local.processes import birth
from deploy.local.stack import Stack
from dovetail.errors import ConfigError, StackError, Unavailable

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.stack

SUPERVISOR = """
import sys, time
from pathlib import Path
from deploy.local.home import Home
from deploy.local.stack import Stack
with Stack(Home(Path(sys.argv[1]), Path(sys.argv[2])), usual_ports={}, report=lambda _: None):
    print("up", flush=True)
    time.sleep(600)
"""


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path / "home", CHECKOUT / ".dovetail")


def fresh(home: Home, environ: dict[str, str]) -> Stack:
    return Stack(home, environ=environ, usual_ports={})


def create_topic(bootstrap: str, name: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(name, 1, 1)])[name].result(30)


def topics(bootstrap: str) -> set[str]:
    return set(AdminClient({"bootstrap.servers": bootstrap}).list_topics(timeout=30).topics)


def records(home: Home) -> list[dict[str, Any]]:
    return [json.loads(path.read_text()) for path in home.run.glob("*.pid")]


def test_topics_and_rows_survive_a_restart_beside_another_stack(
    home: Home, stack: Stack, stack_environ: dict[str, str]
) -> None:
    with fresh(home, stack_environ) as first:
        assert first.bootstrap != stack.bootstrap
        create_topic(first.bootstrap, "kept")
        with psycopg.connect(first.database_url) as connection:
            connection.execute("CREATE TABLE kept AS SELECT 1 AS one")
        assert "kept" not in topics(stack.bootstrap)
    assert records(home) == []
    with fresh(home, stack_environ) as second:
        assert "kept" in topics(second.bootstrap)
        with psycopg.connect(second.database_url) as connection:
            assert connection.execute("SELECT one FROM kept").fetchall() == [(1,)]


@pytest.fixture
def killed_supervisor(home: Home, stack_environ: dict[str, str]) -> list[dict[str, Any]]:
    supervisor = subprocess.Popen(
        [sys.executable, "-c", SUPERVISOR, home.folder, CHECKOUT / ".dovetail"],
        env=stack_environ,
        cwd=CHECKOUT,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert supervisor.stdout is not None
    assert supervisor.stdout.readline() == "up\n"
    left = records(home)
    supervisor.kill()
    supervisor.communicate()
    return left


def test_a_start_after_a_killed_supervisor_works_and_ends_what_it_left(
    home: Home, killed_supervisor: list[dict[str, Any]], stack_environ: dict[str, str]
) -> None:
    assert {record["name"] for record in killed_supervisor} == {"kafka", "postgres"}
    with fresh(home, stack_environ) as stack:
        assert [birth(r["pid"]) == r["birth"] for r in killed_supervisor] == [False, False]
        create_topic(stack.bootstrap, "works")
        stack.check()


def test_half_formatted_storage_is_formatted_again(
    home: Home, stack: Stack, stack_environ: dict[str, str]
) -> None:
    for name in ("kafka", "kafka.partial"):
        (home.data / name).mkdir()
        (home.data / name / "meta.properties").write_text("#\nversion=1\n")
    with fresh(home, {**stack_environ, "DATABASE_URL": stack.database_url}) as half_external:
        assert half_external.database_url == stack.database_url
        create_topic(half_external.bootstrap, "works")
        with pytest.raises(StackError, match=f"run by process {os.getpid()}"):
            half_external.wipe()
    half_external.wipe()
    assert list(home.data.iterdir()) == []


def test_an_unformatted_folder_with_topics_in_it_is_never_deleted(
    home: Home, stack: Stack, stack_environ: dict[str, str]
) -> None:
    segment = home.data / "kafka" / "sales-0" / "00000000000000000000.log"
    segment.parent.mkdir(parents=True)
    segment.write_bytes(b"messages")
    with (
        pytest.raises(StackError, match="holds topics"),
        fresh(home, {**stack_environ, "DATABASE_URL": stack.database_url}),
    ):
        pass
    assert segment.read_bytes() == b"messages"


def test_a_taken_port_is_named_with_its_holder(home: Home, stack_environ: dict[str, str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        with (
            pytest.raises(StackError, match=rf"port {port} \(KAFKA_PORT\) .* {os.getpid()} "),
            fresh(home, {**stack_environ, KAFKA: str(port)}),
        ):
            pass


def test_without_java_the_error_says_what_to_install(
    home: Home, stack_environ: dict[str, str]
) -> None:
    environ = {name: value for name, value in stack_environ.items() if name != "JAVA_HOME"}
    with (
        pytest.raises(StackError, match="install Java 17"),
        fresh(home, {**environ, "PATH": ""}),
    ):
        pass


def test_a_start_that_fails_half_way_leaves_nothing_running(
    home: Home, stack_environ: dict[str, str]
) -> None:
    before = {child.pid for child in psutil.Process().children()}
    with (
        pytest.raises(StackError, match="kafka ended by itself"),
        fresh(home, {**stack_environ, "KAFKA_HEAP": "1m"}),
    ):
        pass
    assert {child.pid for child in psutil.Process().children()} <= before
    assert records(home) == []


def test_a_heap_that_is_no_size_is_a_configuration_error(
    home: Home, stack_environ: dict[str, str]
) -> None:
    with (
        pytest.raises(ConfigError, match="KAFKA_HEAP"),
        fresh(home, {**stack_environ, "KAFKA_HEAP": "lots"}),
    ):
        pass


def test_what_the_environment_names_is_used_and_not_started(
    home: Home, stack: Stack, stack_environ: dict[str, str]
) -> None:
    with fresh(home, {**stack_environ, **stack.environment()}) as external:
        assert external.environment() == stack.environment()
        assert records(home) == []


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("KAFKA_BOOTSTRAP", "127.0.0.1:9"),
        ("DATABASE_URL", "postgresql://someone:secret@127.0.0.1:9/none"),
    ],
)
def test_an_unreachable_service_is_named_without_its_password(
    home: Home, stack: Stack, stack_environ: dict[str, str], variable: str, value: str
) -> None:
    with (
        pytest.raises(Unavailable, match=variable) as caught,
        fresh(home, {**stack_environ, **stack.environment(), variable: value}),
    ):
        pass
    assert "secret" not in str(caught.value)
