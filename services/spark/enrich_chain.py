"""A pipeline's tables, one after another, in one Python worker of Spark's.

    events ──► table 1 ──outputs, by their next key──► table 2 ──► … ──► sink

What one table has enriched goes to the next within the task, copies and all: it stays with the slot
of its first key, whose state says that it is answered (decision 20). So nothing is shuffled again,
and a batch is one transaction, however many tables there are.

Each table has a cache, a join and the memory of its own link.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dovetail.stream.batch import PIECE_BYTES
from dovetail.stream.onward import Onward
from services.spark.enrich_join import TableJoin

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from dovetail.node.step import Outputs
    from dovetail.service.metrics import Latency
    from dovetail.settings import Settings
    from dovetail.stream.batch import EventBatch
    from dovetail.stream.ledger import Ledger
    from dovetail.stream.rdkafka import Producer
    from dovetail.topology import Topology
    from services.spark.enrich_overload import NodeGuard


class Chain:
    def __init__(
        self,
        settings: Settings,
        topology: Topology,
        latency: Latency,
        guard: NodeGuard | None = None,
        caution: int = 1,
    ) -> None:
        """A guard is for one table alone: a chain sheds nothing."""
        tables: list[TableJoin] = []
        for link in reversed(topology.links):
            following = None if link.next is None else _WithinTask(Onward(link.next), tables[0])
            tables.insert(0, TableJoin(settings, link, latency, following, guard, caution))
        self.tables = tables

    @property
    def held_bytes(self) -> int:
        return sum(table.held_bytes for table in self.tables)

    @property
    def cached_keys(self) -> int:
        return sum(table.cached_keys for table in self.tables)

    @property
    def reading_s(self) -> float:
        """What reading the tables has taken in this batch."""
        return sum(table.reading_s for table in self.tables)

    @property
    def algorithm(self) -> str:
        """What the last batch was joined by, table after table."""
        return ", ".join(table.algorithm for table in self.tables)

    @property
    def alarm(self) -> str:
        """What somebody should look at although it works; empty if nothing is."""
        return next((table.alarm for table in self.tables if table.alarm), "")

    def begin(self, slots: Iterable[int], producer: Producer, ledgers: Sequence[Ledger]) -> None:
        """Begin a batch of these slots, with a ledger for each table."""
        for table, ledger in zip(self.tables, ledgers, strict=True):
            table.begin(slots, producer, ledger)

    def take(self, slot: int, batch: EventBatch) -> None:
        self.tables[0].take(slot, batch)

    def finish(self) -> None:
        """Answer everything: what a table has let go of, the next one has then."""
        for table in self.tables:
            table.finish()

    def close(self) -> None:
        for table in self.tables:
            table.close()


class _WithinTask:
    """Hands what one table has enriched on to the next."""

    def __init__(self, onward: Onward, following: TableJoin) -> None:
        self._onward = onward
        self._following = following

    def __call__(self, part: Outputs) -> None:
        of, events = part.of, part.events
        places = of.partitions[events], of.offsets[events], of.timestamps[events]
        for batch in self._onward.rekeyed(part.outputs, *places):
            for piece in batch.pieces(PIECE_BYTES):
                self._following.take(part.slot, piece)
