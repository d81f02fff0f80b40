"""What the engine's own structures take, in the models' terms.

The models know bytes a row, an event and a page, each with a factor f for what surrounds it. The
engine keeps all it holds in blocks (pool.py): a key's record is one, an event or an entry as many
as its bytes need. So f depends on the sizes, and here it is computed, not guessed.
"""

from __future__ import annotations

from math import ceil
from typing import TYPE_CHECKING

from dovetail.errors import ConfigError
from dovetail.join.cost.factors import PAGE_BYTES
from dovetail.join.cost.workload import Workload
from dovetail.join.entry import HEADER
from dovetail.join.exchange import NOTES_A_ROW
from dovetail.join.pending import FIRST_ROOM
from dovetail.join.pool import BYTES_A_BLOCK, ROOM

if TYPE_CHECKING:
    from dovetail.join.cost.popularity import Popularity

_COLUMNS_A_ROW = 24
"""Bytes of a read row's key and the bounds of its text and of itself."""


def engine_workload(
    popularity: Popularity,
    row_bytes: float,
    event_bytes: float,
    *,
    page_bytes: float = PAGE_BYTES,
    ordered: bool = False,
    unique: bool = False,
) -> Workload:
    """The figures of R and S, with what each takes in the engine."""
    for name, size in (("row_bytes", row_bytes), ("event_bytes", event_bytes)):
        if not size > 0:
            raise ConfigError(f"{name} must be above 0, not {size}")
    in_buffer = 1 + (_COLUMNS_A_ROW + NOTES_A_ROW) / row_bytes
    return Workload(
        popularity,
        row_bytes,
        event_bytes,
        page_bytes,
        pointer_bytes=BYTES_A_BLOCK,
        fudge=event_footprint(event_bytes) / event_bytes,
        row_fudge=entry_footprint(row_bytes, popularity.rows_a_key) / row_bytes,
        buffer_fudge=in_buffer,
        ordered=ordered,
        unique=unique,
    )


def event_footprint(event_bytes: float) -> float:
    """Bytes that a pending event takes, its key's record left out."""
    more = max(0.0, event_bytes - FIRST_ROOM)
    return BYTES_A_BLOCK * (1 + ceil(more / ROOM))


def entry_footprint(row_bytes: float, rows: float) -> float:
    """Bytes that a cached key takes for each of its rows."""
    size = HEADER + rows * (4 + row_bytes)
    return BYTES_A_BLOCK * (1 + ceil(size / ROOM)) / rows
