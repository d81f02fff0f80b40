"""One PostgreSQL server on the loopback, its data in the stack's home."""

from __future__ import annotations

import os
import secrets
import shutil
import signal
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil
import psycopg
from psycopg import sql

from deploy.local.files import last_lines, write_atomically
from deploy.local.postgres_binaries import Binaries, find_binaries
from deploy.local.processes import Managed, end, run_tool
from deploy.local.substitute_user import SubstituteUser
from dovetail.errors import StackError, Unavailable
from dovetail.settings import parts_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from deploy.local.home import Home
    from deploy.local.security import Security

NAME = "dovetail"

SETTINGS = {
    "listen_addresses": "127.0.0.1",
    "unix_socket_directories": "",
    "max_connections": "50",
    "shared_buffers": "128MB",
    "fsync": "on",
    # Loading the demo's master data is a few large writes.
    "max_wal_size": "2GB",
    "log_line_prefix": "%t [%p] ",
}

TLS_SETTINGS = {"ssl": "on", "ssl_min_protocol_version": "TLSv1.2"}
_TLS_ALONE = """\
hostssl all all 127.0.0.1/32 scram-sha-256
"""


class Database:
    def __init__(
        self,
        home: Home,
        port: int,
        environ: Mapping[str, str] = os.environ,
        security: Security | None = None,
    ) -> None:
        self._home = home
        self._security = security
        self._port = port
        self._data = home.data / "postgres"
        self._password = home.data / "postgres.password"
        self._user = SubstituteUser.for_root() if os.geteuid() == 0 else None
        self._binaries: Binaries = find_binaries(
            environ, _version_of_data(self._data), tls=security is not None
        )
        self._wrapper = self._user.wrapper() if self._user else []
        self._environ = {**environ, "LC_ALL": "C.UTF-8"}
        settings = {**SETTINGS, **(TLS_SETTINGS if security else {}), "port": str(port)}
        self._process = Managed(
            home,
            "postgres",
            [
                self._binaries.folder / "postgres",
                "-D",
                self._data,
                *(word for name, value in settings.items() for word in ("-c", f"{name}={value}")),
            ],
            env=self._environ,
            cwd=Path("/"),
            # "Fast": open connections are ended. SIGTERM would wait for each client to leave.
            stop_signal=signal.SIGINT,
            wrapper=self._wrapper,
        )

    @property
    def url(self) -> str:
        return self._url(NAME)

    def prepare(self) -> None:
        """Make the data folder, if there is none."""
        if not (self._data / "global" / "pg_control").exists():
            self._initialise()
        self._check_data()
        self._take_over()
        if self._security is not None:
            self._secure(self._security)
        if self._user:
            self._user.own(self._data)
        elif self._data.stat().st_uid != os.geteuid():
            raise StackError(
                f"{self._data} belongs to another user: start the stack as before, or delete it"
            )

    def start(self) -> None:
        self._process.start()

    def wait_until_healthy(self, timeout_s: float = 180.0) -> None:
        """Wait until it answers, recovery after a crash included, and holds the database."""
        deadline = time.monotonic() + timeout_s
        while True:
            self._process.check()
            try:
                with psycopg.connect(
                    self._url("postgres"), connect_timeout=2, autocommit=True
                ) as c:
                    _create_database(c)
                    return
            except psycopg.OperationalError as error:
                if time.monotonic() > deadline:
                    raise StackError(
                        f"PostgreSQL did not answer at port {self._port} within {timeout_s:.0f} s "
                        f"({error}). The end of {self._process.log}:\n"
                        f"{last_lines(self._process.log)}"
                    ) from error
            time.sleep(0.05)

    def send(self, number: signal.Signals) -> None:
        """Send the server a signal, without waiting; `prepare` and `start` bring it back."""
        self._process.send(number)

    def check(self) -> None:
        """Raise if the server has ended by itself."""
        self._process.check()

    def stop(self, grace_s: float = 30.0) -> None:
        self._process.stop(grace_s)

    def _initialise(self) -> None:
        """Initialise beside the final place and rename: a crash leaves nothing half-made there."""
        partial = self._data.with_name("postgres.partial")
        for half_made in (partial, self._data):
            shutil.rmtree(half_made, ignore_errors=True)
        partial.mkdir(mode=0o700)
        password_file = self._data.with_name("postgres.partial.password")
        if not self._password.exists():
            write_atomically(self._password, secrets.token_urlsafe(24), mode=0o600)
        write_atomically(password_file, self._password.read_text(), mode=0o600)
        if self._user:
            self._user.own(partial)
            self._user.own(password_file)
        command: list[str | Path] = [
            self._binaries.folder / "initdb",
            f"--pgdata={partial}",
            f"--username={NAME}",
            f"--pwfile={password_file}",
            "--auth=scram-sha-256",
            "--encoding=UTF8",
            "--locale=C",
        ]
        try:
            run_tool(
                "initdb",
                command,
                self._home.logs / "initdb.log",
                wrapper=self._wrapper,
                env=self._environ,
                cwd=Path("/"),
            )
        finally:
            password_file.unlink()
        partial.rename(self._data)

    def _secure(self, security: Security) -> None:
        """Put certificate, key and rules beside the data, where the server may read them."""
        files = {
            "server.crt": security.certificates.server.read_text(),
            "server.key": security.certificates.key.read_text(),
            "pg_hba.conf": _TLS_ALONE,
        }
        for name, text in files.items():
            file = self._data / name
            write_atomically(file, text, mode=0o600)
            if self._user:
                self._user.own(file)

    def _check_data(self) -> None:
        if _version_of_data(self._data) is None:
            raise StackError(
                f"{self._data} has lost its PG_VERSION and cannot be opened: restore that file, "
                "or delete the folder to start empty"
            )
        if not self._password.exists():
            raise StackError(
                f"{self._password} is gone, and without it nobody can open {self._data}: "
                "restore the file, or delete the folder to start empty"
            )

    def _take_over(self) -> None:
        """End what is left of a killed server, and remove its lock file.

        PostgreSQL would refuse to start while that file names a pid which exists: its own
        zombie where no init collects it, or a stranger's after a reboot. The stack's lock makes
        this safe: whatever works in this folder now is nobody's.
        """
        lock = self._data / "postmaster.pid"
        if not lock.exists():
            return
        folder = str(self._data.resolve())
        for process in psutil.process_iter(["name", "cwd"]):
            if process.info["name"] == "postgres" and process.info["cwd"] == folder:
                end(process, signal.SIGINT, grace_s=20.0)
        lock.unlink(missing_ok=True)

    def _url(self, database: str) -> str:
        password = self._password.read_text()
        address = f"postgresql://{NAME}:{password}@127.0.0.1:{self._port}/{database}"
        return address + (self._security.database_query() if self._security else "")

    def url_of(self, database: str) -> str:
        """The URL of another database of this server, for its owner."""
        return self._url(database or NAME)

    def address_for(self, role: str, database: str = "") -> str:
        """The URL for a role, without its password."""
        query = self._security.database_query() if self._security else ""
        return f"postgresql://{role}@127.0.0.1:{self._port}/{database or NAME}{query}"


def check_database(url: str) -> None:
    """Raise unless the database answers. The message never shows the password."""
    parts = parts_of(url, "DATABASE_URL")
    try:
        psycopg.connect(url, connect_timeout=10).close()
    except psycopg.Error as error:
        raise Unavailable(
            f"no PostgreSQL answers at {_without_password(parts)} (DATABASE_URL): {error}\n"
            "Correct the address, or unset it to have a local server started"
        ) from None


def _without_password(parts: Mapping[str, Any]) -> str:
    return " ".join(f"{name}={value}" for name, value in parts.items() if name != "password")


def _create_database(connection: psycopg.Connection) -> None:
    found = connection.execute("SELECT 1 FROM pg_database WHERE datname = %s", [NAME]).fetchone()
    if not found:
        connection.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(NAME)))


def _version_of_data(data: Path) -> int | None:
    """Return the major version that made the folder; None if that is not known."""
    try:
        return int((data / "PG_VERSION").read_text())
    except (FileNotFoundError, ValueError):
        return None
