"""The entry: one join key with all its master rows, in the one layout used everywhere.

A lookup's result, a migration's payload and the cache's arena hold the same bytes, so
that a key moves from the disk phase into the cache by copying, and one splice kernel
serves both phases.

     0  int64   join key (for text and composite keys: its 64-bit hash)
     8  int32   size of the entry in bytes, a multiple of 8
    12  int32   m, the number of master rows; 0 = the key has none
    16  int32   length of the canonical key; 0 for int keys, whose join key says it all
    20  int32   touched: set by the cache when the entry answers an event
    24  int32×m where each row ends, counted from the first row's start
        …       the canonical key, then the rows, then padding

A row is encoded for the output already: `,"price":1.5,"vendor":"x"}`, which continues
the event's own `{…` in place of its closing brace.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numba import njit

from dovetail.join.columns import Bytes, Column, Ints, JoinKeys
from dovetail.join.memory import copy, load_int32, store_int32, store_int64
from dovetail.join.table import find, new_table, put

HEADER = 24
KEY, SIZE, ROWS, KEY_LENGTH, TOUCHED = 0, 8, 12, 16, 20


@dataclass(frozen=True, slots=True)
class MasterRows:
    """Rows as a store read them, in any order: row i belongs to join key `keys[i]`."""

    keys: JoinKeys
    rows: Column

    def __len__(self) -> int:
        return len(self.keys)


@dataclass(frozen=True, slots=True)
class Entries:
    """Entries end to end in one buffer; entry i is `data[bounds[i]:bounds[i + 1]]`."""

    data: Bytes
    bounds: Ints

    def __len__(self) -> int:
        return len(self.bounds) - 1

    @property
    def nbytes(self) -> int:
        return self.data.nbytes + self.bounds.nbytes

    def rows_each(self) -> Ints:
        """m, for each entry."""
        return _rows_each(self.data, self.bounds)

    @classmethod
    def of(cls, keys: JoinKeys, master: MasterRows) -> Entries:
        """One entry for each of the distinct `keys`, with its rows out of `master`.

        Rows whose key was not asked for are left out: a text that merely shares its
        hash with one that was, for example.
        """
        return cls(
            *_assemble(
                keys.values,
                keys.texts.data,
                keys.texts.bounds,
                master.keys.values,
                master.keys.texts.data,
                master.keys.texts.bounds,
                master.rows.data,
                master.rows.bounds,
            )
        )


def distinct(keys: JoinKeys) -> tuple[Ints, Ints]:
    """Return the positions of each key's first appearance, and each key's rank in them."""
    return _distinct(keys.values, keys.texts.data, keys.texts.bounds)  # type: ignore[no-any-return]


@njit(cache=True, nogil=True)
def _distinct(values: Ints, data: Bytes, bounds: Ints) -> tuple[Ints, Ints]:
    slots, positions = new_table(len(values))
    firsts = np.empty(len(values), np.int64)
    ranks = np.empty(len(values), np.int64)
    rank_at = np.empty(len(values), np.int64)
    count = 0
    for i in range(len(values)):
        first = find(slots, positions, values[i], data, bounds, data, bounds[i], bounds[i + 1])
        if first < 0:
            put(slots, positions, values[i], i)
            firsts[count] = i
            rank_at[i] = count
            ranks[i] = count
            count += 1
        else:
            ranks[i] = rank_at[first]
    return firsts[:count].copy(), ranks


@njit(cache=True, nogil=True)
def _assemble(
    values: Ints,
    texts: Bytes,
    text_bounds: Ints,
    row_keys: Ints,
    row_texts: Bytes,
    row_text_bounds: Ints,
    rows: Bytes,
    row_bounds: Ints,
) -> tuple[Bytes, Ints]:
    keys = len(values)
    slots, positions = new_table(keys)
    for i in range(keys):
        put(slots, positions, values[i], i)

    owner = np.empty(len(row_keys), np.int64)
    counts = np.zeros(keys, np.int64)
    sizes = np.zeros(keys, np.int64)
    for row in range(len(row_keys)):
        key = find(
            slots, positions, row_keys[row], texts, text_bounds,
            row_texts, row_text_bounds[row], row_text_bounds[row + 1],
        )  # fmt: skip
        owner[row] = key
        if key >= 0:
            counts[key] += 1
            sizes[key] += row_bounds[row + 1] - row_bounds[row]

    bounds = np.empty(keys + 1, np.int64)
    bounds[0] = 0
    for i in range(keys):
        length = text_bounds[i + 1] - text_bounds[i]
        size = HEADER + 4 * counts[i] + length + sizes[i]
        bounds[i + 1] = bounds[i] + (size + 7) // 8 * 8

    out = np.zeros(bounds[keys], np.uint8)
    for i in range(keys):
        entry = bounds[i]
        length = text_bounds[i + 1] - text_bounds[i]
        store_int64(out, entry + KEY, values[i])
        store_int32(out, entry + SIZE, np.int32(bounds[i + 1] - entry))
        store_int32(out, entry + KEY_LENGTH, np.int32(length))
        copy(out, entry + HEADER + 4 * counts[i], texts, text_bounds[i], length)

    # ROWS counts up while rows are added: it is the next row's place in the list of ends.
    filled = np.zeros(keys, np.int64)
    for row in range(len(row_keys)):
        key = owner[row]
        if key >= 0:
            entry = bounds[key]
            length = text_bounds[key + 1] - text_bounds[key]
            size = row_bounds[row + 1] - row_bounds[row]
            start = entry + HEADER + 4 * counts[key] + length + filled[key]
            copy(out, start, rows, row_bounds[row], size)
            if size > 0:
                out[start] = 44  # the row's own opening brace becomes a comma
            filled[key] += size
            placed = load_int32(out, entry + ROWS)
            store_int32(out, entry + HEADER + 4 * np.int64(placed), np.int32(filled[key]))
            store_int32(out, entry + ROWS, np.int32(placed + 1))
    return out, bounds


@njit(cache=True, nogil=True)
def _rows_each(data: Bytes, bounds: Ints) -> Ints:
    rows = np.empty(len(bounds) - 1, np.int64)
    for i in range(len(rows)):
        rows[i] = load_int32(data, bounds[i] + ROWS)
    return rows
