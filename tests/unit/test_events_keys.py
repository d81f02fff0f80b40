import json
from pathlib import Path

import numpy as np
import pytest

from dovetail.errors import ConfigError
from dovetail.join.keys import (
    composite_sql,
    hash_bytes,
    hash_int_many,
    hash_text_many,
    slot_sql,
    slots_of,
)

VECTORS = json.loads(Path(__file__).with_name("hash_vectors.json").read_text())


def packed(texts):
    encoded = [text.encode() for text in texts]
    bounds = np.cumsum([0, *map(len, encoded)], dtype=np.int64)
    return np.frombuffer(b"".join(encoded), np.uint8), bounds


def test_text_keys_hash_as_postgresql_hashes_them():
    data, bounds = packed(vector["key"] for vector in VECTORS["text"])
    assert hash_text_many(data, bounds).tolist() == [v["hash"] for v in VECTORS["text"]]


def test_int_keys_hash_as_postgresql_hashes_them():
    keys = np.array([vector["key"] for vector in VECTORS["int"]], np.int64)
    assert hash_int_many(keys).tolist() == [v["hash"] for v in VECTORS["int"]]


@pytest.mark.parametrize("kind", ["text", "int"])
@pytest.mark.parametrize("slots", [1, 2, 12, 64, 97])
def test_slots_are_those_of_the_sql_expression(kind, slots):
    hashes = np.array([vector["hash"] for vector in VECTORS[kind]], np.int64)
    expected = [vector["slots"][str(slots)] for vector in VECTORS[kind]]
    assert slots_of(hashes, slots).tolist() == expected


def test_a_hash_depends_on_its_slice_alone():
    data = np.frombuffer(b"..abcdefghijklmnopq..", np.uint8)
    alone = np.frombuffer(b"abcdefghijklmnopq", np.uint8)
    assert hash_bytes(data, 2, 19) == hash_bytes(alone, 0, 17)


def test_slot_sql_survives_a_driver_that_reads_percent_signs():
    for kind in ("text", "int"):
        assert "%" not in slot_sql('"vendor"', kind, 64)


def test_slot_sql_refuses_zero_slots():
    with pytest.raises(ConfigError, match="at least one"):
        slot_sql("k", "int", 0)


def test_a_composite_key_is_joined_with_the_separator_in_sql():
    assert composite_sql(['"a"', '"b"']) == '("a")::text || chr(31) || ("b")::text'
