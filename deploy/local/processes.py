"""Child processes that never outlive their supervisor for long.

Three nets, each for what slips through the one before:

1. `Managed.stop`: the supervisor ends its children in order.
2. `guard.py`: the kernel signals the children when the supervisor is gone (Linux).
3. `reap_leftovers`: the next supervisor ends what an earlier one has recorded and left.

A process is known by its pid *and* its birth, so that a pid that the machine has given to
somebody else is never signalled.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil

from deploy.local.files import last_lines, write_atomically
from dovetail.errors import StackError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from deploy.local.home import Home

GUARD = Path(__file__).with_name("guard.py")


class Managed:
    """One long-running child with a log and a record of its identity."""

    def __init__(
        self,
        home: Home,
        name: str,
        command: Sequence[str | Path],
        *,
        env: Mapping[str, str] | None = None,
        cwd: Path | None = None,
        stop_signal: signal.Signals = signal.SIGTERM,
        wrapper: Sequence[str] = (),
    ) -> None:
        """Take `wrapper` for what must run before the guard: a change of user."""
        self.name = name
        self.log = home.logs / f"{name}.log"
        self._logs_kept = home.logs_kept
        self._command = [str(part) for part in command]
        self._env = dict(env) if env is not None else None
        self._cwd = cwd
        self._stop_signal = stop_signal
        self._wrapper = list(wrapper)
        self._record = _record_path(home, name)
        self._child: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int | None:
        return self._child.pid if self._child else None

    def start(self) -> None:
        """Start the child, in a session of its own: Ctrl-C reaches only the supervisor."""
        self._turn_logs()
        with self.log.open("ab") as log:
            self._child = subprocess.Popen(
                [*self._wrapper, *guarded(self._command, self._stop_signal)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=self._env,
                cwd=self._cwd,
                start_new_session=True,
            )
        identity = {
            "name": self.name,
            "pid": self._child.pid,
            "birth": birth(self._child.pid),
            "stop_signal": int(self._stop_signal),
        }
        # At once, not durably: a kill before the record would hide the child from the next
        # supervisor, while no child outlives a loss of power.
        write_atomically(self._record, json.dumps(identity), durable=False)

    def exit_code(self) -> int | None:
        """Return None while the child runs."""
        return self._child.poll() if self._child else None

    def send(self, number: signal.Signals) -> None:
        """Send the child a signal, without waiting for what becomes of it; nothing if it ended."""
        if self._child is not None:
            self._child.send_signal(number)

    def check(self) -> None:
        """Raise if the child has ended by itself."""
        code = self.exit_code()
        if code is not None:
            raise StackError(
                f"{self.name} ended by itself (exit code {code}). The end of {self.log}:\n"
                f"{last_lines(self.log)}"
            )

    def stop(self, grace_s: float = 30.0) -> int | None:
        """Ask the child to end, and after `grace_s` seconds end it; return its exit code.

        Never started is fine: there is none then.
        """
        if self._child is None:
            return None
        if self._child.poll() is None:
            end(psutil.Process(self._child.pid), self._stop_signal, grace_s)
        code = self._child.wait()
        self._record.unlink(missing_ok=True)
        self._child = None
        return code

    def _turn_logs(self) -> None:
        """Make room for a new log: x.log becomes x.log.1, which becomes x.log.2, and so on."""
        for number in range(self._logs_kept - 1, -1, -1):
            log = self._earlier_log(number)
            if log.exists():
                log.replace(self._earlier_log(number + 1))

    def _earlier_log(self, number: int) -> Path:
        return self.log.with_suffix(f".log.{number}") if number else self.log


def guarded(command: Sequence[str], stop_signal: signal.Signals = signal.SIGKILL) -> list[str]:
    """Return `command` such that it ends when this process does.

    The kernel watches the *thread* that forks, not the process: a child of a worker thread
    would end with that thread. So children are started from the main thread alone.
    """
    assert threading.current_thread() is threading.main_thread()
    # -I -S: neither the environment nor site-packages can slow down or change the guard.
    guard = [sys.executable, "-I", "-S", str(GUARD)]
    return [*guard, str(os.getpid()), str(int(stop_signal)), *command]


def run_tool(
    name: str,
    command: Sequence[str | Path],
    log: Path,
    *,
    wrapper: Sequence[str] = (),
    watch: Callable[[], None] | None = None,
    timeout_s: float = 1_800.0,
    **popen: Any,
) -> None:
    """Run a short-lived program to its end; `watch` is called each second while it runs."""
    words = [*wrapper, *guarded([str(part) for part in command])]
    with log.open("wb") as output:
        child = subprocess.Popen(
            words, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, **popen
        )
        try:
            code = _wait(child, watch, timeout_s)
        finally:
            child.kill()
            child.wait()
    if code != 0:
        why = "took too long" if code is None else f"failed (exit code {code})"
        raise StackError(f"{name} {why}. The end of {log}:\n{last_lines(log)}")


def _wait(
    child: subprocess.Popen[bytes], watch: Callable[[], None] | None, timeout_s: float
) -> int | None:
    for _ in range(max(1, round(timeout_s))):
        with contextlib.suppress(subprocess.TimeoutExpired):
            return child.wait(timeout=1.0)
        if watch:
            watch()
    return None


def end(process: psutil.Process, stop_signal: int, grace_s: float) -> None:
    """End a process and everything below it; return only when all of it is gone."""
    try:
        family = [process, *process.children(recursive=True)]
        process.send_signal(stop_signal)
    except psutil.NoSuchProcess:
        return
    for survivor in _wait_for_end(family, grace_s):
        with contextlib.suppress(psutil.NoSuchProcess):
            survivor.kill()
    alive = _wait_for_end(family, 10.0)
    if alive:
        pids = ", ".join(str(survivor.pid) for survivor in alive)
        raise StackError(f"process {pids} does not end, not even by SIGKILL: see `ps` for why")


def _wait_for_end(processes: Sequence[psutil.Process], timeout_s: float) -> list[psutil.Process]:
    deadline = time.monotonic() + timeout_s
    while alive := [process for process in processes if _runs(process)]:
        if time.monotonic() > deadline:
            return alive
        time.sleep(0.02)
    return []


def _runs(process: psutil.Process) -> bool:
    """Count a zombie as ended: where no init collects it, the wait would be in vain."""
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def birth(pid: int) -> str | None:
    """Return what tells this process from any other that ever has its pid; None if it is gone.

    Not psutil's wall-clock time of creation: that moves when the clock is set.
    """
    try:
        if sys.platform == "linux":
            boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
            after_name = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            return f"{boot} {after_name[19]}"
        return str(psutil.Process(pid).create_time())
    except (FileNotFoundError, ProcessLookupError, psutil.NoSuchProcess):
        return None


def reap_leftovers(home: Home, grace_s: float = 20.0) -> list[str]:
    """End what an earlier supervisor of this home left running; return the names.

    Only the holder of the lock may call it: the records of a living supervisor are its own.
    """
    ended = []
    for record in sorted(home.run.glob("*.pid")):
        with contextlib.suppress(ValueError, KeyError, psutil.NoSuchProcess):
            identity = json.loads(record.read_text())
            process = psutil.Process(identity["pid"])
            if birth(process.pid) == identity["birth"] and _runs(process):
                ended.append(str(identity["name"]))
                end(process, identity["stop_signal"], grace_s)
        record.unlink(missing_ok=True)
    return ended


@contextlib.contextmanager
def sole_supervisor(home: Home) -> Iterator[None]:
    """Hold the home's lock; the kernel frees it however the holder ends."""
    with (home.run / "lock").open("a+") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            lock.seek(0)
            raise StackError(
                f"the stack in {home.folder} is already run by process {lock.read() or '?'}: "
                "use that one, or stop it (Ctrl-C there, or `kill` with its number)"
            ) from None
        lock.truncate(0)
        lock.write(str(os.getpid()))
        lock.flush()
        yield


def _record_path(home: Home, name: str) -> Path:
    return home.run / f"{name}.pid"
