"""Everything that one join holds: pending events and cached entries over one pool."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dovetail.join.cached import CachedEntries
from dovetail.join.pending import Pending
from dovetail.join.pool import BYTES_A_BLOCK, COLLECTED_BLOCKS, FREE, new_pool

if TYPE_CHECKING:
    from dovetail.join.columns import Ints
    from dovetail.join.pool import Pool


class Held:
    def __init__(self, budget: int) -> None:
        self.pool: Pool = new_pool(budget)
        self.pending = Pending(self.pool)
        self.cached = CachedEntries(self.pool)
        self.too_large: Ints | None = None
        """The key whose rows did not fit into pool or entry; whoever waits longest if unknown."""
        self.draining = False
        """Whether nobody is let in, not even by a hit, before all that is pending has left."""

    @property
    def blocks(self) -> int:
        return self.pool.blocks

    @property
    def free(self) -> int:
        return int(self.pool.state[FREE])

    @property
    def collected_blocks(self) -> int:
        """Blocks of master rows that pending keys have collected so far."""
        return int(self.pool.state[COLLECTED_BLOCKS])

    @property
    def collected_bytes(self) -> int:
        return self.collected_blocks * BYTES_A_BLOCK

    @property
    def pending_bytes(self) -> int:
        """For whoever looks on from another thread, while blocks change hands."""
        return max(0, self.pending_blocks) * BYTES_A_BLOCK

    @property
    def pending_blocks(self) -> int:
        """Blocks of pending events and their keys, collected rows left out."""
        return self.blocks - self.free - self.cached.blocks - self.collected_blocks

    @property
    def allocated(self) -> int:
        """Bytes taken from the budget, used or not."""
        return self.pool.nbytes

    @property
    def used(self) -> int:
        """Bytes in use, with their share of table and free stack."""
        return (self.blocks - self.free) * BYTES_A_BLOCK
