"""Whether the memory that a join is given can hold what it needs at least."""

from __future__ import annotations

from dovetail.errors import ConfigError, MasterDataError
from dovetail.join.pool import BYTES_A_BLOCK, SMALLEST
from dovetail.pipeline.size import KIB, MIB, format_size

_BUFFERS = 4
"""A quarter of the memory is the disk buffer (engine.py), which holds a page at least."""
_LEAST = 2 * SMALLEST * BYTES_A_BLOCK
"""Of a join without pages."""
_TIGHT = 4
"""With so many times the least a join works well; with the least it crawls."""


def require_memory(memory: int, page_bytes: int) -> None:
    """Refuse less than the least, and say how much would do."""
    least = max(_LEAST, _BUFFERS * page_bytes)
    if memory >= least:
        return
    paged = least > _LEAST
    why = f", as a page of the relation takes {page_bytes:,} bytes" if paged else ""
    raise ConfigError(
        f"memory={memory:,} bytes is too little{why}: give {_rounded(least)} at least, better "
        f"{_rounded(_TIGHT * least)} or more"
    )


def require_fit(memory: int, disk_buffer: int, rows: int, size: int) -> None:
    """Refuse what could not be read in parts: a row, or all rows of one key."""
    if size > disk_buffer:
        enough = _rounded(-(-memory * size // disk_buffer))
        raise MasterDataError(
            f"memory={memory:,} bytes is too little: {rows:,} rows that have to be read together "
            f"take {size:,} bytes; give {enough} or more, or take fewer columns"
        )


def _rounded(size: int) -> str:
    unit = MIB if size > MIB else KIB
    return format_size(-(-size // unit) * unit)
