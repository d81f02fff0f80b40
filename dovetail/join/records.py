"""The key record: one block for each join key that the join holds anything of.

A key is pending (its events wait, H_S) or cached (its entry answers, H_R), never both: one
probe of one table says which. Words of four bytes:

         pending                          cached
     0   32 bits of the key's hash        the same
     1   length of text · 4 + state       the same
     2   join key, 8 bytes                the same
     4   first block of the text          the same
     5   bytes of collected rows          size of the entry
     6   the key before it in the queue   the key used after it
     7   the key behind it                the key used before it
     8   first event                      first block of the entry
     9   last event                       blocks that the key takes
    10   number of events                 f_count: events answered lately
    11   first block of collected rows    the batch that last used it
    12   last block of collected rows     where in that batch's entries it stands
    13   number of collected rows         when its rows were read (caching.py)
    14   start, 8 bytes: the first page   credit (cached.py), 8 bytes
         that it has seen

A text key has the public 64-bit hash of its text as its join key. Different texts may share it: in
the table they stand by a hash of the process's own (stir.py), and are told apart by their bytes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dovetail.join.memory import prefetch
from dovetail.join.pool import (
    LINK,
    LONGS,
    NONE,
    WORDS,
    field,
    give_chain,
    inner,
    more_blocks,
    same_bytes,
    take,
    write,
)
from dovetail.join.stir import identity, stirred

if TYPE_CHECKING:
    from dovetail.join.columns import Bytes, Ints
    from dovetail.join.pool import Pool

TAG = 0
"""In a record's first word, where other blocks name the next one of their chain."""
STATE, TEXT, BEFORE, BEHIND, COUNT, START = 1, 4, 6, 7, 10, 7
VALUE = 1
"""VALUE and START count words of eight bytes."""
ROWS_BYTES, FIRST_EVENT, LAST_EVENT, ROWS_FIRST, ROWS_LAST, ROWS = 5, 8, 9, 11, 12, 13
SIZE, ENTRY, TAKES, USED_BY, STANDS_AT, READ_AT = 5, 8, 9, 11, 12, 13

PENDING, CACHED, ANSWERED = 1, 2, 3
HASHED = 256
"""Keys of a batch that are hashed before the first of them is sought."""
_NEAR = 8
_LOW = 0xFFFFFFFF
_FULL = 255


@inner
def tag_of(pool: Pool, key: int, data: Bytes, start: int, end: int) -> int:
    """32 bits of a key's hash: they choose its slot and tell most others apart from it."""
    return (stirred(pool.seeds, identity(pool.seeds, key, data, start, end)) >> 32) & _LOW


@inner
def tag_in(pool: Pool, block: int) -> int:
    """The tag that a record was entered by."""
    return field(pool, block, TAG) & _LOW


@inner
def home_of(capacity: int, tag: int) -> int:
    """The slot at which a search starts, of any number of slots (fastrange)."""
    return (tag * capacity) >> 32


@inner
def cell_of(pool: Pool, key: int) -> int:
    """The cell of the filter that counts a key; texts that share a public hash share it."""
    return home_of(len(pool.filter), (stirred(pool.seeds, key) >> 32) & _LOW)


@inner
def state_of(pool: Pool, block: int) -> int:
    return field(pool, block, STATE) & 3


@inner
def text_length(pool: Pool, block: int) -> int:
    return field(pool, block, STATE) >> 2


@inner
def set_state(pool: Pool, block: int, state: int) -> None:
    word = block * WORDS + STATE
    pool.words[word] = (pool.words[word] & ~3) | state


@inner
def _count(pool: Pool, key: int, change: int) -> None:
    # A cell that has once been full stays so: it may stand for more keys than it can count.
    cell = cell_of(pool, key)
    if pool.filter[cell] < _FULL:
        pool.filter[cell] += change


@inner
def seek(pool: Pool, tag: int, key: int, data: Bytes, start: int, end: int) -> int:
    """Return the record of the key whose text is `data[start:end]`, or NONE."""
    capacity = len(pool.slots)
    at = home_of(capacity, tag)
    while pool.slots[at] != NONE:
        slot = pool.slots[at]
        if (slot >> 32) & _LOW == tag:
            block: int = slot & _LOW
            if (
                pool.longs[block * LONGS + VALUE] == key
                and text_length(pool, block) == end - start
                and same_bytes(pool, field(pool, block, TEXT), data, start, end - start)
            ):
                return block
        at += 1
        if at == capacity:
            at = 0
    return NONE


