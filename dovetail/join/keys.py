"""The hash of a join key: PostgreSQL's own, so that Python, SQL and every node agree.

A text key hashes as `hashtextextended(key, 0)` and an int key as `hashint8extended(key, 0)` do
(Jenkins' lookup3, PostgreSQL's src/common/hashfn.c, seed 0), read as a signed bigint. A composite
key is one text: its parts, ints in decimal, joined with SEPARATOR. The slot is the hash modulo
the number of slots, never negative. The vectors in tests/unit/hash_vectors.json came from a
PostgreSQL and bind every other implementation too.

hashint8extended folds a key to 32 bits first: it spreads keys over slots, it does not identify
them. Two texts may share a hash as well: whoever matches by hash compares the bytes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy import uint32

from dovetail.errors import ConfigError
from dovetail.kernels import kernel

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

KeyType = Literal["int", "text"]

SEPARATOR = 0x1F
"""U+001F, the unit separator: no part of a composite key may contain it."""

_GOLDEN = 0x9E3779B9 + 3923095


@kernel
def _rotate(word: uint32, by: int) -> uint32:
    return uint32((word << by) | (word >> (32 - by)))


@kernel
def _mix(a: uint32, b: uint32, c: uint32) -> tuple[uint32, uint32, uint32]:
    a, c = uint32(a - c) ^ _rotate(c, 4), uint32(c + b)
    b, a = uint32(b - a) ^ _rotate(a, 6), uint32(a + c)
    c, b = uint32(c - b) ^ _rotate(b, 8), uint32(b + a)
    a, c = uint32(a - c) ^ _rotate(c, 16), uint32(c + b)
    b, a = uint32(b - a) ^ _rotate(a, 19), uint32(a + c)
    c, b = uint32(c - b) ^ _rotate(b, 4), uint32(b + a)
    return uint32(a), uint32(b), uint32(c)


@kernel
def _final(a: uint32, b: uint32, c: uint32) -> np.int64:
    c = uint32((c ^ b) - _rotate(b, 14))
    a = uint32((a ^ c) - _rotate(c, 11))
    b = uint32((b ^ a) - _rotate(a, 25))
    c = uint32((c ^ b) - _rotate(b, 16))
    a = uint32((a ^ c) - _rotate(c, 4))
    b = uint32((b ^ a) - _rotate(a, 14))
    c = uint32((c ^ b) - _rotate(b, 24))
    return np.int64((np.uint64(b) << np.uint64(32)) | np.uint64(c))


@kernel
def hash_bytes(data: NDArray[np.uint8], start: int, end: int) -> np.int64:
    """`hash_bytes_extended(data[start:end], seed 0)` as a signed 64-bit integer."""
    a = b = c = uint32(_GOLDEN + (end - start))
    at = start
    while end - at >= 12:
        a = uint32(a + _word(data, at))
        b = uint32(b + _word(data, at + 4))
        c = uint32(c + _word(data, at + 8))
        a, b, c = _mix(a, b, c)
        at += 12
    # The tail fills a, then b, then c from its second byte on: c's first counts the length.
    for nth in range(end - at):
        byte = uint32(data[at + nth])
        if nth < 4:
            a = uint32(a + (byte << (8 * nth)))
        elif nth < 8:
            b = uint32(b + (byte << (8 * (nth - 4))))
        else:
            c = uint32(c + (byte << (8 * (nth - 7))))
    return _final(a, b, c)


@kernel
def _word(data: NDArray[np.uint8], at: int) -> uint32:
    return uint32(data[at] | (data[at + 1] << 8) | (data[at + 2] << 16) | (data[at + 3] << 24))


@kernel
def hash_text_many(data: NDArray[np.uint8], bounds: NDArray[np.int64]) -> NDArray[np.int64]:
    """Hash text i, the UTF-8 bytes data[bounds[i]:bounds[i+1]], as hashtextextended does."""
    hashes = np.empty(bounds.size - 1, np.int64)
    for i in range(hashes.size):
        hashes[i] = hash_bytes(data, bounds[i], bounds[i + 1])
    return hashes


@kernel
def hash_int_many(keys: NDArray[np.int64]) -> NDArray[np.int64]:
    """Hash int keys as hashint8extended does."""
    hashes = np.empty(keys.size, np.int64)
    for i in range(keys.size):
        key = keys[i]
        high = key >> 32
        # A small negative int8 hashes as its int4 would: PostgreSQL joins across widths.
        folded = uint32(key) ^ uint32(high if key >= 0 else ~high)
        a = b = c = uint32(_GOLDEN + 4)
        hashes[i] = _final(uint32(a + folded), b, c)
    return hashes


@kernel
def slots_of(hashes: NDArray[np.int64], slots: int) -> NDArray[np.int32]:
    """Give the slot of each hash: the floored modulo, so 0 up to slots - 1."""
    found = np.empty(hashes.size, np.int32)
    for i in range(hashes.size):
        found[i] = hashes[i] % slots
    return found


def hash_sql(column_sql: str, key_type: KeyType) -> str:
    """Write the SQL expression for the hash of a key; NULL for a NULL key.

    column_sql is an already quoted column or an expression such as composite_sql gives. Collation
    "C" hashes the bytes themselves, whatever the column's own collation makes equal. The database
    must be encoded in UTF8.
    """
    if key_type == "text":
        return f'hashtextextended(({column_sql})::text COLLATE "C", 0)'
    return f"hashint8extended(({column_sql})::int8, 0)"


def slot_sql(column_sql: str, key_type: KeyType, slots: int) -> str:
    """Write the SQL expression for the slot of a key; NULL for a NULL key."""
    if slots < 1:
        raise ConfigError(f"slots is {slots}: a pipeline needs at least one")
    hashed = hash_sql(column_sql, key_type)
    # SQL's mod keeps the sign of the hash; adding slots once and reducing again floors it. Spelt
    # as a function, because a driver would take a percent sign for a placeholder.
    return f"mod(mod({hashed}, {slots}) + {slots}, {slots})::int4"


def composite_sql(columns_sql: Sequence[str]) -> str:
    """Write the SQL expression for a composite key's text; NULL if any part is NULL."""
    return f" || chr({SEPARATOR}) || ".join(f"({column})::text" for column in columns_sql)
