"""A relation in memory, and the driver that reads it for an engine: for tests and benches."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from dovetail.join.entry import MasterRows
from dovetail.join.exchange import Keys, Pages, Partition, Read
from dovetail.join.phase import Relation

if TYPE_CHECKING:
    from dovetail.join.columns import Ints, JoinKeys
    from dovetail.join.exchange import Request


class MemoryRelation:
    """Rows in pages of `rows_a_page`; partitions by key order, each ending between two keys."""

    def __init__(self, rows: MasterRows, rows_a_page: int, *, unique: bool = False) -> None:
        self._rows = rows
        self._rows_a_page = rows_a_page
        self._unique = unique
        values, texts = rows.keys.values, list(rows.keys.texts)
        order = sorted(range(len(rows)), key=lambda i: (int(values[i]), texts[i]))
        self._by_key = _take(rows, np.array(order, np.int64))
        self._sorted = [(int(values[i]), texts[i]) for i in order]
        self.reads: list[Request] = []

    @property
    def facts(self) -> Relation:
        pages = max(1, -(-len(self._rows) // self._rows_a_page))
        sizes = [self._pages(number, number + 1).nbytes for number in range(pages)]
        return Relation(pages, max(sizes), unique=self._unique)

    def read(self, request: Request) -> Read:
        self.reads.append(request)
        if isinstance(request, Pages):
            runs = [self._pages(first, end) for first, end in request.runs()]
            shifts = np.cumsum([0, *(len(run.rows) for run in runs)])
            return Read(
                MasterRows.concatenate([run.rows for run in runs]),
                request.count,
                np.concatenate(
                    [run.ends + shift for run, shift in zip(runs, shifts, strict=False)]
                ),
            )
        if isinstance(request, Partition):
            return Read.whole(self._partition(request.key))
        return Read.whole(self._rows_of(request), len(request.keys))

    def _pages(self, first: int, end: int) -> Read:
        size, count = self._rows_a_page, len(self._rows)
        ends = np.minimum(np.arange(first + 1, end + 1) * size, count)
        rows = _slice(self._rows, min(first * size, count), int(ends[-1]))
        return Read(rows, end - first, ends - min(first * size, count))

    def _partition(self, key: JoinKeys) -> MasterRows:
        """The rows of the key's page in key order, the last key's further rows included."""
        name = (int(key.values[0]), key.texts[0])
        at = next((i for i, other in enumerate(self._sorted) if other >= name), len(self._sorted))
        first = at // self._rows_a_page * self._rows_a_page
        end = min(first + self._rows_a_page, len(self._sorted))
        while 0 < first < len(self._sorted) and self._sorted[first - 1] == self._sorted[first]:
            first -= 1
        while 0 < end < len(self._sorted) and self._sorted[end] == self._sorted[end - 1]:
            end += 1
        return _slice(self._by_key, first, end)

    def _rows_of(self, request: Keys) -> MasterRows:
        wanted = set(zip(request.keys.values.tolist(), request.keys.texts, strict=True))
        found = [i for i, name in enumerate(self._sorted) if name in wanted]
        return _take(self._by_key, np.array(found, np.int64))


def _take(rows: MasterRows, indices: Ints) -> MasterRows:
    return MasterRows(rows.keys.take(indices), rows.rows.take(indices))


def _slice(rows: MasterRows, first: int, end: int) -> MasterRows:
    return MasterRows(rows.keys.slice(first, end), rows.rows.slice(first, end))