@inner
def fetch_slot(pool: Pool, tag: int, key: int) -> None:
    """Ask for what a search for a key, and its entering, will touch first."""
    prefetch(pool.slots, home_of(len(pool.slots), tag))
    prefetch(pool.filter, cell_of(pool, key))


@inner
def fetch_record(pool: Pool, tag: int) -> None:
    """Ask for the record that a search will most likely end at; its slot was asked for before."""
    slot = pool.slots[home_of(len(pool.slots), tag)]
    if slot != NONE:
        prefetch(pool.longs, (slot & _LOW) * LONGS)


@inner
def hashed(pool: Pool, values: Ints, texts: Bytes, bounds: Ints, i: int, tags: Ints) -> int:
    """The tag of a batch's key; called for one after the other, with room for HASHED of them."""
    nth = i % HASHED
    if nth == 0:
        for ahead in range(i, min(i + HASHED, len(values))):
            tag = tag_of(pool, values[ahead], texts, bounds[ahead], bounds[ahead + 1])
            tags[ahead - i] = tag
            fetch_slot(pool, tag, values[ahead])
    if nth + _NEAR < HASHED and i + _NEAR < len(values):
        fetch_record(pool, tags[nth + _NEAR])
    return tags[nth]  # type: ignore[no-any-return]


@inner
def blocks_of_key(text: int) -> int:
    """Blocks of a record with its text of so many bytes."""
    return 1 + more_blocks(0, text)


@inner
def enter(pool: Pool, tag: int, key: int, state: int, data: Bytes, start: int, end: int) -> int:
    """Make the record of a key that has none; the caller knows that there is room."""
    block = take(pool)
    word = block * WORDS
    for i in range(1, WORDS):
        pool.words[word + i] = NONE
    pool.words[word + TAG] = tag
    pool.words[word + STATE] = (end - start) << 2 | state
    pool.longs[block * LONGS + VALUE] = key
    if end > start:
        text = take(pool)
        pool.words[word + TEXT] = text
        write(pool, text, LINK, data, start, end - start)
    capacity = len(pool.slots)
    at = home_of(capacity, tag)
    while pool.slots[at] != NONE:
        at += 1
        if at == capacity:
            at = 0
    pool.slots[at] = (tag << 32) | block
    _count(pool, key, 1)
    return block


@inner
def forget(pool: Pool, block: int) -> None:
    """Free a record and its text, and close the gap in the table."""
    capacity = len(pool.slots)
    at = home_of(capacity, tag_in(pool, block))
    while pool.slots[at] & _LOW != block:
        at += 1
        if at == capacity:
            at = 0
    _close(pool, at)
    _count(pool, pool.longs[block * LONGS + VALUE], -1)
    give_chain(pool, field(pool, block, TEXT))
    pool.words[block * WORDS] = NONE
    give_chain(pool, block)


@inner
def _steps(start: int, at: int, capacity: int) -> int:
    """How far a slot is from another, going up and around."""
    return at - start if at >= start else at - start + capacity


@inner
def _close(pool: Pool, gap: int) -> None:
    capacity = len(pool.slots)
    at = gap + 1 if gap + 1 < capacity else 0
    while pool.slots[at] != NONE:
        start = home_of(capacity, (pool.slots[at] >> 32) & _LOW)
        # A key may move back into the gap unless its search starts behind it.
        if _steps(start, at, capacity) >= _steps(gap, at, capacity):
            pool.slots[gap] = pool.slots[at]
            gap = at
        at += 1
        if at == capacity:
            at = 0
    pool.slots[gap] = NONE


@inner
def append(pool: Pool, first: int, last: int, block: int) -> None:
    """Put a record at the end of the list whose two ends are these counters."""
    end = pool.state[last]
    pool.words[block * WORDS + BEFORE] = end
    pool.words[block * WORDS + BEHIND] = NONE
    if end == NONE:
        pool.state[first] = block
    else:
        pool.words[end * WORDS + BEHIND] = block
    pool.state[last] = block


@inner
def unlink(pool: Pool, first: int, last: int, block: int) -> None:
    before = field(pool, block, BEFORE)
    behind = field(pool, block, BEHIND)
    if before == NONE:
        pool.state[first] = behind
    else:
        pool.words[before * WORDS + BEHIND] = behind
    if behind == NONE:
        pool.state[last] = before
    else:
        pool.words[behind * WORDS + BEFORE] = before
