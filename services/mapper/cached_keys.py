"""Which keys the caches hold, as `migrations` tells it; followed only while somebody asks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import numpy as np

from dovetail.join.shedding.frequency import KnownFrequencies, most_keys
from dovetail.pipeline.spec import KeyType
from dovetail.stream.migrations import MigrationReader

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from dovetail.join.columns import Ints
    from dovetail.settings import Settings
    from dovetail.stream.migrations import Change
    from dovetail.topology import Topology


class Migrations(Protocol):
    """Where the caches' keys are told; `MigrationReader` over Kafka."""

    def follow(self, slots: list[int]) -> None: ...

    def changes(self) -> Iterable[Change]: ...

    def close(self) -> None: ...


class CachedKeys:
    """Holds as many of the caches' keys as fit, of all slots.

    A cache may hold a key no longer, or not yet: then its event waits in the disk phase's line,
    or is shed without need.

    Memory: the budget for the table that is given out, as much again while the next one is made,
    and 8 bytes a key.
    """

    def __init__(self, reader: Callable[[], Migrations], slots: int, budget: int) -> None:
        self._new_reader = reader
        self._slots = list(range(slots))
        self._budget = budget
        self._reader: Migrations | None = None
        self._keys: Ints = np.empty(0, np.int64)
        self.wanted = False

    @classmethod
    def over(cls, settings: Settings, topology: Topology, budget: int) -> CachedKeys:
        pipeline = topology.pipeline
        int_key = pipeline.key_type is KeyType.INT
        return cls(
            lambda: MigrationReader(settings, topology.migrations, int_key=int_key),
            pipeline.slots,
            budget,
        )

    def read(self) -> KnownFrequencies | None:
        """The keys as of now, each with a frequency of 1; None while nobody wants to know."""
        if not self.wanted:
            self.close()
            return None
        if self._reader is None:
            self._reader = self._new_reader()
            self._reader.follow(self._slots)
        for change in self._reader.changes():
            kept = np.setdiff1d(self._keys, change.evictions.values, assume_unique=True)
            together = np.union1d(kept, change.entries.keys().values)
            self._keys = together[: most_keys(self._budget)]
        return KnownFrequencies(self._budget, self._keys, np.ones(len(self._keys)), expected=0.0)

    def close(self) -> None:
        if self._reader is not None:
            self._reader.close()
        self._reader = None
        self._keys = np.empty(0, np.int64)
