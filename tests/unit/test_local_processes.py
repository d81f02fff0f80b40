from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import psutil
import pytest

from deploy.local.home import CHECKOUT, Home
from deploy.local.processes import Managed, birth, reap_leftovers, run_tool, sole_supervisor
from dovetail.errors import StackError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

SLEEP = [sys.executable, "-c", "import time; time.sleep(600)"]
IGNORE = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN)"
DEAF = [sys.executable, "-c", f"{IGNORE}; print('deaf', flush=True); time.sleep(600)"]


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path)


def until(condition: Callable[[], object]) -> None:
    for _ in range(1_500):
        if condition():
            return
        time.sleep(0.02)
    raise AssertionError("it never came true")


def runs(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def test_a_stopped_child_is_gone_and_its_record_too(home: Home) -> None:
    child = Managed(home, "sleeper", SLEEP)
    child.start()
    pid = child.pid
    assert pid is not None
    assert json.loads((home.run / "sleeper.pid").read_text())["pid"] == pid
    child.stop()
    assert not runs(pid)
    assert not (home.run / "sleeper.pid").exists()


def test_as_many_earlier_logs_are_kept_as_the_home_says(tmp_path: Path) -> None:
    home = Home(tmp_path, logs_kept=2)
    for word in ("one", "two", "three", "four"):
        child = Managed(home, "teller", [sys.executable, "-c", f"print('{word}')"])
        child.start()
        until(lambda child=child: child.exit_code() is not None)
        child.stop()
    told = {log.name: log.read_text().strip() for log in home.logs.iterdir()}
    assert told == {"teller.log": "four", "teller.log.1": "three", "teller.log.2": "two"}


def test_a_signal_reaches_a_child_and_nobody_once_it_has_ended(home: Home) -> None:
    child = Managed(home, "sleeper", SLEEP)
    child.start()
    child.send(signal.SIGKILL)
    until(lambda: child.exit_code() == -signal.SIGKILL)
    child.send(signal.SIGKILL)
    child.stop()
    child.send(signal.SIGKILL)


def test_a_child_deaf_to_the_stop_signal_is_ended_after_its_grace(home: Home) -> None:
    child = Managed(home, "deaf", DEAF)
    child.start()
    pid = child.pid
    assert pid is not None
    until(lambda: "deaf" in child.log.read_text())
    child.stop(grace_s=0.2)
    assert not runs(pid)


def test_a_child_that_ends_by_itself_is_reported_with_the_end_of_its_log(home: Home) -> None:
    child = Managed(home, "loser", [sys.executable, "-c", "raise SystemExit('out of luck')"])
    child.start()
    until(lambda: child.exit_code() is not None)
    with pytest.raises(StackError, match="out of luck"):
        child.check()
    child.stop()


def test_a_tool_that_fails_is_reported_with_the_end_of_its_log(home: Home) -> None:
    command = [sys.executable, "-c", "raise SystemExit('no space left')"]
    with pytest.raises(StackError, match="no space left"):
        run_tool("the tool", command, home.logs / "tool.log")


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells children of a parent's death")
def test_children_end_when_their_supervisor_is_killed(home: Home) -> None:
    program = (
        "import sys, time; from pathlib import Path\n"
        "from deploy.local.home import Home; from deploy.local.processes import Managed\n"
        f"child = Managed(Home(Path({str(home.folder)!r})), 'orphan', {SLEEP!r})\n"
        "child.start(); print(child.pid, flush=True); time.sleep(600)"
    )
    supervisor = subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, text=True, cwd=CHECKOUT
    )
    assert supervisor.stdout is not None
    pid = int(supervisor.stdout.readline())
    until(lambda: "time.sleep" in "".join(psutil.Process(pid).cmdline()[-1:]))
    assert runs(pid)
    supervisor.kill()
    supervisor.communicate()
    until(lambda: not runs(pid))


def record(home: Home, pid: int, born: str | None) -> None:
    identity = {"name": "left", "pid": pid, "birth": born, "stop_signal": int(signal.SIGTERM)}
    (home.run / "left.pid").write_text(json.dumps(identity))


def test_a_recorded_leftover_is_ended(home: Home) -> None:
    leftover = subprocess.Popen(SLEEP)
    record(home, leftover.pid, birth(leftover.pid))
    assert reap_leftovers(home) == ["left"]
    assert leftover.wait(10) == -signal.SIGTERM
    assert not (home.run / "left.pid").exists()


def test_a_stranger_with_the_pid_of_a_leftover_is_spared(home: Home) -> None:
    stranger = subprocess.Popen(SLEEP)
    record(home, stranger.pid, "another boot 12345")
    try:
        assert reap_leftovers(home) == []
        assert stranger.poll() is None
        assert not (home.run / "left.pid").exists()
    finally:
        stranger.kill()
        stranger.wait()


def test_a_damaged_record_does_not_stop_a_start(home: Home) -> None:
    (home.run / "left.pid").write_text('{"pid": ')
    assert reap_leftovers(home) == []
    assert not (home.run / "left.pid").exists()


def test_a_second_supervisor_is_refused_and_told_who_is_the_first(home: Home) -> None:
    with (
        sole_supervisor(home),
        pytest.raises(StackError, match=f"run by process {os.getpid()}:"),
        sole_supervisor(home),
    ):
        pass


def test_the_lock_is_free_again_when_its_holder_has_left(home: Home) -> None:
    with sole_supervisor(home):
        pass
    with sole_supervisor(home):
        pass
