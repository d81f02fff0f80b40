"""The most memory that a process and everything below it takes, shared pages counted once."""

from __future__ import annotations

import threading

import psutil


class Peak:
    """The most that a process and everything below it takes, sampled while it runs."""

    def __init__(self, pid: int) -> None:
        self._process = psutil.Process(pid)
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self.most = 0
        self._thread.start()

    def stop(self) -> None:
        self._ended.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._ended.wait(0.5):
            taken = 0
            for one in self._family():
                try:
                    taken += one.memory_full_info().pss
                except (psutil.NoSuchProcess, psutil.AccessDenied):
                    continue
            self.most = max(self.most, taken)

    def _family(self) -> list[psutil.Process]:
        try:
            return [self._process, *self._process.children(recursive=True)]
        except psutil.NoSuchProcess:
            return []
