"""One pool of 64-byte blocks for everything the join holds, whoever needs it more.

    free    [ 7 | 2 | 9 | …  ]                    a stack of the blocks nobody uses
    slots   [ tag+block | – | tag+block | … ]     open addressing over distinct join keys
    filter  [ 0 0 1 0 0 0 0 2 0 0 … ]             keys by a few more bits of their tag, counted
    data    ┌────┬────┬────┬────┬────┬────┐
            │key │evt │evt…│rows│key │entr│…     block n is data[64·n : 64·n + 64]
            └────┴────┴────┴────┴────┴────┘

A block is a cache line. Its first four bytes name the next block of its chain, so that an
event, a text, a key's collected master rows and a cached entry of any size are chains, are
removed from the middle at once, and leave no hole that another could not fill: pending
events (H_S), arrival queue and master cache (H_R) share the budget byte by byte.

Most rows of a scan belong to nobody. In a table a third full, whether a row's slot is taken is
a toss-up that no processor predicts; in the filter the answer is nearly always no.

Memory: 80 bytes a block (64, a slot of 8, 4 on the free stack, 4 of the filter), allocated once.
Every key takes two blocks or more, so that the table is at most half full.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import numpy as np

from dovetail.errors import ConfigError
from dovetail.join.memory import copy, prefetch
from dovetail.join.seeds import SEEDS
from dovetail.kernels import kernel

if TYPE_CHECKING:
    from dovetail.join.columns import Bytes, Ints, SmallInts
    from dovetail.join.seeds import Seeds

BLOCK = 64
LINK = 4
"""Bytes at a block's start that name the next one."""
ROOM = BLOCK - LINK
WORDS, LONGS = BLOCK // 4, BLOCK // 8
NONE = -1
CELLS_A_BLOCK = 4
BYTES_A_BLOCK = BLOCK + 8 + 4 + CELLS_A_BLOCK
SMALLEST = 64
"""Blocks of the smallest pool."""
MOST_BLOCKS = (1 << 31) - 1
"""A block's number is an int32."""
NEXT = 0
"""The word of any block that names the next one of its chain."""
_AHEAD = 6

Function = TypeVar("Function")
_without_counting: Any = kernel(_nrt=False)

# The counters, in `Pool.state`.
(
    FREE,
    OLDEST,
    NEWEST,
    KEYS,
    EVENTS,
    HOTTEST,
    COLDEST,
    CACHED_KEYS,
    CACHED_BLOCKS,
    COLLECTED_BLOCKS,
    SEQUENCE,
    BATCH,
    EVENT_BLOCKS,
    STARTED_OVER,
    _COUNTERS,
) = range(15)


def inner(function: Function) -> Function:
    """Compile what is called within kernels and allocates nothing.

    Without reference counting, which would cost two atomic operations each time that an array
    of the pool is touched.
    """
    compiled: Function = _without_counting(function)
    return compiled


class Pool(NamedTuple):
    """The arrays, as the kernels take them; `words` and `longs` are views of `data`."""

    data: Bytes
    words: SmallInts
    longs: Ints
    slots: Ints
    free: SmallInts
    filter: Bytes
    state: Ints
    seeds: Seeds
    """Of the whole process (stir.py)."""

    @property
    def blocks(self) -> int:
        return len(self.free)

    @property
    def nbytes(self) -> int:
        """Bytes really allocated."""
        arrays = (self.data, self.slots, self.free, self.filter, self.state)
        return sum(array.nbytes for array in arrays)


def new_pool(budget: int) -> Pool:
    """Return a pool that takes at most so many bytes, and nearly all of them."""
    blocks = (budget - 8 * _COUNTERS) // BYTES_A_BLOCK
    if blocks < SMALLEST:
        raise ConfigError(
            f"{budget} bytes are too few to hold pending events: give the join more memory"
        )
    if blocks > MOST_BLOCKS:
        most = MOST_BLOCKS * BYTES_A_BLOCK >> 30
        raise ConfigError(
            f"{budget} bytes are more than one join can use: give it {most}GiB at most"
        )
    try:
        return _pool(blocks)
    except MemoryError:
        raise ConfigError(
            f"this machine has no {budget} bytes for a join: give it less memory"
        ) from None


def _pool(blocks: int) -> Pool:
    longs = np.empty(blocks * LONGS, np.int64)
    state = np.zeros(_COUNTERS, np.int64)
    state[FREE] = blocks
    for end in (OLDEST, NEWEST, HOTTEST, COLDEST):
        state[end] = NONE
    return Pool(
        longs.view(np.uint8),
        longs.view(np.int32),
        longs,
        np.full(blocks, NONE, np.int64),
        # Handed out from the stack's end: the pool fills from its start.
        np.arange(blocks - 1, -1, -1, dtype=np.int32),
        np.zeros(CELLS_A_BLOCK * blocks, np.uint8),
        state,
        SEEDS,
    )


@inner
def field(pool: Pool, block: int, word: int) -> int:
    """A block's word of four bytes, as the kernels count."""
    return np.int64(pool.words[block * WORDS + word])  # type: ignore[return-value]


@inner
def take(pool: Pool) -> int:
    """Return a free block, its chain ended; the caller knows that there is one."""
    top = pool.state[FREE] - 1
    pool.state[FREE] = top
    if top >= _AHEAD:
        prefetch(pool.longs, pool.free[top - _AHEAD] * LONGS)
    block: int = np.int64(pool.free[top])  # type: ignore[assignment]
    pool.words[block * WORDS] = NONE
    return block


@inner
def give_chain(pool: Pool, block: int) -> int:
    """Free a chain; return its length. NONE is the chain of no block."""
    count = 0
    while block != NONE:
        following = field(pool, block, NEXT)
        pool.free[pool.state[FREE]] = block
        pool.state[FREE] += 1
        count += 1
        block = following
    return count


@inner
def more_blocks(room: int, length: int) -> int:
    """How many blocks follow one that has room for the first so many of these bytes."""
    return 0 if length <= room else (length - room + ROOM - 1) // ROOM


@inner
def write(pool: Pool, block: int, at: int, data: Bytes, start: int, length: int) -> tuple[int, int]:
    """Continue a chain that is filled up to byte `at` of its last block; return its new end."""
    while length > 0:
        if at == BLOCK:
            following = take(pool)
            pool.words[block * WORDS] = following
            block = following
            at = LINK
        part = min(length, BLOCK - at)
        copy(pool.data, block * BLOCK + at, data, start, part)
        at += part
        start += part
        length -= part
    return block, at


@inner
def read(pool: Pool, block: int, at: int, out: Bytes, to: int, length: int) -> tuple[int, int]:
    """Copy the next bytes of a chain; return where they end."""
    while length > 0:
        if at == BLOCK:
            block = field(pool, block, NEXT)
            at = LINK
        part = min(length, BLOCK - at)
        copy(out, to, pool.data, block * BLOCK + at, part)
        at += part
        to += part
        length -= part
    return block, at


@inner
def same_bytes(pool: Pool, block: int, data: Bytes, start: int, length: int) -> bool:
    """Whether a chain starts with these bytes."""
    at = LINK
    for i in range(length):
        if at == BLOCK:
            block = field(pool, block, NEXT)
            at = LINK
        if pool.data[block * BLOCK + at] != data[start + i]:
            return False
        at += 1
    return True
