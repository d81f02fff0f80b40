"""Records as PostgreSQL sends them, taken apart."""

import struct

import pytest

from dovetail.join.columns import Column
from dovetail.join.keys import hash_text_many
from dovetail.master.table.json_rows import JsonRows

_TYPE = 12345


def record(*fields):
    parts = [struct.pack(">i", len(fields))]
    for field in fields:
        size = -1 if field is None else len(field)
        parts.append(struct.pack(">ii", _TYPE, size) + (field or b""))
    return b"".join(parts)


def place(block, offset=1):
    return struct.pack(">IH", block, offset)


def bigint(number):
    return struct.pack(">q", number)


def test_int_keys_come_out_as_numbers():
    numbers = [0, 1, -1, 255, -256, 2**63 - 1, -(2**63)]
    sent = b"".join(record(None, bigint(n), b'{"n":%d}' % n) for n in numbers)
    records = JsonRows(int_key=True).read(sent)
    assert records.rows.keys.values.tolist() == numbers
    assert list(records.rows.keys.texts) == [b""] * len(numbers)
    assert list(records.rows.rows) == [b'{"n":%d}' % n for n in numbers]
    assert records.places.tolist() == [-1] * len(numbers)


def test_text_keys_come_out_with_their_hashes():
    texts = [b"", b"a", "ü\x1f漢".encode(), b"x" * 300]
    records = JsonRows(int_key=False).read(b"".join(record(None, t, b"{}") for t in texts))
    column = Column.of(texts)
    assert list(records.rows.keys.texts) == texts
    assert records.rows.keys.values.tolist() == hash_text_many(column.data, column.bounds).tolist()


def test_places_are_told_up_to_the_largest_block():
    blocks = [0, 1, 1, 2**31, 2**32 - 2]
    sent = b"".join(record(place(block), bigint(1), b"") for block in blocks)
    records = JsonRows(int_key=True).read(sent)
    assert records.places.tolist() == [block << 16 | 1 for block in blocks]
    assert list(records.rows.rows) == [b""] * len(blocks)


@pytest.mark.parametrize("int_key", [True, False])
def test_a_row_without_a_key_is_left_out(int_key):
    key = bigint(7) if int_key else b"seven"
    sent = record(place(1), None, b"{1}") + record(place(2), key, b"{2}")
    sent += record(place(3), None, b"") + record(None, None, b"{4}")
    records = JsonRows(int_key=int_key).read(sent)
    assert list(records.rows.rows) == [b"{2}"]
    assert records.places.tolist() == [2 << 16 | 1]
    assert len(JsonRows(int_key=int_key).read(b"").rows) == 0
