"""A range join over Arrow batches: the stream and the relation, with the intervals of both.

The columns that the condition compares are read as part of the relation's rows, and decoded from
them again: so whatever can be scanned can be joined by a condition.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from dovetail.api.ordered import order_of
from dovetail.join.overlap.conditions import Intervals
from dovetail.join.overlap.exchange import IntervalEvents, IntervalRead
from dovetail.join.splice import SPARE
from dovetail.master.relation import BYTES_A_ROW
from dovetail.rows import RowCodec

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from dovetail.api.conditions import Condition
    from dovetail.api.ordered import Order
    from dovetail.api.source import Relation
    from dovetail.api.stream import Stream
    from dovetail.join.exchange import Answers, Pages, Read

_INTERVAL = 16
"""Bytes of a row's interval in a read."""


def with_intervals(read: int) -> int:
    """The most that a read of so many bytes takes together with its intervals."""
    return read + -(-read * _INTERVAL // BYTES_A_ROW)


class RangeStream:
    """A stream whose events have intervals as well; the types are known with its first batch."""

    def __init__(self, stream: Stream, condition: Condition, rows: RowCodec) -> None:
        self._stream = stream
        self._condition = condition
        last = max(rows.schema.names.index(name) for name in condition.relation)
        self._compared = RowCodec(pa.schema([rows.schema.field(i) for i in range(last + 1)]))
        self._order: Order | None = None

    def events(self, batch: pa.RecordBatch) -> tuple[IntervalEvents, Answers]:
        """As the stream's own: those without a key, or that need not be joined, are answered."""
        events, answers = self._stream.events(batch)
        names = self._condition.stream
        columns = [batch.column(name) for name in names]
        order = self._order_with(batch.schema)
        made = _intervals(self._condition.intervals.events, order, names, columns)
        if len(events) < batch.num_rows:
            made = Intervals(made.lows[events.ids], made.highs[events.ids])
        return IntervalEvents(events, made), answers

    def read(self, read: Read) -> IntervalRead:
        """The intervals of what was read, from the columns in its rows."""
        assert self._order is not None, "an event has come before anything is read for it"
        rows = read.rows.rows
        decoded = self._compared.decode(rows.data, rows.bounds[:-1] + SPARE)
        columns = dict(zip(self._compared.schema.names, decoded, strict=True))
        names = self._condition.relation
        compared = [columns[name] for name in names]
        return IntervalRead(
            read, _intervals(self._condition.intervals.rows, self._order, names, compared)
        )

    def parts(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        return self._stream.parts(batch)

    def output(self, answers: Answers) -> Iterator[pa.RecordBatch]:
        return self._stream.output(answers)

    def _order_with(self, schema: pa.Schema) -> Order:
        if self._order is None:
            ours = [schema.field(name) for name in self._condition.stream]
            theirs = [self._compared.schema.field(name) for name in self._condition.relation]
            self._order = order_of([*ours, *theirs])
        return self._order


class RangeReader:
    """Reads pages with their intervals, in no more than `most` bytes together."""

    def __init__(self, relation: Relation, stream: RangeStream, most: int) -> None:
        self._relation = relation
        self._stream = stream
        self._most = most * BYTES_A_ROW // (BYTES_A_ROW + _INTERVAL)

    def read(self, request: Pages) -> IntervalRead:
        return self._stream.read(self._relation.read(request, self._most))


def _intervals(
    make: Callable[..., Intervals], order: Order, names: Sequence[str], columns: Sequence[pa.Array]
) -> Intervals:
    values, null = [], np.zeros(len(columns[0]), np.bool_)
    for name, column in zip(names, columns, strict=True):
        ints, nulls = order.ints(name, column)
        values.append(ints)
        null |= nulls
    made = make(*values)
    return made.empty_where(null) if null.any() else made
