"""Which ports the stack listens on.

1. A port the user asked for (`KAFKA_PORT=…`) is taken or it is an error: never another one.
2. Otherwise the port of the last start, so that bookmarks and clients keep working.
3. Otherwise the usual one, and if that is taken, any free one.
"""

from __future__ import annotations

import json
import os
import random
import socket
import sys
from typing import TYPE_CHECKING

import psutil

from deploy.local.files import write_atomically
from dovetail.errors import ConfigError, StackError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from deploy.local.home import Home

KAFKA = "KAFKA_PORT"
KAFKA_CONTROLLER = "KAFKA_CONTROLLER_PORT"
POSTGRES = "POSTGRES_PORT"
SERVICES = "DOVETAIL_PORT_BASE"
PROMETHEUS = "PROMETHEUS_PORT"

USUAL = {
    KAFKA: 19092,
    KAFKA_CONTROLLER: 19093,
    POSTGRES: 15432,
    SERVICES: 18080,
    PROMETHEUS: 19090,
}

_RECORD = "ports.json"

# Below Linux's range for outgoing connections (32768 and up): a port found free here is not
# given to some client's socket before the broker binds it, seconds later.
SEARCHED = range(20_000, 32_000)


class Ports:
    """Chooses each port once and never gives one port to two askers."""

    def __init__(
        self,
        home: Home,
        environ: Mapping[str, str] = os.environ,
        usual: Mapping[str, int] = USUAL,
    ) -> None:
        self._environ = environ
        self._usual = usual
        self._record = home.run / _RECORD
        self._last = _read(self._record)
        self._chosen: dict[str, int] = {}

    def choose(self, variable: str) -> int:
        """Return the port that the environment `variable` asks for, or a free one."""
        wanted = self._environ.get(variable)
        port = _asked_for(variable, wanted) if wanted else self._free(variable)
        self._remember(variable, port)
        return port

    def choose_services(self, names: Sequence[str]) -> dict[str, int]:
        """Return one port a service: consecutive ones from the base that the user set."""
        base = self._environ.get(SERVICES)
        if base:
            first = _number(SERVICES, base)
            ports = {
                name: _asked_for(SERVICES, str(first + index)) for index, name in enumerate(names)
            }
        else:
            first = self._usual.get(SERVICES, 0)
            ports = {
                name: self._free(name, first + index if first else 0)
                for index, name in enumerate(names)
            }
        for name, port in ports.items():
            self._remember(name, port)
        return ports

    def _free(self, name: str, usual: int = 0) -> int:
        usual = usual or self._usual.get(name, 0)
        for port in (self._last.get(name, 0), usual, *_anywhere()):
            if port and port not in self._chosen.values() and is_free(port) and _reserve(port):
                self._chosen[name] = port
                return port
        raise StackError(
            f"no free port between {SEARCHED.start} and {SEARCHED.stop} for {name}: "
            "end what holds them, or name one in the environment"
        )

    def _remember(self, name: str, port: int) -> None:
        self._chosen[name] = port
        write_atomically(self._record, json.dumps({**self._last, **self._chosen}, indent=1))


def last_ports(home: Home) -> dict[str, int]:
    """The ports of the last start, by name; nothing is made where there was none."""
    return _read(home.folder / "run" / _RECORD)


def is_free(port: int) -> bool:
    with socket.socket() as probe:
        # As Kafka and PostgreSQL do: connections of an ended server do not keep its port.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


_reserved: dict[int, socket.socket] = {}


def _reserve(port: int) -> bool:
    """Keep a port from other checkouts that start at the same moment; False if one was faster.

    Seconds pass between finding a port free and the server's binding it. A name in Linux's
    abstract namespace is held for as long as this process lives and leaves no file behind.
    """
    if sys.platform != "linux" or port in _reserved:
        return True
    reservation = socket.socket(socket.AF_UNIX)
    try:
        reservation.bind(f"\0dovetail.port.{port}")
    except OSError:
        reservation.close()
        return False
    _reserved[port] = reservation
    return True


def holder(port: int) -> str:
    """Describe who listens on `port`, as far as this user may know."""
    try:
        listeners = psutil.net_connections("tcp")
    except psutil.AccessDenied:
        listeners = []
    for listener in listeners:
        listens = listener.status == psutil.CONN_LISTEN and listener.laddr
        if listens and listens.port == port and listener.pid:
            return _described(listener.pid)
    return "another process"


def _described(pid: int) -> str:
    try:
        command = " ".join(psutil.Process(pid).cmdline())
    except psutil.Error:
        command = "?"
    return f"process {pid} ({command[:120]})"


def _asked_for(variable: str, value: str) -> int:
    port = _number(variable, value)
    if not is_free(port) or not _reserve(port):
        raise StackError(
            f"port {port} ({variable}) is taken by {holder(port)}: "
            f"end it, or set {variable} to another port or not at all"
        )
    return port


def _number(variable: str, value: str) -> int:
    if value.isdecimal() and 0 < int(value) < 65_536:
        return int(value)
    raise ConfigError(f"{variable} is not a port: give a number from 1 to 65535")


def _anywhere() -> Iterator[int]:
    for _ in range(1_000):
        yield random.choice(SEARCHED)  # noqa: S311 - spreads stacks over ports; no secret


def _read(record: Path) -> dict[str, int]:
    try:
        ports = json.loads(record.read_text())
    except (FileNotFoundError, ValueError):
        return {}
    return {name: port for name, port in ports.items() if isinstance(port, int)}
