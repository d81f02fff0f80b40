import struct

import numpy as np
import pytest

from dovetail.join.columns import Column
from dovetail.join.keys import hash_text_many
from dovetail.master.copy_binary import decode


def stream(tuples, extension=b""):
    """Write what PostgreSQL's COPY … (FORMAT BINARY) sends."""
    parts = [b"PGCOPY\n\xff\r\n\0", struct.pack(">ii", 0, len(extension)), extension]
    for fields in tuples:
        parts.append(struct.pack(">h", len(fields)))
        parts += [struct.pack(">i", len(field)) + field for field in fields]
    return b"".join([*parts, struct.pack(">h", -1)])


def bigint(number):
    return struct.pack(">q", number)


def test_int_keys_come_out_as_numbers():
    numbers = [0, 1, -1, 255, -256, 2**63 - 1, -(2**63)]
    rows = decode(stream([(bigint(n), b'{"n":%d}' % n) for n in numbers]), int_key=True)
    assert rows.keys.values.tolist() == numbers
    assert list(rows.keys.texts) == [b""] * len(numbers)
    assert list(rows.rows) == [b'{"n":%d}' % n for n in numbers]


def test_text_keys_come_out_with_their_hashes():
    texts = Column.of([b"", b"a", "ü\x1f7".encode(), b"\xff" * 300])
    rows = decode(stream([(text, b"{}") for text in texts]), int_key=False)
    assert list(rows.keys.texts) == list(texts)
    assert rows.keys.values.tolist() == hash_text_many(texts.data, texts.bounds).tolist()


def test_rows_may_be_empty_or_large():
    large = bytes(range(256)) * 1000
    rows = decode(stream([(bigint(1), b""), (bigint(2), large), (bigint(3), b"")]), int_key=True)
    assert list(rows.rows) == [b"", large, b""]


@pytest.mark.parametrize("int_key", [True, False])
def test_a_stream_without_tuples_has_no_rows(int_key):
    rows = decode(stream([]), int_key=int_key)
    assert len(rows) == 0
    assert list(rows.rows) == []
    assert list(rows.keys.texts) == []


def test_a_header_extension_is_skipped():
    rows = decode(stream([(bigint(5), b"x")], extension=b"\xff" * 7), int_key=True)
    assert rows.keys.values.tolist() == [5]


def test_the_rows_are_such_as_kernels_take():
    rows = decode(stream([(b"a", b"{}")]), int_key=False)
    arrays = (rows.keys.values, rows.keys.texts.data, rows.rows.data, rows.rows.bounds)
    assert all(array.flags.writeable and array.flags.c_contiguous for array in arrays)
    assert all(array.dtype in (np.int64, np.uint8) for array in arrays)
