import numpy as np
import pytest

from dovetail.join.columns import Column
from dovetail.join.seeds import SEEDS
from dovetail.join.table import EMPTY, find, home, new_table, put, same

NOTHING = Column.of([])


def found(table, key, texts, text=b""):
    data = np.frombuffer(bytearray(text), np.uint8)
    return find(SEEDS, *table, key, texts.data, texts.bounds, data, 0, len(text))


def keys_at_home(capacity, slot, count):
    """Keys that all start their search at one slot."""
    return [key for key in range(100_000) if home(SEEDS, capacity, key) == slot][:count]


@pytest.mark.parametrize("keys", [0, 1, 8, 9, 1000])
def test_a_table_is_at_most_half_full(keys):
    slots, positions = new_table(keys)
    assert len(slots) == len(positions) >= max(16, 2 * keys)
    assert (positions == EMPTY).all()


def test_every_key_can_be_told_from_an_empty_slot():
    keys = [0, -1, EMPTY, 2**63 - 1, -(2**63)]
    table = new_table(len(keys))
    texts = Column.empty_values(len(keys))
    for position, key in enumerate(dict.fromkeys(keys)):
        assert found(table, key, texts) == EMPTY
        put(SEEDS, *table, key, texts.data, texts.bounds, position)
        assert found(table, key, texts) == position


def test_texts_that_share_a_hash_are_told_apart_by_their_bytes():
    texts = Column.of([b"a", b"b", b"", b"ab"])
    table = new_table(4)
    for position in range(4):
        put(SEEDS, *table, 17, texts.data, texts.bounds, position)
    assert [found(table, 17, texts, text) for text in texts] == [0, 1, 2, 3]
    assert found(table, 17, texts, b"ba") == EMPTY
    assert found(table, 18, texts, b"a") == EMPTY


def test_sequential_keys_spread_over_the_table():
    homes = [home(SEEDS, 1 << 16, key) for key in range(1 << 15)]
    assert len(set(homes)) > 0.6 * len(homes)


def test_a_key_is_found_behind_others_also_around_the_tables_end():
    first, second = keys_at_home(16, 14, 4), keys_at_home(16, 15, 2)
    keys = [first[0], second[0], *first[1:], second[1]]
    table = new_table(8)
    assert len(table[0]) == 16
    texts = Column.empty_values(len(keys))
    for position, key in enumerate(keys):
        put(SEEDS, *table, key, texts.data, texts.bounds, position)
    assert [found(table, key, texts) for key in keys] == list(range(len(keys)))


def test_same_compares_length_and_bytes():
    a = np.frombuffer(bytearray(b"xabcx"), np.uint8)
    b = np.frombuffer(bytearray(b"abcabd"), np.uint8)
    assert same(a, 1, 4, b, 0, 3)
    assert not same(a, 1, 4, b, 3, 6)
    assert not same(a, 1, 4, b, 0, 2)
    assert same(a, 2, 2, b, 5, 5)
