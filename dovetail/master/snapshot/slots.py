"""Several slots' snapshots as one R: their pages count on, and a key is looked up in its slot's.

    slot        3              8            11
    pages    0 1 2 3 │ 0 1 2 3 4 5 6 │ 0 1 2
    of R     0 1 2 3   4 5 6 7 8 9 10  11 12 13

A read never goes beyond one slot's last page. The keys of one request are of many slots: each slot
is asked for its own within its share of the bytes, and as many keys are answered, from the first
on, as all of them have covered.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from dovetail.errors import TooManyRowsError
from dovetail.join.entry import MasterRows
from dovetail.join.exchange import Keys, Pages, Partition, Read
from dovetail.join.mapper import Mapper
from dovetail.join.phase import Relation
from dovetail.master.snapshot.files import reading_threads
from dovetail.master.snapshot.relation import QUEUE_DEPTH, SnapshotRelation

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from dovetail.join.columns import JoinKeys
    from dovetail.join.exchange import Request
    from dovetail.join.keys import KeyType

_FIRST_KEYS = 1024
"""Keys that are tried at once, before it is known how many fit."""


class SlotsRelation:
    """Reads the snapshots of some slots; for one engine at a time."""

    def __init__(
        self, folders: Mapping[int, Path], slots: int, key: KeyType, *, direct: bool = True
    ) -> None:
        self._mapper = Mapper(slots, int_key=key == "int")
        self._parts: dict[int, SnapshotRelation] = {}
        self._threads = reading_threads(QUEUE_DEPTH)
        try:
            for slot in sorted(folders):
                self._parts[slot] = SnapshotRelation(
                    folders[slot],
                    direct=direct,
                    # From the page cache a read is a copy: no other thread would be done sooner.
                    read_ahead=direct,
                    wraps=False,
                    threads=self._threads,
                )
        except BaseException:
            self.close()
            raise
        self._order = list(self._parts.values())
        self._ends = np.cumsum([part.facts.pages for part in self._order], dtype=np.int64)
        self._fitting = _FIRST_KEYS

    @property
    def facts(self) -> Relation:
        facts = [part.facts for part in self._order]
        if not facts:
            return Relation()
        return Relation(
            sum(part.pages for part in facts),
            max(part.page_bytes for part in facts),
            unique=all(part.unique for part in facts),
            rows=sum(part.rows for part in facts),
            in_parts=True,
        )

    @property
    def index_bytes(self) -> int:
        """Bytes of the page indexes, which are mapped from their files."""
        return sum(part.index_bytes for part in self._order)

    def read(self, request: Request, most: int) -> Read:
        """Read as `SnapshotRelation` does, of the slots that there are."""
        if isinstance(request, Pages):
            return self._pages(request, most)
        if isinstance(request, Partition):
            return self._partition(request, most)
        return self._rows_of(request.keys, most)

    def forget(self) -> None:
        """Leave the memory of all reads."""
        self._keep_only()

    def close(self) -> None:
        for part in self._parts.values():
            part.close()
        self._threads.shutdown()

    def _pages(self, request: Pages, most: int) -> Read:
        nth = int(np.searchsorted(self._ends, request.first, "right"))
        part = self._order[nth]
        self._keep_only(part)
        pages = part.facts.pages
        first = request.first - (int(self._ends[nth]) - pages)
        count = min(request.count, pages - first)
        return part.read(Pages(first, count, pages, request.place), most)

    def _partition(self, request: Partition, most: int) -> Read:
        slot = int(self._mapper.slots(request.key)[0])
        part = self._parts[slot]
        self._keep_only(part)
        if len(request.then):
            mine = np.flatnonzero(self._mapper.slots(request.then) == slot)
            request = replace(request, then=request.then.take(mine))
        return part.read(request, most)

    def _rows_of(self, keys: JoinKeys, most: int) -> Read:
        count = min(len(keys), self._fitting)
        slots = self._mapper.slots(keys)
        while True:
            asked = np.unique(slots[:count])
            parts = [self._parts[slot] for slot in asked.tolist()]
            self._keep_only(*parts)
            if len(parts) == 1:
                read = parts[0].read(Keys(keys.slice(0, count)), most)
                self._learn(read.covers, count)
                return read
            # Half of the bytes for the slots' reads, half to put them together.
            share = most // (2 * len(parts))
            try:
                found, covered = self._found(keys, slots[:count], share)
            except TooManyRowsError:  # of its slot's share: fewer slots have larger ones
                count //= 2
                continue
            self._learn(covered, count)
            if covered == count:
                return Read.whole(MasterRows.concatenate(found), count)
            count = covered

    def _found(self, keys: JoinKeys, slots: np.ndarray, share: int) -> tuple[list[MasterRows], int]:
        """The rows of every slot's keys, and how many keys from the first on have theirs."""
        found, covered = [], len(slots)
        for slot in np.unique(slots).tolist():
            places = np.flatnonzero(slots == slot)
            read = self._parts[slot].read(Keys(keys.take(places)), share)
            found.append(read.rows)
            if read.covers < len(places):
                covered = min(covered, int(places[read.covers]))
        return found, covered

    def _learn(self, covered: int, asked: int) -> None:
        self._fitting = max(1, covered) if covered < asked else max(self._fitting, 2 * asked)

    def _keep_only(self, *parts: SnapshotRelation) -> None:
        """Leave the memory of the slots that are not read now: a read's bytes are shared by all."""
        for part in self._order:
            if part not in parts:
                part.forget()
