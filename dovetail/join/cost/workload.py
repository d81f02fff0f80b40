"""The figures of R and S that every model needs, with the papers' symbols."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from dovetail.errors import ConfigError
from dovetail.join.cost.factors import PAGE_BYTES

if TYPE_CHECKING:
    from dovetail.join.cost.popularity import Popularity

FUDGE = 1.5
"""f, bytes held for a byte of row or event, where nothing better is known."""
POINTER_BYTES = 8


@dataclass(frozen=True)
class Workload:
    popularity: Popularity
    row_bytes: float
    """v_R"""
    event_bytes: float
    """v_S"""
    page_bytes: float = PAGE_BYTES
    """v_P of MESHJOIN."""
    pointer_bytes: float = POINTER_BYTES
    """A place in the queue: sizeof(ptr) of MESHJOIN, v_P of SSBJ, a node of HYBRIDJOIN's."""
    fudge: float = FUDGE
    """f, for both hash tables, unless H_R has its own."""
    row_fudge: float = 0.0
    """f of H_R alone; 0 = the same."""
    buffer_fudge: float = 1.0
    """Bytes of the disk buffer for a byte of a page: keys, notes, and a second page read ahead."""
    ordered: bool = False
    """Whether R lies in the order of popularity, as HYBRIDJOIN's experiments have it, so that
    sought-after rows share pages. Otherwise they are scattered."""

    unique: bool = False
    """Whether keys are known to have one row: then an event leaves a scan at its match, after
    half a cycle on average. The papers' scans hold it for a whole one."""

    def __post_init__(self) -> None:
        for name in ("row_bytes", "event_bytes", "page_bytes", "fudge", "buffer_fudge"):
            if not getattr(self, name) > 0:
                raise ConfigError(f"{name} must be above 0, not {getattr(self, name)}")
        for name in ("pointer_bytes", "row_fudge"):
            if getattr(self, name) < 0:
                raise ConfigError(f"{name} cannot be negative, but is {getattr(self, name)}")

    @property
    def rows(self) -> float:
        """R_t."""
        return self.popularity.rows

    @property
    def pages(self) -> float:
        """N_R."""
        return max(1.0, self.rows / self.rows_a_page)

    @property
    def rows_a_page(self) -> float:
        return self.page_bytes / self.row_bytes

    @property
    def buffer_bytes(self) -> float:
        """What one page takes in the disk buffer."""
        return self.buffer_fudge * self.page_bytes

    @property
    def cached_row_bytes(self) -> float:
        """What one master row takes in H_R."""
        return (self.row_fudge or self.fudge) * self.row_bytes

    @property
    def pending_event_bytes(self) -> float:
        """What one event takes in H_S and in the queue."""
        return self.fudge * self.event_bytes + self.pointer_bytes

    @property
    def residence(self) -> float:
        """Cycles of a scan that an event is pending for, on average."""
        return 0.5 if self.unique else 1.0

    @property
    def in_memory_bytes(self) -> float:
        """m_m of SSBJ's Theorem 3: all of R in the cache."""
        return self.rows * self.cached_row_bytes
