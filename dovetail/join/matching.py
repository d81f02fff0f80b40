"""Finding the pending keys that master rows belong to, and making entries of those rows.

    rows ──► matches ─┬─ complete: all rows of a key are in this very read ──► entries
                      └─ collected: there may be more on other pages (collecting.py)

1. `matches` probes the table with every row: the hot loop of a scan (c_H).
2. `complete` answers keys from the read at hand: index, lookup, and scans of unique keys.

Memory: up to 24 bytes a row of the read, counted with the disk buffer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from dovetail.errors import MasterDataError
from dovetail.join.entry import HEADER, KEY, KEY_LENGTH, LARGEST, RESERVED, SIZE, Entries
from dovetail.join.entry import ROWS as ENTRY_ROWS
from dovetail.join.memory import copy, prefetch, store_int32, store_int64
from dovetail.join.pool import (
    BLOCK,
    LINK,
    LONGS,
    NEWEST,
    NONE,
    OLDEST,
    WORDS,
    Pool,
    field,
    inner,
    read,
)
from dovetail.join.records import (
    ANSWERED,
    BEFORE,
    BEHIND,
    PENDING,
    ROWS,
    ROWS_FIRST,
    ROWS_LAST,
    START,
    TEXT,
    VALUE,
    cell_of,
    fetch_record,
    fetch_slot,
    seek,
    set_state,
    state_of,
    tag_of,
    text_length,
    unlink,
)
from dovetail.kernels import kernel

if TYPE_CHECKING:
    from dovetail.join.columns import Bytes, Ints, JoinKeys
    from dovetail.join.entry import MasterRows

_NEAR = 8
_FAR = 32
_CHUNK = 1024
"""Rows that are filtered before the first of them is looked up."""
_COMMA = 44
NEVER = 1 << 62
"""The cycle of a phase that has none."""


def matches(pool: Pool, keys: JoinKeys) -> tuple[Ints, Ints]:
    """The master rows that a pending key waits for, and the record of each one's key."""
    return _matches(pool, keys.values, keys.texts.data, keys.texts.bounds)


def complete(
    pool: Pool, rows: MasterRows, asked: Ints, seen: int = 0, cycle: int = NEVER
) -> tuple[Ints, Entries]:
    """Answer every key that has a row here, and in any case those that were asked for.

    The same goes for those that, after `seen` pages, have seen a whole cycle of them.
    """
    answered, matched, following, bounds = _complete(
        pool,
        rows.keys.values,
        rows.keys.texts.data,
        rows.keys.texts.bounds,
        rows.rows.bounds,
        asked,
        seen,
        cycle,
    )
    data = _fill_read(pool, answered, matched, following, bounds, rows.rows.data, rows.rows.bounds)
    return answered, Entries(data, bounds)


@kernel
def _matches(pool: Pool, values: Ints, texts: Bytes, bounds: Ints) -> tuple[Ints, Ints]:
    # Small and growing: to touch fresh memory for every row costs as much as to probe it.
    matched = np.empty(_CHUNK, np.int64)
    owners = np.empty(_CHUNK, np.int64)
    candidates = np.empty(_CHUNK, np.int64)
    tags = np.empty(_CHUNK, np.int64)
    count = 0
    for first in range(0, len(values), _CHUNK):
        end = min(first + _CHUNK, len(values))
        found = _filter(pool, values, first, end, candidates)
        if count + found > len(matched):
            matched = np.concatenate((matched, np.empty(len(matched), np.int64)))
            owners = np.concatenate((owners, np.empty(len(owners), np.int64)))
        count = _verify(
            pool, values, texts, bounds, candidates, tags, found, matched, owners, count
        )
    return matched[:count], owners[:count]


@inner
def _filter(pool: Pool, values: Ints, first: int, end: int, candidates: Ints) -> int:
    """Find the rows that a key may wait for: most rows of a scan are nobody's and end here."""
    cells = pool.filter
    count = 0
    for row in range(first, end):
        if row + _FAR < len(values):
            prefetch(cells, cell_of(pool, values[row + _FAR]))
        # Written in any case and counted if it may match: there is no branch to guess.
        candidates[count] = row
        count += cells[cell_of(pool, values[row])] != 0
    return count


@inner
def _verify(
    pool: Pool,
    values: Ints,
    texts: Bytes,
    bounds: Ints,
    candidates: Ints,
    tags: Ints,
    found: int,
    matched: Ints,
    owners: Ints,
    count: int,
) -> int:
    """Add those of the candidates that a key does wait for."""
    # The table and the records are larger than any cache: ask for them in time.
    for nth in range(found):
        row = candidates[nth]
        tags[nth] = tag_of(pool, values[row], texts, bounds[row], bounds[row + 1])
        fetch_slot(pool, tags[nth], values[row])
    for nth in range(found):
        if nth + _NEAR < found:
            fetch_record(pool, tags[nth + _NEAR])
        row = candidates[nth]
        key = seek(pool, tags[nth], values[row], texts, bounds[row], bounds[row + 1])
        if key != NONE and state_of(pool, key) == PENDING:
            matched[count] = row
            owners[count] = key
            count += 1
    return count


@inner
def _fetch_neighbours(pool: Pool, key: int) -> None:
    """Ask for the keys before and behind this one in the queue, which it will be taken out of."""
    prefetch(pool.longs, field(pool, key, BEFORE) * LONGS)
    prefetch(pool.longs, field(pool, key, BEHIND) * LONGS)


