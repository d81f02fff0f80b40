"""The stream's batches as events, and answers as batches of the output's schema."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from dovetail.api.keys import join_keys, require_alike, without_key
from dovetail.api.sizes import ROWS_AT_ONCE, cuts, row_sizes
from dovetail.errors import ConfigError
from dovetail.join.entry import Entries
from dovetail.join.exchange import NO_ANSWERS, Answers, Events
from dovetail.join.splice import SPARE, slices
from dovetail.pipeline.hints import did_you_mean
from dovetail.rows import RowCodec

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from dovetail.join.kinds import JoinKind
    from dovetail.join.splice import Spliced

_NO_ROWS = Entries.without_rows()
_NOTES = 32
"""Bytes that an event takes beside its columns: its key, its number, where it starts."""


class Stream:
    """`on` has each of the stream's key columns and its name in the relation.

    `added` are the relation's columns that go out, and what they are called then; `compared` are
    columns of the stream that a condition needs.
    An event whose key is NULL is answered at once, unless the output has an order: then it goes
    through the join as well, under a key that no master row has.
    `most` bytes are encoded at a time, of a batch and of answers.
    """

    def __init__(
        self,
        kind: JoinKind,
        on: dict[str, str],
        key: pa.Schema,
        rows: RowCodec,
        added: Mapping[str, str],
        *,
        compared: Sequence[str] = (),
        ordered: bool,
        most: int,
    ) -> None:
        self._most = most
        self._kind = kind
        self._on = on
        self._key = key
        self._rows = rows
        self._added = dict(added)
        self._compared = compared
        self._ordered = ordered
        self._codec: RowCodec | None = None
        self._schema: pa.Schema | None = None

    def parts(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """A batch of any size, cut into such as can be encoded."""
        if not isinstance(batch, pa.RecordBatch):
            raise ConfigError(
                f"the stream gave a {type(batch).__name__}: give pyarrow.RecordBatch, of a table "
                f"table.to_batches()"
            )
        if not batch.num_rows:  # its columns are looked at all the same
            yield batch
        for first in range(0, batch.num_rows, ROWS_AT_ONCE):
            some = batch.slice(first, ROWS_AT_ONCE)
            ends = cuts(row_sizes(some) + _NOTES, self._most)
            for start, end in pairwise([0, *ends]):
                yield some.slice(start, end - start)

    def events(self, batch: pa.RecordBatch) -> tuple[Events, Answers]:
        """The events of a batch to be joined, and the answers to those that need not be."""
        codec = self._codec_for(batch.schema)
        keys, null = join_keys(batch, list(self._on))
        data = codec.encode(batch, after=SPARE)
        ids = np.arange(batch.num_rows)
        if not null.any():
            return Events(keys, data, ids), NO_ANSWERS
        if self._ordered:
            return Events(without_key(keys, null), data, ids), NO_ANSWERS
        some, none = np.flatnonzero(~null), np.flatnonzero(null)
        answers = Answers(data.take(none), none, _NO_ROWS.data, np.zeros(len(none), np.int64))
        return Events(keys.take(some), data.take(some), some), answers

    def output(self, answers: Answers) -> Iterator[pa.RecordBatch]:
        if not len(answers):
            return
        found = answers.events, answers.entries, answers.starts
        for made in slices(self._kind, *found, self._rows.null_row, self._most):
            if len(made.outputs):
                yield self._decoded(made)

    def _decoded(self, made: Spliced) -> pa.RecordBatch:
        assert self._codec is not None, "an answer is to an event of a batch"
        cursors = made.outputs.bounds[:-1].copy()
        arrays = self._codec.decode(made.outputs.data, cursors)
        names = list(self._codec.schema.names)
        if self._kind.takes_columns:
            cursors += SPARE
            decoded = self._rows.decode(made.outputs.data, cursors)
            columns = dict(zip(self._rows.schema.names, decoded, strict=True))
            arrays += [columns[name] for name in self._added]
            names += self._added.values()
        return pa.RecordBatch.from_arrays(arrays, names=names)

    def _codec_for(self, schema: pa.Schema) -> RowCodec:
        if self._codec is None or self._schema is None:
            self._check(schema)
            self._schema = schema
            self._codec = RowCodec(schema)
        elif schema != self._schema:
            raise ConfigError(
                f"a batch has the columns {_written(schema)}, and the first one had "
                f"{_written(self._schema)}: cast them alike"
            )
        return self._codec

    def _check(self, schema: pa.Schema) -> None:
        for name in (*self._on, *self._compared):
            if name not in schema.names:
                raise ConfigError(
                    f"the stream has no column {name!r}: it has {', '.join(schema.names)}"
                    f"{did_you_mean(name, schema.names)}"
                )
        require_alike(self._on, schema, self._key)
        twice = [name for name, called in self._added.items() if called in schema.names]
        if twice and self._kind.takes_columns:
            called = self._added[twice[0]]
            raise ConfigError(
                f"both sides have a column {called!r}: choose other columns, or rename it, as in "
                f"columns={{{twice[0]!r}: 'other_{called}'}}"
            )


def _written(schema: pa.Schema) -> str:
    return ", ".join(f"{field.name} {field.type}" for field in schema)
