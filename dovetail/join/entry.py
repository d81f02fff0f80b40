"""The entry: one join key with all its master rows, in the one layout used everywhere.

A lookup's result, a migration's payload and the cache hold the same bytes, so that a key
moves from the disk phase into the cache by copying, and one splice kernel serves both phases.
Numbers are little-endian.

     0  int64    join key (for text and composite keys: its 64-bit hash)
     8  int32    size of the entry in bytes, a multiple of 8
    12  int32    m, the number of master rows; 0 = the key has none
    16  int32    length of the canonical key; 0 for int keys, whose join key says it all
    20  int32    0: nothing as yet
    24  m int32  where each row ends, counted from the first row's start
        …        the canonical key, then the rows, then padding

A row is encoded for the output already: `,"price":1.5,"vendor":"x"}`, which continues
the event's own `{…` in place of its closing brace.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from dovetail.errors import MasterDataError
from dovetail.join.columns import Column, JoinKeys
from dovetail.join.memory import copy, load_int32, load_int64, store_int32, store_int64
from dovetail.join.seeds import SEEDS
from dovetail.join.table import find, new_table, put
from dovetail.kernels import kernel

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dovetail.join.columns import Bytes, Ints
    from dovetail.join.seeds import Seeds

HEADER = 24
KEY, SIZE, ROWS, KEY_LENGTH, RESERVED = 0, 8, 12, 16, 20
LARGEST = (1 << 31) - 8
"""Bytes of the largest entry: its header counts them in an int32."""


@dataclass(frozen=True, slots=True)
class MasterRows:
    """Rows as a store read them, in any order: row i belongs to join key `keys[i]`."""

    keys: JoinKeys
    rows: Column

    def __len__(self) -> int:
        return len(self.keys)

    @classmethod
    def concatenate(cls, parts: Sequence[MasterRows]) -> MasterRows:
        return cls(
            JoinKeys.concatenate([part.keys for part in parts]),
            Column.concatenate([part.rows for part in parts]),
        )


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

    def keys(self) -> JoinKeys:
        """The join key of each entry."""
        return keys_at(self.data, self.bounds[:-1])

    def take(self, indices: Ints) -> Entries:
        chosen = Column(self.data, self.bounds).take(indices)
        return Entries(chosen.data, chosen.bounds)

    @classmethod
    def concatenate(cls, parts: Sequence[Entries]) -> Entries:
        joined = Column.concatenate([Column(part.data, part.bounds) for part in parts])
        return cls(joined.data, joined.bounds)

    @classmethod
    def of(cls, keys: JoinKeys, master: MasterRows) -> Entries:
        """Make one entry for each of the distinct `keys`, with its rows out of `master`.

        Rows whose key was not asked for are left out: a text that merely shares its
        hash with one that was, for example.
        """
        owners = _owners(
            SEEDS,
            keys.values,
            keys.texts.data,
            keys.texts.bounds,
            master.keys.values,
            master.keys.texts.data,
            master.keys.texts.bounds,
        )
        counts, bounds = _lay_out(owners, keys.texts.bounds, master.rows.bounds)
        _require_sizes(keys, counts, np.diff(bounds))
        data = _with_keys(keys.values, keys.texts.data, keys.texts.bounds, counts, bounds)
        _add_rows(data, bounds, counts, owners, master.rows.data, master.rows.bounds)
        return cls(data, bounds)

    @classmethod
    def without_rows(cls) -> Entries:
        """One entry, of a key that nothing equals."""
        nothing = MasterRows(JoinKeys.of_ints(np.empty(0, np.int64)), Column.of([]))
        return cls.of(JoinKeys.of_ints(np.zeros(1, np.int64)), nothing)

    @classmethod
    def received(cls, messages: Column) -> Entries:
        """Take entries out of messages: kernels trust an entry, so one must be whole."""
        if not _all_whole(messages.data, messages.bounds):
            raise ValueError("a message does not hold an entry: was it sent by another release?")
        return cls(messages.data, messages.bounds)


def entries_at(data: Bytes, starts: Ints) -> Column:
    """Copy the entries that start at these places: one for each, however many are the same."""
    return Column.of_spans(data, starts, _ends(data, starts))


def sizes_at(data: Bytes, starts: Ints) -> Ints:
    """The sizes of the entries that start at these places."""
    return _ends(data, starts) - starts


def each_once(data: Bytes, starts: Ints) -> tuple[Bytes, Ints]:
    """Copy the entries that start at these places, and no others; return where each starts now."""
    used, places = np.unique(starts, return_inverse=True)
    if len(used) == 1 and len(data) == sizes_at(data, used)[0]:
        return data, starts
    kept = entries_at(data, used)
    return kept.data, kept.bounds[places]


def keys_at(data: Bytes, starts: Ints) -> JoinKeys:
    """The join keys of the entries that start at these places."""
    values, texts, bounds = _keys(data, starts)
    return JoinKeys(values, Column(texts, bounds))


def distinct(keys: JoinKeys) -> tuple[Ints, Ints]:
    """Return the positions of each key's first appearance, and each key's rank in them."""
    return _distinct(SEEDS, keys.values, keys.texts.data, keys.texts.bounds)


def _require_sizes(keys: JoinKeys, counts: Ints, sizes: Ints) -> None:
    if sizes.max(initial=0) > LARGEST:
        worst = int(np.argmax(sizes))
        name = keys.texts[worst].decode() or str(keys.values[worst])
        raise MasterDataError(
            f"the {counts[worst]} master rows of join key {name!r} take {sizes[worst]} bytes, and "
            f"{LARGEST} are the most that can be joined at once: take fewer columns, or remove "
            f"rows of that key"
        )


@kernel
def _ends(data: Bytes, starts: Ints) -> Ints:
    ends = np.empty(len(starts), np.int64)
    for i in range(len(starts)):
        ends[i] = starts[i] + load_int32(data, starts[i] + SIZE)
    return ends


@kernel
def _distinct(seeds: Seeds, values: Ints, data: Bytes, bounds: Ints) -> tuple[Ints, Ints]:
    slots, positions = new_table(len(values))
    firsts = np.empty(len(values), np.int64)
    ranks = np.empty(len(values), np.int64)
    rank_at = np.empty(len(values), np.int64)
    count = 0
    for i in range(len(values)):
        start, end = bounds[i], bounds[i + 1]
        first = find(seeds, slots, positions, values[i], data, bounds, data, start, end)
        if first < 0:
            put(seeds, slots, positions, values[i], data, bounds, i)
            firsts[count] = i
            rank_at[i] = count
            ranks[i] = count
            count += 1
        else:
            ranks[i] = rank_at[first]
    return firsts[:count].copy(), ranks


@kernel
def _owners(
    seeds: Seeds,
    values: Ints,
    texts: Bytes,
    text_bounds: Ints,
    row_values: Ints,
    row_texts: Bytes,
    row_text_bounds: Ints,
) -> Ints:
    """For each row the position of its key, or -1."""
    slots, positions = new_table(len(values))
    for i in range(len(values)):
        put(seeds, slots, positions, values[i], texts, text_bounds, i)
    owners = np.empty(len(row_values), np.int64)
    for row in range(len(row_values)):
        start, end = row_text_bounds[row], row_text_bounds[row + 1]
        owners[row] = find(
            seeds, slots, positions, row_values[row], texts, text_bounds, row_texts, start, end
        )
    return owners


@kernel
def _lay_out(owners: Ints, text_bounds: Ints, row_bounds: Ints) -> tuple[Ints, Ints]:
    """Return each key's number of rows, and the bounds of the entries."""
    counts = np.zeros(len(text_bounds) - 1, np.int64)
    sizes = np.zeros(len(text_bounds) - 1, np.int64)
    for row in range(len(owners)):
        if owners[row] >= 0:
            counts[owners[row]] += 1
            sizes[owners[row]] += row_bounds[row + 1] - row_bounds[row]
    bounds = np.zeros(len(text_bounds), np.int64)
    for i in range(len(counts)):
        text = text_bounds[i + 1] - text_bounds[i]
        size = HEADER + 4 * counts[i] + text + sizes[i]
        bounds[i + 1] = bounds[i] + (size + 7) // 8 * 8
    return counts, bounds


