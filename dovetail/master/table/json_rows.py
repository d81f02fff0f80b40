"""Rows as JSON, encoded by the database for the output: cut out of its records, never touched.

A record has the row's place in the heap (`ctid`, or NULL), its join key and the row's JSON as text
(records.py has the layout). What `row_to_json` writes is how SQL's users know every type.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from psycopg import sql

from dovetail.join.columns import Column, JoinKeys
from dovetail.join.entry import MasterRows
from dovetail.join.keys import hash_text_many
from dovetail.join.memory import copy
from dovetail.kernels import kernel
from dovetail.master.table.records import Records, int32_of, place_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dovetail.join.columns import Bytes, Ints

JSON_SETTINGS = (
    # A row looks the same to every node, whatever the database's user has set.
    "SET TimeZone = 'UTC'",
    "SET extra_float_digits = 1",
)
NO_COLUMNS = sql.SQL("''::text")
"""A row of which only its being there is asked."""


def json_row(columns: Mapping[str, str]) -> sql.Composable:
    """A row `r` as an object: each column under its name in the output."""
    members = sql.SQL(", ").join(
        sql.SQL("r.{} AS {}").format(sql.Identifier(column), sql.Identifier(name))
        for column, name in columns.items()
    )
    return sql.SQL("(SELECT row_to_json(x)::text FROM (SELECT {}) x)").format(members)


class JsonRows:
    """Reads the records of one kind of key; a row whose key is NULL is left out."""

    def __init__(self, *, int_key: bool) -> None:
        self._int_key = int_key

    def read(self, records: bytes) -> Records:
        data = np.frombuffer(records, np.uint8)
        places, keys, key_bounds, rows, row_bounds = _read(data, _measure(data))
        return Records(MasterRows(self._keys(keys, key_bounds), Column(rows, row_bounds)), places)

    def _keys(self, keys: Bytes, bounds: Ints) -> JoinKeys:
        if self._int_key:
            return JoinKeys.of_ints(keys.view(">i8").astype(np.int64))
        return JoinKeys(hash_text_many(keys, bounds), Column(keys, bounds))


@kernel
def _fields(data: Bytes, at: int) -> tuple[int, int, int, int]:
    """Where key and row of a record lie: the key's place and length, the row's place and length."""
    key = at + 12 + max(0, int32_of(data, at + 8)) + 8
    length = int32_of(data, key - 4)
    row = key + max(0, length) + 8
    return key, length, row, int32_of(data, row - 4)


@kernel
def _measure(data: Bytes) -> tuple[int, int, int]:
    """Return the number of rows that have a key, and the bytes of keys and rows."""
    count = key_bytes = row_bytes = 0
    at = 0
    while at < len(data):
        _, key_length, row, row_length = _fields(data, at)
        if key_length >= 0:
            count += 1
            key_bytes += key_length
            row_bytes += row_length
        at = row + row_length
    return count, key_bytes, row_bytes


@kernel
def _read(data: Bytes, measured: tuple[int, int, int]) -> tuple[Ints, Bytes, Ints, Bytes, Ints]:
    count, key_bytes, row_bytes = measured
    places = np.empty(count, np.int64)
    keys = np.empty(key_bytes, np.uint8)
    rows = np.empty(row_bytes, np.uint8)
    key_bounds = np.zeros(count + 1, np.int64)
    row_bounds = np.zeros(count + 1, np.int64)
    at = 0
    i = 0
    while at < len(data):
        key, key_length, row, row_length = _fields(data, at)
        if key_length >= 0:
            has_place = int32_of(data, at + 8) > 0
            places[i] = place_of(data, at + 12) if has_place else -1
            copy(keys, key_bounds[i], data, key, key_length)
            copy(rows, row_bounds[i], data, row, row_length)
            key_bounds[i + 1] = key_bounds[i] + key_length
            row_bounds[i + 1] = row_bounds[i] + row_length
            i += 1
        at = row + row_length
    return places, keys, key_bounds, rows, row_bounds
