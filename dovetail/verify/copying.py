"""Rows into PostgreSQL by binary COPY, in large writes: millions take seconds."""

from __future__ import annotations

import struct
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import psycopg

_SIGNATURE = b"PGCOPY\n\xff\r\n\0" + struct.pack("!ii", 0, 0)
_END = struct.pack("!h", -1)
_WRITE_BYTES = 1 << 20

# The row's number of fields, then each field's length and value; a text's value follows it.
_HEAD = struct.Struct("!hiiiqi")
_INT = struct.Struct("!iq")
_LENGTH = struct.Struct("!i")
_NULL = _LENGTH.pack(-1)


class Rows:
    """Takes rows of (part int, off bigint, value text or bytea, and keys: bigint, text or NULL)."""

    def __init__(self, copy: psycopg.Copy) -> None:
        self._copy = copy
        self._written = bytearray(_SIGNATURE)
        self.count = 0

    def add(self, part: int, off: int, value: bytes, keys: Sequence[int | str | None] = ()) -> None:
        written = self._written
        written += _HEAD.pack(3 + len(keys), 4, part, 8, off, len(value))
        written += value
        for key in keys:
            if key is None:
                written += _NULL
            elif isinstance(key, int):
                written += _INT.pack(8, key)
            else:
                text = key.encode()
                written += _LENGTH.pack(len(text))
                written += text
        self.count += 1
        if len(written) > _WRITE_BYTES:
            self._flush()

    def end(self) -> None:
        self._written += _END
        self._flush()

    def _flush(self) -> None:
        self._copy.write(bytes(self._written))
        self._written.clear()


@contextmanager
def copy_into(connection: psycopg.Connection, table: str) -> Iterator[Rows]:
    """Copy rows into a table of this module's making; its name is no one's input."""
    with connection.cursor().copy(f"COPY {table} FROM STDIN (FORMAT BINARY)") as copy:
        rows = Rows(copy)
        yield rows
        rows.end()
