"""The pool, its chains and its table, against a dictionary."""

import numpy as np
import pytest

from dovetail.errors import ConfigError
from dovetail.join.pool import (
    BYTES_A_BLOCK,
    FREE,
    LINK,
    NONE,
    give_chain,
    new_pool,
    read,
    take,
    write,
)
from dovetail.join.records import (
    PENDING,
    cell_of,
    enter,
    forget,
    home_of,
    same_bytes,
    seek,
    tag_of,
    text_length,
)


def bytes_of(text):
    return np.frombuffer(bytearray(text), np.uint8)


@pytest.mark.parametrize("budget", [5_400, 5_401, 77_777, 1_000_000])
def test_a_pool_takes_nearly_all_of_its_budget_and_no_more(budget):
    pool = new_pool(budget)
    assert budget - BYTES_A_BLOCK < pool.nbytes <= budget
    assert pool.words.base is pool.longs
    assert pool.state[FREE] == pool.blocks


def test_a_pool_too_small_for_anything_is_an_error():
    with pytest.raises(ConfigError, match="more memory"):
        new_pool(1000)


@pytest.mark.parametrize("length", [0, 1, 59, 60, 61, 120, 121, 1000])
def test_a_chain_gives_back_what_was_written_in_parts(length):
    pool = new_pool(50_000)
    text = bytes_of(bytes(i % 251 for i in range(length)))
    block = take(pool)
    end = (block, LINK)
    for start in range(0, length, 7):
        end = write(pool, *end, text, start, min(7, length - start))
    out = np.zeros(length, np.uint8)
    read(pool, block, LINK, out, 0, length)
    assert out.tobytes() == text.tobytes()
    assert same_bytes(pool, block, text, 0, length)
    if length:
        text[-1] ^= 1
        assert not same_bytes(pool, block, text, 0, length)
    assert give_chain(pool, block) == max(1, -(-length // 60))
    assert pool.state[FREE] == pool.blocks


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("name", [lambda i: (i, b""), lambda i: (i // 4, b"%d" % i * (1 + i % 40))])
def test_the_table_finds_what_was_entered_and_not_forgotten(name, seed):
    """Half full, the fullest it gets; texts of which every four share a hash."""
    chance = np.random.default_rng(seed)
    pool = new_pool(400 * BYTES_A_BLOCK)
    held = {}
    for _ in range(1500):
        i = int(chance.integers(0, 200))
        value, text = name(i)
        data = bytes_of(text)
        tag = tag_of(pool, value, data, 0, len(text))
        found = seek(pool, tag, value, data, 0, len(text))
        assert found == held.get(i, NONE)
        if i in held:
            assert pool.filter[cell_of(pool, value)]
            assert text_length(pool, held[i]) == len(text)
            forget(pool, held.pop(i))
        elif 2 * len(held) < pool.blocks and pool.state[FREE] > 40:
            held[i] = enter(pool, tag, value, PENDING, data, 0, len(text))
    for i in list(held):
        forget(pool, held.pop(i))
    assert pool.state[FREE] == pool.blocks
    assert (pool.slots == NONE).all()
    assert not pool.filter.any()


def test_a_search_starts_within_the_table_whatever_its_size():
    pool, nothing = new_pool(50_000), bytes_of(b"")
    for capacity in (1, 3, 64, 1_000_003):
        homes = [home_of(capacity, tag_of(pool, key, nothing, 0, 0)) for key in range(-500, 500)]
        assert 0 <= min(homes) <= max(homes) < capacity
    spread = {home_of(1000, tag_of(pool, key, nothing, 0, 0)) for key in range(1000)}
    assert len(spread) > 500, "ids in a row spread"
