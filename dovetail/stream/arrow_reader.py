"""One record batch out of an Arrow stream that somebody else may have written.

What is compressed is refused unread: ours never is, and a few bytes could stand for gigabytes.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

import pyarrow as pa

from dovetail.stream.arrow_stream import is_compressed
from dovetail.stream.envelope import ForeignError

if TYPE_CHECKING:
    from collections.abc import Mapping


def read_batch(stream: memoryview, types: Mapping[str, str]) -> pa.RecordBatch:
    """Read the stream's one batch, whose columns of these names have to be of these types."""
    try:
        messages = pa.ipc.MessageReader.open_stream(pa.py_buffer(stream))
        schema = _schema(messages.read_next_message())
        body = messages.read_next_message()
        _require_plain(body)
        batch = pa.ipc.read_record_batch(body, schema)
        batch.validate()
        _require_types(batch, types)
    except ForeignError:
        raise
    except (pa.ArrowException, OSError, StopIteration, struct.error, UnicodeDecodeError) as error:
        raise ForeignError(f"a message is no batch: {error}") from None
    return batch


def _schema(head: pa.ipc.Message) -> pa.Schema:
    if head.type != "schema":  # Arrow does not look, and would read beyond memory
        raise ForeignError("a message is no batch: its stream does not begin with a schema")
    return pa.ipc.read_schema(head)


def _require_plain(body: pa.ipc.Message) -> None:
    if body.type != "record batch" or is_compressed(memoryview(body.metadata)):
        raise ForeignError("a message is no batch: its stream is compressed, or holds no batch")


def _require_types(batch: pa.RecordBatch, types: Mapping[str, str]) -> None:
    names = batch.schema.names
    if len(set(names)) < len(names):
        raise ForeignError("a message is no batch: a column is there twice")
    for field, column in zip(batch.schema, batch.columns, strict=True):
        expected = types.get(field.name)
        if expected is not None and (str(field.type) != expected or column.null_count):
            raise ForeignError(
                f"a message is no batch: {field.name} is {field.type}, and has to be {expected} "
                f"without nulls"
            )
