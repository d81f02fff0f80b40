"""The most memory that a process and everything below it takes, shared pages counted once."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import psutil

if TYPE_CHECKING:
    from collections.abc import Callable


_NOW_AND_THEN = 8
"""Looks."""


class Peak:
    """The most that a process and everything below it takes, sampled while it runs.

    To count shared pages once, the kernel goes through all pages of a process, which would take a
    tenth of a core. So it is done while more is resident than ever before, and now and then: what
    many share is resident many times.
    """

    def __init__(self, pid: int) -> None:
        self._process = psutil.Process(pid)
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._resident = 0
        self.most = 0
        self._thread.start()

    def stop(self) -> None:
        self._ended.set()
        self._thread.join()

    def _watch(self) -> None:
        looks = 0
        while not self._ended.wait(0.5):
            looks += 1
            family = self._family()
            resident = sum(_taken(one, _resident) for one in family)
            if resident > self._resident or looks % _NOW_AND_THEN == 0:
                self._resident = max(self._resident, resident)
                self.most = max(self.most, sum(_taken(one, _proportional) for one in family))

    def _family(self) -> list[psutil.Process]:
        try:
            return [self._process, *self._process.children(recursive=True)]
        except psutil.NoSuchProcess:
            return []


def _taken(process: psutil.Process, by: Callable[[psutil.Process], int]) -> int:
    try:
        return by(process)
    except (psutil.NoSuchProcess, psutil.AccessDenied):
        return 0


def _resident(process: psutil.Process) -> int:
    return int(process.memory_info().rss)


def _proportional(process: psutil.Process) -> int:
    return int(process.memory_full_info().pss)
