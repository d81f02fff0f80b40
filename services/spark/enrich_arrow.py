"""How many bytes an Arrow batch may have on its way from Spark to Python.

To keep it below a limit, Spark weighs it at every row: a sixth of all that its executors do. Small
events need none: a whole batch of them fits. Whether they are small, the batch before has shown;
where that deceives, and Spark's own memory does not suffice, the batch fails, and what is started
again begins with the limit.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dovetail.stream.ledger import IN

if TYPE_CHECKING:
    from collections.abc import Iterable

    from services.spark.enrich_node import Report

OPTION = "spark.sql.execution.arrow.maxBytesPerBatch"
USUAL, NONE = 64 << 20, (1 << 31) - 1
"""Spark's own, and what it takes for none."""
_FITS = 256 << 20
"""Bytes of a whole batch that may lie in Arrow batches of any size."""


class ArrowLimit:
    def __init__(self, batch: int) -> None:
        """`batch` is the most events that a batch has."""
        self._batch = batch
        self.bytes = USUAL

    def begin(self) -> None:
        """Nothing is known of the events to come."""
        self.bytes = USUAL

    def note(self, reports: Iterable[Report]) -> None:
        """Learn how large the events of a batch were."""
        told = [(report.carried_bytes, report.counts[IN]) for report in reports]
        carried, events = (sum(numbers) for numbers in zip(*told, strict=True))
        if events:
            self.bytes = NONE if carried / events * self._batch <= _FITS else USUAL