@kernel
def _with_keys(values: Ints, texts: Bytes, text_bounds: Ints, counts: Ints, bounds: Ints) -> Bytes:
    """Return the entries with their keys and, as yet, without rows."""
    out = np.zeros(bounds[-1], np.uint8)
    for i in range(len(values)):
        entry = bounds[i]
        length = text_bounds[i + 1] - text_bounds[i]
        store_int64(out, entry + KEY, values[i])
        store_int32(out, entry + SIZE, bounds[i + 1] - entry)
        store_int32(out, entry + KEY_LENGTH, length)
        copy(out, entry + HEADER + 4 * counts[i], texts, text_bounds[i], length)
    return out


@kernel
def _add_rows(
    out: Bytes, bounds: Ints, counts: Ints, owners: Ints, rows: Bytes, row_bounds: Ints
) -> None:
    # ROWS counts up while rows are added: it is the next row's place in the list of ends.
    filled = np.zeros(len(counts), np.int64)
    for row in range(len(owners)):
        key = owners[row]
        if key < 0:
            continue
        entry = bounds[key]
        size = row_bounds[row + 1] - row_bounds[row]
        text = load_int32(out, entry + KEY_LENGTH)
        start = entry + HEADER + 4 * counts[key] + text + filled[key]
        copy(out, start, rows, row_bounds[row], size)
        if size > 0:
            out[start] = 44  # the row's own opening brace becomes a comma
        filled[key] += size
        placed = load_int32(out, entry + ROWS)
        store_int32(out, entry + HEADER + 4 * placed, filled[key])
        store_int32(out, entry + ROWS, placed + 1)


