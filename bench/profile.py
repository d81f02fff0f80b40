"""Where a running service spends its time.

    python -m bench.profile SERVICE SECONDS [--home FOLDER]

SERVICE is a name as in the home's run/<name>.pid: ingest, mapper, cache_phase-0, … Samples with
py-spy, C frames included, threads that wait excluded; needs the right to trace the process.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

import psutil

from bench.measure import running
from deploy.local.home import Home

SHOWN = 25
A_SECOND = 25
"""Samples: walking the C frames halts a process for milliseconds; at 200, joins ran at a fifth."""
# With C frames, py-spy takes a thread that waits inside the C library for one at work.
_WAITING = re.compile(r"epoll_wait|select|poll \(|nanosleep|accept|futex")
_WAITING_IN_LIBC = re.compile(r"acquire_lock|take_gil|cnd_\w*wait|cond_\w*wait|sem_\w*wait")


def pid_of(service: str, homes: list[Home]) -> int:
    alive = {
        name: pid for home in homes for name, pid in running(home).items() if psutil.pid_exists(pid)
    }
    if service not in alive:
        sys.exit(f"{service} does not run; there is: {', '.join(sorted(alive)) or 'nothing'}")
    return alive[service]


def record(pid: int, seconds: int) -> str:
    with tempfile.TemporaryDirectory() as folder:
        raw = Path(folder) / "raw"
        py_spy = str(Path(sys.executable).with_name("py-spy"))
        command = [py_spy, "record", "--pid", str(pid), "--duration", str(seconds)]
        options = [
            "--format",
            "raw",
            "--native",
            "--function",
            "--rate",
            str(A_SECOND),
            "--output",
            str(raw),
        ]
        done = subprocess.run(
            [*command, *options], capture_output=True, text=True, timeout=seconds + 60, check=False
        )
        if done.returncode or not raw.exists():
            sys.exit(f"py-spy failed ({done.returncode}): {done.stderr.strip()}")
        return raw.read_text()


def waits(frames: list[str]) -> bool:
    if _WAITING.match(frames[-1]):
        return True
    in_libc = frames[-1].startswith("0x") and "libc" in frames[-1]
    return in_libc and any(_WAITING_IN_LIBC.search(frame) for frame in frames[-5:])


def named(frames: list[str]) -> str:
    """Name the innermost frame; without a symbol, by its library and who called it."""
    leaf = frames[-1]
    caller = next((frame for frame in reversed(frames) if not frame.startswith("0x")), "?")
    return leaf if leaf == caller else f"{leaf.partition(' ')[2]} called by {caller}"


def tell(raw: str) -> None:
    self_time: Counter[str] = Counter()
    total_time: Counter[str] = Counter()
    samples = 0
    for line in raw.splitlines():
        stack, _, count = line.rpartition(" ")
        frames = stack.split(";")
        if waits(frames):
            continue
        samples += int(count)
        self_time[named(frames)] += int(count)
        for frame in set(frames):  # a recursive function counts once
            total_time[frame] += int(count)
    if not samples:
        sys.exit("it did no work meanwhile")
    print(f"{samples} samples of threads at work")
    for title, counts in (("self", self_time), ("total", total_time)):
        print(f"\n{'%':>6}  by {title} time")
        for frame, times in counts.most_common(SHOWN):
            print(f"{times / samples:6.1%}  {frame}")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("service")
    parser.add_argument("seconds", type=int, nargs="?", default=20)
    parser.add_argument("--home", type=Path, help="default: the benchmark's stack, else the main")
    asked = parser.parse_args()
    usual = Home.of_checkout()
    homes = [Home(asked.home.resolve())] if asked.home else [usual, Home(usual.folder / "bench")]
    tell(record(pid_of(asked.service, homes), asked.seconds))


if __name__ == "__main__":
    main()
