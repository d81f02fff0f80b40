import json
from pathlib import Path

import numpy as np
import pytest

from dovetail.join.columns import Column, JoinKeys
from dovetail.join.keys import hash_text_many
from dovetail.join.mapper import Mapper, groups

VECTORS = json.loads(Path(__file__).with_name("hash_vectors.json").read_text())


@pytest.mark.parametrize("slots", [1, 12, 64])
def test_int_keys_go_to_the_slots_that_sql_gives_them(slots):
    keys = JoinKeys.of_ints(np.array([vector["key"] for vector in VECTORS["int"]], np.int64))
    expected = [vector["slots"][str(slots)] for vector in VECTORS["int"]]
    assert Mapper(slots, int_key=True).slots(keys).tolist() == expected


@pytest.mark.parametrize("slots", [1, 12, 64])
def test_text_keys_go_to_the_slots_that_sql_gives_them(slots):
    texts = Column.of([vector["key"].encode() for vector in VECTORS["text"]])
    keys = JoinKeys(hash_text_many(texts.data, texts.bounds), texts)
    expected = [vector["slots"][str(slots)] for vector in VECTORS["text"]]
    assert Mapper(slots, int_key=False).slots(keys).tolist() == expected


def test_groups_hold_every_position_once_and_in_order():
    numbers = np.random.default_rng(1).integers(0, 7, 500).astype(np.int32)
    numbers[numbers == 4] = 5
    found = groups(numbers)
    assert [number for number, _ in found] == [0, 1, 2, 3, 5, 6]
    for number, positions in found:
        assert positions.tolist() == np.flatnonzero(numbers == number).tolist()


@pytest.mark.parametrize("numbers", [[], [0], [3], [2, 2, 2]])
def test_groups_of_few_numbers(numbers):
    found = [(n, p.tolist()) for n, p in groups(np.array(numbers, np.int32))]
    assert found == ([(numbers[0], list(range(len(numbers))))] if numbers else [])
