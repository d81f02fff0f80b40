"""Which partition of the source each event by HTTP goes to: that of its join key.

So the events of one key are on one partition, in the order in which their requests were answered,
and a pipeline that keeps an order keeps it for them. An event whose key cannot be read will be a
dead letter, wherever it is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from dovetail.join.columns import Column
from dovetail.join.mapper import Mapper, groups
from dovetail.pipeline.spec import KeyType
from dovetail.stream.events.decode import JsonDecoder
from dovetail.stream.onward import key_schema

if TYPE_CHECKING:
    from dovetail.pipeline.spec import Pipeline


class Sorter:
    def __init__(self, pipeline: Pipeline, partitions: int) -> None:
        self._mapper = Mapper(partitions, int_key=pipeline.key_type is KeyType.INT)
        self._decoder = JsonDecoder(key_schema(pipeline), with_details=False)

    def warm(self) -> None:
        """Load the kernels, which may have to be compiled: no request should wait for that."""
        self.by_partition(Column.of([b"{}"]))

    def by_partition(self, events: Column) -> dict[int, Column]:
        """The events by partition, each partition's in the order in which they were."""
        count = len(events)
        decoded = self._decoder.decode(events.data, events.bounds, np.zeros(count, np.bool_))
        partitions = self._mapper.slots(decoded.join_keys(np.arange(count)))
        return {number: events.take(rows) for number, rows in groups(partitions)}