@inner
def answer(pool: Pool, key: int) -> None:
    set_state(pool, key, ANSWERED)
    unlink(pool, OLDEST, NEWEST, key)


@kernel
def _complete(
    pool: Pool,
    values: Ints,
    texts: Bytes,
    text_bounds: Ints,
    bounds: Ints,
    asked: Ints,
    seen: int,
    cycle: int,
) -> tuple[Ints, Ints, Ints, Ints]:
    """Return the answered keys, the matched rows, for each the next one of its key, and bounds."""
    words = pool.words
    matched, owners = _matches(pool, values, texts, text_bounds)
    following = np.full(len(matched), NONE, np.int64)
    answered = np.empty(len(matched) + len(asked), np.int64)
    count = 0
    for match in range(len(matched)):
        if match + _NEAR < len(matched):
            _fetch_neighbours(pool, owners[match + _NEAR])
        key = owners[match]
        word = key * WORDS
        if state_of(pool, key) == PENDING:
            answer(pool, key)
            answered[count] = key
            count += 1
            words[word + ROWS_FIRST] = match
        else:
            following[words[word + ROWS_LAST]] = match
        words[word + ROWS_LAST] = match
    for nth in range(len(asked)):
        if state_of(pool, asked[nth]) == PENDING:
            answer(pool, asked[nth])
            answered[count] = asked[nth]
            count += 1
    without = due(pool, seen, cycle)
    for nth in range(len(without)):
        answer(pool, without[nth])
    answered = np.concatenate((answered[:count], without))
    entry_bounds = _measure_read(pool, answered, matched, following, bounds)
    return answered, matched, following, entry_bounds


@inner
def entry_size(rows: int, text: int, row_bytes: int) -> int:
    size = (HEADER + 4 * rows + text + row_bytes + 7) // 8 * 8
    if size > LARGEST:
        raise MasterDataError(
            "the master rows of one join key take 2 GB or more, which cannot be joined at once: "
            "take fewer columns, or remove rows of that key"
        )
    return size


@kernel
def _measure_read(pool: Pool, answered: Ints, matched: Ints, following: Ints, bounds: Ints) -> Ints:
    words = pool.words
    entry_bounds = np.zeros(len(answered) + 1, np.int64)
    for i in range(len(answered)):
        word = answered[i] * WORDS
        match = field(pool, answered[i], ROWS_FIRST)
        count = 0
        size = 0
        while match != NONE:
            row = matched[match]
            count += 1
            size += bounds[row + 1] - bounds[row]
            match = following[match]
        words[word + ROWS] = count
        text = text_length(pool, answered[i])
        entry_bounds[i + 1] = entry_bounds[i] + entry_size(count, text, size)
    return entry_bounds


@inner
def write_head(pool: Pool, key: int, out: Bytes, entry: int, end: int) -> int:
    """Write an entry up to its first row; return where that stands."""
    rows = field(pool, key, ROWS)
    text = text_length(pool, key)
    store_int64(out, entry + KEY, pool.longs[key * LONGS + VALUE])
    store_int32(out, entry + SIZE, end - entry)
    store_int32(out, entry + ENTRY_ROWS, rows)
    store_int32(out, entry + KEY_LENGTH, text)
    store_int32(out, entry + RESERVED, 0)
    start = entry + HEADER + 4 * rows
    read(pool, field(pool, key, TEXT), LINK, out, start, text)
    return start + text


@inner
def end_row(out: Bytes, entry: int, nth: int, first: int, start: int, end: int) -> None:
    if end > start:
        out[start] = _COMMA  # in place of the row's own opening brace
    store_int32(out, entry + HEADER + 4 * nth, end - first)


@inner
def _fetch_row(pool: Pool, key: int, matched: Ints, data: Bytes, bounds: Ints) -> None:
    """Ask for a key's first row, which came from the disk and is in no cache yet."""
    match = field(pool, key, ROWS_FIRST)
    if match != NONE:
        at = bounds[matched[match]]
        prefetch(data, at)
        prefetch(data, at + BLOCK)


@kernel
def _fill_read(
    pool: Pool,
    answered: Ints,
    matched: Ints,
    following: Ints,
    entry_bounds: Ints,
    data: Bytes,
    bounds: Ints,
) -> Bytes:
    out = np.zeros(entry_bounds[-1], np.uint8)
    for i in range(len(answered)):
        if i + _NEAR < len(answered):
            _fetch_row(pool, answered[i + _NEAR], matched, data, bounds)
        first = write_head(pool, answered[i], out, entry_bounds[i], entry_bounds[i + 1])
        at = first
        nth = 0
        match = field(pool, answered[i], ROWS_FIRST)
        while match != NONE:
            row = matched[match]
            size = bounds[row + 1] - bounds[row]
            copy(out, at, data, bounds[row], size)
            end_row(out, entry_bounds[i], nth, first, at, at + size)
            at += size
            nth += 1
            match = following[match]
    return out


@kernel
def due(pool: Pool, seen: int, cycle: int) -> Ints:
    longs, state = pool.longs, pool.state
    count = 0
    key = state[OLDEST]
    while key != NONE and longs[key * LONGS + START] + cycle <= seen:
        count += 1
        key = field(pool, key, BEHIND)
    keys = np.empty(count, np.int64)
    key = state[OLDEST]
    for i in range(count):
        keys[i] = key
        key = field(pool, key, BEHIND)
    return keys
