"""Collecting master rows for pending keys that may have more of them on other pages.

    key 17   page 3: r r   page 9: r   …   the last page it had not seen ──► entry of 3 rows

1. Rows are appended to their key page by page, in the pool.
2. A key that has seen a whole cycle of pages is done, also in the middle of a read: behind
   that page its rows would come again.
3. When the pool is full, the newest keys start over, so that the oldest is done after one cycle. If
   not even its rows find room beside the events, the caller has to make some (scan.py).

Memory: a chain of blocks a key, four bytes and the row for each.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from dovetail.join.entry import HEADER, LARGEST, Entries
from dovetail.join.matching import answer, due, end_row, entry_size, write_head
from dovetail.join.memory import load_int32, store_int32
from dovetail.join.pending import drop_rows
from dovetail.join.pool import (
    BLOCK,
    COLLECTED_BLOCKS,
    FREE,
    LINK,
    LONGS,
    NEWEST,
    NONE,
    OLDEST,
    ROOM,
    STARTED_OVER,
    WORDS,
    Pool,
    field,
    give_chain,
    inner,
    more_blocks,
    read,
    take,
    write,
)
from dovetail.join.records import (
    BEFORE,
    PENDING,
    ROWS,
    ROWS_BYTES,
    ROWS_FIRST,
    ROWS_LAST,
    START,
    state_of,
    text_length,
)
from dovetail.kernels import kernel

if TYPE_CHECKING:
    from dovetail.join.columns import Bytes, Ints
    from dovetail.join.exchange import Read

_FITS, _STARTS_OVER, _STUCK = range(3)


def collect(
    pool: Pool,
    brought: Read,
    matches: tuple[Ints, Ints],
    first: int,
    seen: int,
    cycle: int,
) -> tuple[Ints, int]:
    """Collect matches from the `first` on; the read's first page is number `seen`, ever counted.

    Return the keys that have now seen a whole cycle of pages, and the match at which to go on:
    before the last one only if the rows of its key do not fit: into the pool, which is then the
    oldest key, or into an entry.
    """
    matched, owners = matches
    rows, ends, covers = brought.rows.rows, brought.ends, brought.covers
    answered, count, match = _collect(
        pool, matched, owners, rows.data, rows.bounds, ends, covers, first, seen, cycle, LARGEST
    )
    return answered[:count], match


def entries_collected(pool: Pool, answered: Ints) -> Entries:
    """Make entries of what answered keys have collected, and free it."""
    bounds = _measure_collected(pool, answered)
    return Entries(_fill_collected(pool, answered, bounds), bounds)


@inner
def _expire(pool: Pool, seen: int, cycle: int, answered: Ints, count: int) -> int:
    key = pool.state[OLDEST]
    while key != NONE and pool.longs[key * LONGS + START] + cycle <= seen:
        answer(pool, key)
        answered[count] = key
        count += 1
        key = pool.state[OLDEST]
    return count


@kernel
def _collect(
    pool: Pool,
    matched: Ints,
    owners: Ints,
    data: Bytes,
    bounds: Ints,
    ends: Ints,
    covers: int,
    first: int,
    seen: int,
    cycle: int,
    largest: int,
) -> tuple[Ints, int, int]:
    longs, state = pool.longs, pool.state
    answered = due(pool, seen + covers, cycle)  # overwritten in the order of leaving
    state[STARTED_OVER] = NONE
    count = 0
    page = 0
    for match in range(first, len(matched)):
        row = matched[match]
        while row >= ends[page]:
            page += 1
            count = _expire(pool, seen + page, cycle, answered, count)
        key = owners[match]
        if state_of(pool, key) != PENDING or longs[key * LONGS + START] > seen + page:
            continue
        size = bounds[row + 1] - bounds[row]
        room = _make_room(pool, key, size, seen + len(ends), largest)
        if room == _STUCK:
            return answered, count, match
        if room == _FITS:
            _add_row(pool, key, data, bounds[row], size)
    while page < covers:
        page += 1
        count = _expire(pool, seen + page, cycle, answered, count)
    return answered, count, len(matched)


@inner
def _end_of_rows(pool: Pool, key: int) -> int:
    """Up to which byte the last block of collected rows is filled; all, if there is none."""
    filled = pool.words[key * WORDS + ROWS_BYTES] % ROOM
    return LINK + filled if filled else BLOCK


@inner
def _make_room(pool: Pool, key: int, size: int, restart: int, largest: int) -> int:
    """See to it that a row fits, at the cost of keys that are newer than the oldest one."""
    if HEADER + text_length(pool, key) + field(pool, key, ROWS_BYTES) + size + 4 > largest:
        return _STUCK
    needed = more_blocks(BLOCK - _end_of_rows(pool, key), size + 4)
    while pool.state[FREE] < needed:
        newest = pool.state[STARTED_OVER]
        if newest == NONE:
            newest = pool.state[NEWEST]
        elif state_of(pool, newest) == PENDING:
            newest = field(pool, newest, BEFORE)
        if newest == NONE or newest == pool.state[OLDEST] or state_of(pool, newest) != PENDING:
            return _STUCK
        drop_rows(pool, newest, restart)
        pool.state[STARTED_OVER] = newest
        if newest == key:
            return _STARTS_OVER
    return _FITS


@kernel
def _add_row(pool: Pool, key: int, data: Bytes, start: int, size: int) -> None:
    word = key * WORDS
    before = pool.state[FREE]
    at = _end_of_rows(pool, key)
    last = field(pool, key, ROWS_LAST)
    if pool.words[word + ROWS_FIRST] == NONE:
        last = take(pool)
        at = LINK
        pool.words[word + ROWS_FIRST] = last
    number = np.empty(4, np.uint8)
    store_int32(number, 0, size)
    block, at = write(pool, last, at, number, 0, 4)
    block, at = write(pool, block, at, data, start, size)
    pool.words[word + ROWS_LAST] = block
    pool.words[word + ROWS] += 1
    pool.words[word + ROWS_BYTES] += size + 4
    pool.state[COLLECTED_BLOCKS] += before - pool.state[FREE]


@kernel
def _measure_collected(pool: Pool, answered: Ints) -> Ints:
    words = pool.words
    bounds = np.zeros(len(answered) + 1, np.int64)
    for i in range(len(answered)):
        word = answered[i] * WORDS
        rows = field(pool, answered[i], ROWS)
        row_bytes = words[word + ROWS_BYTES] - 4 * rows
        text = text_length(pool, answered[i])
        bounds[i + 1] = bounds[i] + entry_size(rows, text, row_bytes)
    return bounds


@kernel
def _fill_collected(pool: Pool, answered: Ints, entry_bounds: Ints) -> Bytes:
    words, state = pool.words, pool.state
    out = np.zeros(entry_bounds[-1], np.uint8)
    number = np.empty(4, np.uint8)
    for i in range(len(answered)):
        word = answered[i] * WORDS
        first = write_head(pool, answered[i], out, entry_bounds[i], entry_bounds[i + 1])
        to = first
        chain = field(pool, answered[i], ROWS_FIRST)
        block, at = chain, LINK
        for nth in range(words[word + ROWS]):
            block, at = read(pool, block, at, number, 0, 4)
            size = load_int32(number, 0)
            block, at = read(pool, block, at, out, to, size)
            end_row(out, entry_bounds[i], nth, first, to, to + size)
            to += size
        state[COLLECTED_BLOCKS] -= give_chain(pool, chain)
        words[word + ROWS_FIRST] = NONE
    return out
