"""What a cache holds, for whoever wants to see it: read from the pool, and nothing is changed.

By NumPy over whole columns; only the texts of the few keys that are shown are gathered one by one.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum, auto
from typing import TYPE_CHECKING

import numpy as np

from dovetail.join.entry import ROWS
from dovetail.join.pool import BLOCK, BYTES_A_BLOCK, LINK, LONGS, NEXT, NONE, WORDS
from dovetail.join.records import CACHED, COUNT, ENTRY, READ_AT, SIZE, STATE, TAKES, TEXT, VALUE

if TYPE_CHECKING:
    from collections.abc import Callable

    from dovetail.join.columns import Flags, Ints
    from dovetail.join.pool import Pool

_LOW = 0xFFFFFFFF
_ROWS_WORD = (LINK + ROWS) // 4


class By(StrEnum):
    """What the keys that are shown have most of."""

    HITS = auto()
    BYTES = auto()
    AGE = auto()


@dataclass(frozen=True, slots=True)
class CachedKey:
    value: int
    """The key itself, or its hash."""
    text: bytes
    """Of a key that is no int."""
    hits: int
    """n, since the policy's last review."""
    rows: int
    """m"""
    bytes: int
    """That it takes of the memory, with all that surrounds its entry."""
    entry_bytes: int
    read_at: int


def most_of(
    pool: Pool, by: By, most: int, among: Callable[[Ints], Flags] | None = None
) -> list[CachedKey]:
    """The cached keys that have most of something; `among` chooses by their values."""
    records = _cached(pool)
    if among is not None:
        records = records[among(pool.longs[records * LONGS + VALUE])]
    column = {By.HITS: COUNT, By.BYTES: TAKES, By.AGE: READ_AT}[by]
    figures = pool.words[records * WORDS + column].astype(np.int64)
    order = np.argsort(figures if by is By.AGE else -figures, kind="stable")[:most]
    return [_shown(pool, int(record)) for record in records[order]]


def find(pool: Pool, value: int, text: bytes) -> CachedKey | None:
    """One key; it does not count as used."""
    records = _cached(pool)
    for record in records[pool.longs[records * LONGS + VALUE] == value].tolist():
        shown = _shown(pool, record)
        if shown.text == text:
            return shown
    return None


def _cached(pool: Pool) -> Ints:
    records = pool.slots[pool.slots != NONE] & _LOW
    states = pool.words[records * WORDS + STATE] & 3
    found: Ints = records[states == CACHED]
    return found


def _shown(pool: Pool, record: int) -> CachedKey:
    word = record * WORDS
    entry = int(pool.words[word + ENTRY])
    return CachedKey(
        int(pool.longs[record * LONGS + VALUE]),
        _text(pool, int(pool.words[word + TEXT]), int(pool.words[word + STATE]) >> 2),
        int(pool.words[word + COUNT]),
        int(pool.words[entry * WORDS + _ROWS_WORD]),
        int(pool.words[word + TAKES]) * BYTES_A_BLOCK,
        int(pool.words[word + SIZE]),
        int(pool.words[word + READ_AT]),
    )


def _text(pool: Pool, block: int, length: int) -> bytes:
    parts = []
    while length > 0:
        start = block * BLOCK + LINK
        size = min(length, BLOCK - LINK)
        parts.append(pool.data[start : start + size].tobytes())
        length -= size
        block = int(pool.words[block * WORDS + NEXT])
    return b"".join(parts)
