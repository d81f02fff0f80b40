import numpy as np

from dovetail.join.sketch import FrequencySketch


def reached(sketch, keys, times=None, threshold=2):
    counted = np.ones(len(keys), np.int64) if times is None else np.array(times, np.int64)
    return sketch.reached(np.array(keys, np.int64), counted, threshold).tolist()


def test_a_key_reaches_the_threshold_when_it_was_counted_so_often():
    sketch = FrequencySketch(1 << 16)
    assert reached(sketch, [1, 2]) == [False, False]
    assert reached(sketch, [1, 3]) == [True, False]
    assert reached(sketch, [2], threshold=3) == [False]
    assert reached(sketch, [2], threshold=3) == [True]


def test_a_key_is_counted_as_often_as_it_is_said_to_occur():
    assert reached(FrequencySketch(1 << 16), [1, 2, 3], [1, 2, 100_000]) == [False, True, True]


def test_a_count_stays_at_its_limit_instead_of_starting_anew():
    sketch = FrequencySketch(1 << 16)
    for _ in range(300):
        reached(sketch, [1])
    assert reached(sketch, [1], threshold=255) == [True]


def test_a_key_is_never_counted_too_low():
    sketch = FrequencySketch(64)
    keys = list(range(200))
    reached(sketch, keys)
    assert all(reached(sketch, keys))


def test_what_was_hot_is_forgotten_in_time():
    sketch = FrequencySketch(16)
    reached(sketch, [1], [200])
    assert reached(sketch, [1], [0], threshold=100) == [True]
    for _ in range(2):
        reached(sketch, [1] * (8 * 16 + 1), [0] * (8 * 16 + 1))
    assert reached(sketch, [1], [0], threshold=100) == [False]


def test_it_takes_no_more_than_its_budget():
    for budget in (16, 17, 1000, 1 << 20):
        sketch = FrequencySketch(budget)
        assert sketch._counts.nbytes == sketch.allocated <= budget
