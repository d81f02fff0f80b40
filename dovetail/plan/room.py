"""What an entry takes in a cache, and how much of a node's cache a slot may fill.

The unit is the block of the cache's pool (join/pool.py), BYTES_A_BLOCK of the budget each.

Which node holds which slot is decided when nodes come and go, long after a plan is made. So the
budget of a node's cache is divided among the most slots that one of the pipeline's nodes can have:
whatever the assignment, no node's part of a plan is larger than its cache.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from dovetail.join.caching import MOST_NOTES, NOTES_SHARE
from dovetail.join.entry import HEADER
from dovetail.join.pending import FIRST_ROOM
from dovetail.join.pool import BYTES_A_BLOCK, ROOM

if TYPE_CHECKING:
    from dovetail.join.columns import Ints

_COUNTERS = 1 << 10
"""Bytes that cover the counters of pool and notes."""
_PLANNED = 7 / 8
"""How much of a cache a plan may fill: the rest is for what the stream brings new."""


def entry_bytes(rows: Ints, row_bytes: Ints, key_bytes: Ints) -> Ints:
    """The sizes of entries (join/entry.py) with so many rows, bytes of rows and of the key."""
    return (HEADER + 4 * rows + key_bytes + row_bytes + 7) // 8 * 8


def entry_blocks(rows: Ints, row_bytes: Ints, key_bytes: Ints) -> Ints:
    """The blocks that such entries take as cached keys, each with its record."""
    return blocks_of(entry_bytes(rows, row_bytes, key_bytes), key_bytes)


def blocks_of(sizes: Ints, key_bytes: Ints) -> Ints:
    """The blocks that entries of these sizes take as cached keys."""
    return 1 + _chain(key_bytes) + np.maximum(_chain(sizes), 1)


def event_blocks(event_bytes: float) -> float:
    """The blocks that an event of so many bytes takes while it waits, v_S."""
    return 1.0 + math.ceil(max(0.0, event_bytes - FIRST_ROOM) / ROOM)


def cache_blocks(memory: int) -> int:
    """The blocks for entries of a cache phase of so many bytes, a few fewer at most."""
    notes = min(memory // NOTES_SHARE, MOST_NOTES)
    return max(0, (memory - notes - _COUNTERS) // BYTES_A_BLOCK)


def slot_share(memory: int, slots: int, nodes: int) -> int:
    """The blocks of one slot, where each node's cache has so many bytes."""
    return cache_blocks(memory) // -(-slots // min(nodes, slots))


def slot_blocks(memory: int, slots: int, nodes: int) -> int:
    """Those of them that a plan may fill."""
    return int(_PLANNED * slot_share(memory, slots, nodes))


def _chain(length: Ints) -> Ints:
    return (length + ROOM - 1) // ROOM
