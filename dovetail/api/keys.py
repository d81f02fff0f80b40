"""Columns of Arrow as join keys.

One int column is its own key. Everything else is text: composite keys as in join/keys.py.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dovetail.errors import ConfigError
from dovetail.join.columns import Column, JoinKeys
from dovetail.join.keys import SEPARATOR, hash_text_many
from dovetail.join.overlap.exchange import no_key

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dovetail.join.columns import Flags, Ints

_SEPARATOR = pa.scalar(chr(SEPARATOR), pa.large_string())
_NO_KEY = b"\xff"
"""A text that no key has, as it is not UTF-8."""


def join_keys(batch: pa.RecordBatch, on: Sequence[str]) -> tuple[JoinKeys, Flags]:
    """The join keys of a batch, and which of them are NULL; without columns all are alike."""
    if not on:
        return no_key(batch.num_rows), np.zeros(batch.num_rows, np.bool_)
    columns = [resolved(batch.column(name)) for name in on]
    null = np.zeros(batch.num_rows, np.bool_)
    for column in columns:
        if column.null_count:
            null |= np.array(column.is_null())
    if len(columns) == 1 and sort_of(columns[0].type) == "int":
        return JoinKeys.of_ints(_ints(on[0], columns[0])), null
    texts = [column.cast(pa.large_string()).fill_null("") for column in columns]
    if len(texts) > 1:
        _require_separable(on, texts)
    text = _column(pc.binary_join_element_wise(*texts, _SEPARATOR) if len(texts) > 1 else texts[0])
    return JoinKeys(hash_text_many(text.data, text.bounds), text), null


def resolved(column: pa.Array | pa.ChunkedArray) -> pa.Array | pa.ChunkedArray:
    """A key's column by its values: NULLs within a dictionary are seen, and Arrow compares them."""
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    if pa.types.is_string_view(column.type):
        column = column.cast(pa.large_string())
    return column


def without_key(keys: JoinKeys, null: Flags) -> JoinKeys:
    """The same keys, but NULL ones as a key that no master row has."""
    data = np.append(keys.texts.data, np.frombuffer(_NO_KEY, np.uint8))
    starts = np.where(null, len(data) - 1, keys.texts.bounds[:-1])
    ends = np.where(null, len(data), keys.texts.bounds[1:])
    return JoinKeys(np.where(null, 0, keys.values), Column.of_spans(data, starts, ends))


def stands_for_null(keys: JoinKeys) -> Flags:
    """Which keys came from `without_key`."""
    starts, ends = keys.texts.bounds[:-1], keys.texts.bounds[1:]
    found = ends - starts == len(_NO_KEY)
    found[found] = keys.texts.data[starts[found]] == _NO_KEY[0]
    flags: Flags = found
    return flags


def require_alike(on: dict[str, str], stream: pa.Schema, master: pa.Schema) -> None:
    """Keys are compared as ints or as text: both sides have to be of one sort."""
    for name, theirs in on.items():
        ours, other = stream.field(name).type, master.field(theirs).type
        if sort_of(ours) != sort_of(other):
            raise ConfigError(
                f"column {name!r} is {ours} in the stream and {other} in the relation, which are "
                f"never equal: cast one of them"
            )
        if sort_of(ours) == "inexact":
            raise ConfigError(
                f"column {name!r} is {ours}, whose values cannot be compared as keys: cast it, on "
                f"both sides, to an int or to text"
            )


def sort_of(kind: pa.DataType) -> str:
    """What keys of a type are equal to: those of the same sort."""
    if pa.types.is_dictionary(kind):
        return sort_of(kind.value_type)
    if pa.types.is_integer(kind):
        return "int"
    if pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        return "text"
    if pa.types.is_boolean(kind) or pa.types.is_temporal(kind) or pa.types.is_decimal(kind):
        return str(kind)
    return "inexact"


def texts_of(column: Column) -> pa.Array:
    """A column of UTF-8 as Arrow has it."""
    return pa.LargeStringArray.from_buffers(
        len(column), pa.py_buffer(column.bounds), pa.py_buffer(column.data)
    )


def _ints(name: str, column: pa.Array) -> Ints:
    try:
        values = column.cast(pa.int64())
    except pa.ArrowInvalid as error:
        raise ConfigError(
            f"column {name!r} has a key that no 64-bit int holds ({error}): cast both sides to text"
        ) from error
    if values.null_count:
        values = values.fill_null(0)
    return np.array(values, np.int64)


def _require_separable(on: Sequence[str], texts: Sequence[pa.Array]) -> None:
    for name, text in zip(on, texts, strict=True):
        if pc.any(pc.match_substring(text, chr(SEPARATOR))).as_py():
            raise ConfigError(
                f"column {name!r} has a value with U+001F, which separates the parts of a "
                f"composite key: remove it from the values"
            )


def _column(texts: pa.Array) -> Column:
    _, offsets, data = texts.buffers()
    bounds = np.frombuffer(offsets, np.int64)[texts.offset : texts.offset + len(texts) + 1]
    # Copies, because Arrow's buffers are read-only (columns.py says why that matters).
    if data is None or not len(bounds):
        return Column(np.empty(0, np.uint8), np.zeros(len(texts) + 1, np.int64))
    content = np.frombuffer(data, np.uint8)[bounds[0] : bounds[-1]]
    return Column(content.copy(), bounds - bounds[0])
