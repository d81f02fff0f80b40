"""Rows by key: the partition around one, or all rows of many.

    asked 24      pages   … │ 17 18 20 20 │ 20 21 24 24 │ 24 25 30 31 │ …
    partition               (left out)  ──►    21 24 24   24            ends between keys
    keys                                          24 24   24

1. The page index says which pages hold a key's rows, or would hold them.
2. Distinct pages are read in ascending order, neighbours by one call, several calls at a time.
3. A partition is a view of what was read, from its first whole key to its last. The rows of
   many keys are copied together (pick.py), batch by batch, so that pages and rows together stay
   within the bytes that a read may take: half for pages, a quarter for rows, and a quarter to
   put the batches together.
4. If the pages around a key do not fit, its own rows are read alone (wide.py).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from dovetail.errors import TooManyRowsError
from dovetail.join.entry import MasterRows
from dovetail.join.exchange import Read
from dovetail.master.snapshot import pick, place
from dovetail.master.snapshot.ahead import Ahead
from dovetail.master.snapshot.files import Buffer
from dovetail.master.snapshot.fill import sliced
from dovetail.master.snapshot.wide import Wide

if TYPE_CHECKING:
    from dovetail.join.columns import Ints, JoinKeys
    from dovetail.master.snapshot.files import Reader
    from dovetail.master.snapshot.fill import Layout

_SHARES = 4


class Looker:
    def __init__(self, layout: Layout, reader: Reader, *, read_ahead: bool) -> None:
        self._layout = layout
        self._shape = layout.shape
        self._reader = reader
        self._buffer = Buffer()
        self._ahead = Ahead(layout, reader, read_ahead=read_ahead)
        self._wide = Wide(layout, reader)
        self._largest = place.largest_page(layout.shape)[1]

    def forget(self) -> None:
        """Leave the memory: another kind of read comes next."""
        self._buffer = Buffer()
        self._ahead.forget()

    def partition(self, key: JoinKeys, pages: int, most: int, then: JoinKeys) -> Read:
        """Read the group of so many pages, or as many as fit, that holds the key's first row.

        It goes on where the key does. Any other key that has rows beyond the group's ends is
        left out: it comes with the partition that is read for it. So do all others where not even
        the key's own pages fit.
        """
        self._buffer = Buffer()
        pages = self._layout.whole(pages)
        doubled = self._ahead.doubles(most, self._largest)
        first, end = self._group(key, pages, most // 2 if doubled else most)
        size = place.read_bytes(self._shape, first, end)
        if doubled and 2 * size > most:  # of one key
            doubled = False
        if size > most:
            return Read.whole(self._own_rows(key, first, end, most))
        run = self._ahead.read(first, end)
        if run.end != end:  # it was read ahead for a key that goes on elsewhere
            run = self._ahead.read(first, end)
        rows = self._layout.master_rows(run.fill, run.buffer)
        if doubled:
            self._read_ahead(first, then, pages, most // 2)
        values, shape = rows.keys.values, self._shape
        start, stop = 0, len(rows)
        if shape.continues[first]:
            start = int(np.searchsorted(values, shape.first_keys[first], "right"))
        if end < self._layout.pages and shape.continues[end]:
            stop = int(np.searchsorted(values, shape.first_keys[end], "left"))
        return Read.whole(sliced(rows, start, max(start, stop)))

    def _group(self, key: JoinKeys, pages: int, most: int) -> tuple[int, int]:
        """The aligned group of pages around a key, made smaller until it fits."""
        firsts, ends = place.holding(self._shape, key.values[:1])
        while True:
            first = int(firsts[0]) // pages * pages
            end = max(int(ends[0]), min(first + pages, self._layout.pages))
            if pages == 1 or place.read_bytes(self._shape, first, end) <= most:
                return first, end
            pages = (pages + 1) // 2

    def _read_ahead(self, first: int, then: JoinKeys, pages: int, most: int) -> None:
        """Begin to read for the first key that lies elsewhere."""
        if not len(then):
            return
        firsts, _ = place.holding(self._shape, then.values)
        elsewhere = firsts // pages != first // pages
        nth = int(elsewhere.argmax())
        following, end = self._group(then.slice(nth, nth + 1), pages, most)
        fits = place.read_bytes(self._shape, following, end) <= most
        if elsewhere[nth] and fits:
            self._ahead.start(following, end)

    def rows_of(self, keys: JoinKeys, most: int) -> Read:
        """Read all rows of these distinct keys, or of the first so many whose rows fit."""
        self._ahead.forget()
        # Texts that share a hash share their rows: once is enough, the join tells them apart.
        places = np.sort(np.unique(keys.values, return_index=True)[1])
        values = keys.values[places]
        # So that `covered[n]` keys are done when n values are.
        covered = np.append(places, len(keys))
        pages = place.holding(self._shape, values)
        sizes = place.taken_each(self._shape, *pages)
        if len(values) == 1 or sizes[0] > most // _SHARES:
            rows = self._alone(keys.slice(0, 1), int(pages[0][0]), int(pages[1][0]), most)
            return Read.whole(rows, int(covered[1]))
        parts, done = self._batches(values, pages, sizes, most // _SHARES)
        return Read.whole(MasterRows.concatenate(parts), int(covered[done]))

    def _batches(
        self, values: Ints, pages: tuple[Ints, Ints], sizes: Ints, share: int
    ) -> tuple[list[MasterRows], int]:
        """The rows of the first values that fit, and how many values those are."""
        parts = []
        room, done = share, 0
        while done < len(values):
            count = int(np.searchsorted(np.cumsum(sizes[done:]), 2 * share, "right"))
            if not count:
                break
            batch = slice(done, done + count)
            buffer, found = self._found(values[batch], pages[0][batch], pages[1][batch])
            taken = np.cumsum(pick.read_bytes(found))
            fits = int(np.searchsorted(taken, room, "right"))
            parts.append(pick.pick(self._layout, buffer, found[:fits]))
            done += fits
            if fits < count:
                break
            room -= int(taken[-1])
        return parts, done

    def _found(self, values: Ints, firsts: Ints, ends: Ints) -> tuple[Buffer, Ints]:
        some = ends > firsts
        run_firsts, run_ends = _merged(firsts[some], ends[some])
        fill = self._layout.fill(run_firsts, run_ends)
        self._reader.read(fill, self._buffer)
        runs = np.where(some, np.searchsorted(run_firsts, firsts, "right") - 1, pick.NO_RUN)
        return self._buffer, pick.find(self._layout, fill, self._buffer, values, runs)

    def _alone(self, key: JoinKeys, first: int, end: int, most: int) -> MasterRows:
        if place.read_bytes(self._shape, first, end) > most:
            return self._own_rows(key, first, end, most)
        fill = self._layout.run(first, end)
        self._reader.read(fill, self._buffer)
        rows = self._layout.master_rows(fill, self._buffer)
        return sliced(rows, *_range(rows.keys.values, key))

    def _own_rows(self, key: JoinKeys, first: int, end: int, most: int) -> MasterRows:
        """The key's rows alone, of pages that do not fit."""
        if end - first > 2:  # those between the first and the last are all its own
            _require_fit(key, place.read_bytes(self._shape, first + 1, end - 1), most)
        heads = self._wide.heads(first, end)
        start, stop = _range(heads.keys, key)
        if stop > start:
            _require_fit(key, int(heads.read_bytes(start)[stop - start - 1]), most)
        return self._wide.rows(heads, start, stop)


def _range(values: Ints, key: JoinKeys) -> tuple[int, int]:
    """Where among sorted values a key's own are."""
    start, stop = (int(np.searchsorted(values, key.values[0], side)) for side in ("left", "right"))
    return start, stop


def _require_fit(key: JoinKeys, size: int, most: int) -> None:
    if size > most:
        raise TooManyRowsError(
            f"the rows of join key {key.shown(0)} take {size} bytes, and the disk buffer has "
            f"{most}: give the join more memory, or take fewer columns"
        )


def _merged(firsts: Ints, ends: Ints) -> tuple[Ints, Ints]:
    """Ranges of pages in ascending order, put together where they overlap or touch."""
    if not len(firsts):
        return firsts, ends
    order = np.argsort(firsts, kind="stable")
    firsts, ends = firsts[order], np.maximum.accumulate(ends[order])
    opens = np.concatenate([[True], firsts[1:] > ends[:-1]])
    return firsts[opens], ends[np.append(opens[1:], True)]
