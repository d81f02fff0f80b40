from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from deploy.local.home import CHECKOUT, Home
from deploy.local.ports import KAFKA, POSTGRES, SEARCHED, SERVICES, Ports
from dovetail.errors import ConfigError, StackError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path)


@pytest.fixture
def taken() -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


def test_a_usual_port_is_chosen_while_it_is_free(home: Home) -> None:
    usual = free_port()
    assert Ports(home, {}, {KAFKA: usual}).choose(KAFKA) == usual


def test_a_taken_usual_port_gives_way_to_a_free_one(home: Home, taken: int) -> None:
    assert Ports(home, {}, {KAFKA: taken}).choose(KAFKA) in SEARCHED


def test_a_port_asked_for_is_chosen(home: Home) -> None:
    wanted = free_port()
    assert Ports(home, {KAFKA: str(wanted)}).choose(KAFKA) == wanted


def test_a_taken_port_asked_for_is_an_error_naming_port_holder_and_variable(
    home: Home, taken: int
) -> None:
    with pytest.raises(StackError) as caught:
        Ports(home, {KAFKA: str(taken)}).choose(KAFKA)
    message = str(caught.value)
    assert f"port {taken}" in message
    assert f"process {os.getpid()} " in message
    assert "set KAFKA_PORT" in message


@pytest.mark.parametrize("value", ["kafka", "0", "65536", "-1", "90.92"])
def test_what_is_not_a_port_is_a_configuration_error(home: Home, value: str) -> None:
    with pytest.raises(ConfigError, match=KAFKA):
        Ports(home, {KAFKA: value}).choose(KAFKA)


def test_a_second_start_gets_the_same_port(home: Home) -> None:
    first = Ports(home, {}, {}).choose(POSTGRES)
    assert Ports(home, {}, {POSTGRES: free_port()}).choose(POSTGRES) == first


def test_a_damaged_record_of_ports_is_ignored(home: Home) -> None:
    (home.run / "ports.json").write_text('{"KAFKA_PORT": ')
    port = Ports(home, {}, {}).choose(KAFKA)
    assert json.loads((home.run / "ports.json").read_text()) == {KAFKA: port}


def test_two_names_never_get_one_port(home: Home) -> None:
    usual = free_port()
    ports = Ports(home, {}, {KAFKA: usual, POSTGRES: usual})
    assert ports.choose(KAFKA) != ports.choose(POSTGRES)


def test_services_get_consecutive_ports_from_the_base_asked_for(home: Home) -> None:
    base = next(p for p in SEARCHED if Ports(home, {}, {"x": p}).choose("x") == p)
    chosen = Ports(home, {SERVICES: str(base)}).choose_services(["ingest"])
    assert chosen == {"ingest": base}


def test_services_each_get_a_port_of_their_own(home: Home) -> None:
    names = ["ingest", "mapper", "control"]
    chosen = Ports(home, {}, {}).choose_services(names)
    assert list(chosen) == names
    assert len(set(chosen.values())) == 3


def test_two_checkouts_that_start_at_once_do_not_choose_the_same_port(
    home: Home, tmp_path: Path
) -> None:
    usual = free_port()
    choose = (
        "import sys; from pathlib import Path; from deploy.local.home import Home;"
        "from deploy.local.ports import KAFKA, Ports;"
        "print(Ports(Home(Path(sys.argv[1])), {}, {KAFKA: int(sys.argv[2])}).choose(KAFKA))"
    )
    # Chosen here and not bound yet: to the other process the port still looks free.
    assert Ports(home, {}, {KAFKA: usual}).choose(KAFKA) == usual
    other = subprocess.run(
        [sys.executable, "-c", choose, str(tmp_path / "other"), str(usual)],
        cwd=CHECKOUT,
        capture_output=True,
        text=True,
        check=True,
    )
    assert int(other.stdout) != usual