@kernel
def _rows_each(data: Bytes, bounds: Ints) -> Ints:
    rows = np.empty(len(bounds) - 1, np.int64)
    for i in range(len(rows)):
        rows[i] = load_int32(data, bounds[i] + ROWS)
    return rows


@kernel
def _keys(data: Bytes, starts: Ints) -> tuple[Ints, Bytes, Ints]:
    values = np.empty(len(starts), np.int64)
    text_bounds = np.zeros(len(starts) + 1, np.int64)
    for i in range(len(values)):
        values[i] = load_int64(data, starts[i] + KEY)
        text_bounds[i + 1] = text_bounds[i] + load_int32(data, starts[i] + KEY_LENGTH)
    texts = np.empty(text_bounds[-1], np.uint8)
    for i in range(len(values)):
        text = starts[i] + HEADER + 4 * load_int32(data, starts[i] + ROWS)
        copy(texts, text_bounds[i], data, text, text_bounds[i + 1] - text_bounds[i])
    return values, texts, text_bounds


@kernel
def _all_whole(data: Bytes, bounds: Ints) -> bool:
    for i in range(len(bounds) - 1):
        entry = bounds[i]
        size = bounds[i + 1] - entry
        if size < HEADER or size % 8 or load_int32(data, entry + SIZE) != size:
            return False
        rows = load_int32(data, entry + ROWS)
        text = load_int32(data, entry + KEY_LENGTH)
        needed = HEADER + 4 * rows + text
        if rows < 0 or text < 0 or needed > size:
            return False
        ended = 0
        for row in range(rows):
            end = load_int32(data, entry + HEADER + 4 * row)
            if end < ended or needed + end > size:
                return False
            ended = end
    return True
