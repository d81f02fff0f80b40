import re
from pathlib import Path

import numpy as np
import pytest

from dovetail.errors import ConfigError, MasterDataError
from dovetail.join.columns import Column, JoinKeys
from dovetail.join.entry import Entries, MasterRows
from dovetail.join.exchange import Events, Pages, Read
from dovetail.join.kinds import JoinKind
from dovetail.join.overlap import conditions
from dovetail.join.overlap.conditions import LEAST, MOST
from dovetail.join.overlap.engine import OverlapJoin
from dovetail.join.overlap.exchange import IntervalEvents, IntervalRead
from dovetail.join.overlap.index import next_reaching, refresh
from dovetail.join.overlap.window import new_window
from dovetail.join.phase import Relation
from dovetail.join.splice import null_row, splice
from tests.unit.engine_kit import rows_each


def ints(*values):
    return np.array(values, np.int64)


def sales(times, products=None, size=20):
    keys = JoinKeys.of_ints(ints(*(products or [0] * len(times))))
    data = Column.of([b'{"t":%d%s}' % (time, b" " * size) for time in times])
    return IntervalEvents(
        Events(keys, data, np.arange(len(times))), conditions.points(ints(*times))
    )


class Prices:
    """Master rows (product, valid_from, valid_to), one a page."""

    def __init__(self, *rows):
        self.rows = rows
        self.facts = Relation(len(rows), self.read(Pages(0, 1, len(rows))).nbytes)

    def read(self, request):
        numbers = request.numbers()
        product, since, until = (
            ints(*(v for n in numbers for v in self.rows[n])).reshape(-1, 3).T.copy()
        )
        master = MasterRows(
            JoinKeys.of_ints(product), Column.of([b'{"p":%d}' % n for n in numbers])
        )
        condition = conditions.point_in_interval()
        read = Read(master, len(numbers), np.arange(1, len(numbers) + 1))
        return IntervalRead(read, condition.rows(since, until))


def outputs(kind, met):
    return list(splice(kind, met.events, met.entries, met.starts, null_row([b'"p"'])).outputs)


def test_the_price_that_was_valid_at_the_time_of_the_sale():
    prices = Prices((7, 0, 10), (7, 10, MOST), (8, 0, MOST))
    join = OverlapJoin(JoinKind.LEFT, prices.facts, 10_000)
    join.offer(sales([9, 10, 9, -1], [7, 7, 8, 7], size=0))
    lines = []
    while (request := join.wants()) is not None:
        lines += outputs(JoinKind.LEFT, join.feed(prices.read(request)))
    assert sorted(lines) == [
        b'{"t":-1,"p":null}',
        b'{"t":10,"p":1}',
        b'{"t":9,"p":0}',
        b'{"t":9,"p":2}',
    ]


def test_a_match_is_answered_when_it_is_met_and_the_event_leaves_after_its_cycle():
    prices = Prices((0, 0, 10), (0, 0, 1), (0, 5, 10))
    join = OverlapJoin(JoinKind.INNER, prices.facts, 10_000, pages=1)
    join.offer(sales([6, 50]))
    steps = [join.feed(prices.read(join.wants())) for _ in range(3)]
    assert [step.ids.tolist() for step in steps] == [[0], [], [0, 1]]
    assert [step.done.tolist() for step in steps] == [[], [], [0, 1]]
    assert rows_each(steps[2]) == [1, 0]
    assert join.pending == 0
    assert join.wants() is None


@pytest.mark.parametrize("kind", [JoinKind.SEMI, JoinKind.ANTI])
def test_one_row_settles_an_event_of_a_semi_or_anti_join(kind):
    prices = Prices((0, 0, 10), (0, 0, 10), (0, 0, 10))
    join = OverlapJoin(kind, prices.facts, 10_000, pages=2)
    join.offer(sales([6, 50]))
    met = join.feed(prices.read(join.wants()))
    assert (met.ids.tolist(), met.done.tolist(), rows_each(met)) == ([0], [0], [1])
    assert join.pending == 1


def test_an_event_that_comes_later_sees_the_pages_that_it_has_missed():
    prices = Prices((0, 0, 10), (0, 20, 30))
    join = OverlapJoin(JoinKind.INNER, prices.facts, 10_000, pages=1)
    join.offer(sales([25]))
    join.feed(prices.read(join.wants()))
    join.offer(sales([5]))
    assert join.wants() == Pages(1, 1, 2)
    assert outputs(JoinKind.INNER, join.feed(prices.read(join.wants())))[0].endswith(b'"p":1}')
    assert join.wants() == Pages(0, 1, 2)
    assert outputs(JoinKind.INNER, join.feed(prices.read(join.wants())))[0].endswith(b'"p":0}')
    assert join.cycle == 1


def test_an_empty_interval_is_answered_at_once_and_causes_no_read():
    prices = Prices((0, 0, 10))
    join = OverlapJoin(JoinKind.ANTI, prices.facts, 10_000)
    batch = sales([1, 2])
    nulls = batch.intervals.empty_where(np.array([True, True]))
    offered = join.offer(IntervalEvents(batch.events, nulls))
    assert offered.accepted == 2
    assert offered.answers.done.tolist() == [0, 1]
    assert len(outputs(JoinKind.ANTI, offered.answers)) == 2
    assert join.wants() is None


def test_entries_are_whole():
    prices = Prices((3, 0, 10), (3, 0, 10))
    join = OverlapJoin(JoinKind.INNER, prices.facts, 10_000)
    join.offer(sales([1, 2, 99], [3, 3, 3]))
    met = join.feed(prices.read(join.wants()))
    places = np.append(np.unique(met.starts), len(met.entries))
    assert Entries.received(Column(met.entries, places)).rows_each().tolist() == [0, 2, 2]


def test_a_full_window_lets_in_the_first_events_only_and_a_step_at_most_w():
    prices = Prices((0, 0, 10))
    join = OverlapJoin(JoinKind.INNER, prices.facts, 10_000)
    accepted = join.offer(sales(range(1000))).accepted
    assert 40 < accepted < 1000
    assert join.offer(sales([1])).accepted == 0
    join.feed(prices.read(join.wants()))
    join.tune(1, 5)
    assert join.offer(sales(range(1000))).accepted == 5
    assert join.offer(sales(range(1000))).accepted == 0


@pytest.mark.parametrize("sizes", [(0, 1500), (1500, 0)])
def test_the_window_is_split_anew_when_events_change_in_size(sizes):
    prices = Prices((0, 0, 10))
    join = OverlapJoin(JoinKind.INNER, prices.facts, 50_000)
    for size in sizes:
        before = join.pending
        taken = join.offer(sales([5] * 20, size=size)).accepted
        assert taken == 20
        assert join.pending == before + 20
    filled = join.offer(sales([5] * 2000, size=sizes[1])).accepted
    free = join.budget - join.disk_buffer - 20 * (1500 + 2 * 90)
    assert filled > 0.8 * free / (sizes[1] + 90)
    assert set(outputs(JoinKind.INNER, join.feed(prices.read(join.wants())))) == {
        b'{"t":5%s,"p":0}' % (b" " * size) for size in sizes
    }


def test_an_event_larger_than_the_memory_is_refused_with_the_cure():
    join = OverlapJoin(JoinKind.INNER, Prices((0, 0, 10)).facts, 4_000)
    assert join.offer(sales([1], size=2_000)).accepted == 1
    join = OverlapJoin(JoinKind.INNER, Prices((0, 0, 10)).facts, 4_000)
    with pytest.raises(ConfigError, match="give it more"):
        join.offer(sales([1], size=4_000))


def test_memory_that_holds_no_page_or_no_event_is_refused():
    with pytest.raises(ConfigError, match="disk buffer"):
        OverlapJoin(JoinKind.INNER, Relation(1, 8192), 10_000)
    with pytest.raises(ConfigError, match="more memory"):
        OverlapJoin(JoinKind.INNER, Relation(1, 10), 400)


def test_a_read_that_does_not_fit_is_refused():
    prices = Prices((0, 0, 10), (0, 0, 10))
    join = OverlapJoin(JoinKind.INNER, prices.facts, 4_000, disk_buffer=prices.facts.page_bytes)
    join.offer(sales([1]))
    assert join.wants() == Pages(0, 1, 2)
    with pytest.raises(MasterDataError, match="disk buffer"):
        join.feed(prices.read(Pages(0, 2, 2)))


def test_nothing_is_fed_that_was_not_asked_for():
    prices = Prices((0, 0, 10))
    join = OverlapJoin(JoinKind.INNER, prices.facts, 4_000)
    with pytest.raises(ValueError, match="nothing was asked"):
        join.feed(prices.read(Pages(0, 1, 1)))


def test_the_next_interval_that_reaches_far_enough_is_found_over_all_levels():
    window = new_window(400_000, 10)
    chance = np.random.default_rng(5)
    count = 1_337
    window.highs[:count] = chance.integers(0, 1 << 40, count)
    window.keys[:count] = 0
    window.state[1] = count
    window.state[4] = 1
    refresh(window)
    for _ in range(500):
        at, end = sorted(chance.integers(0, count + 1, 2).tolist())
        low = (1 << 40) - int(2.0 ** chance.uniform(0, 40))
        found = [i for i in range(at, end) if window.highs[i] >= low]
        assert next_reaching(window, at, end, low) == (found[0] if found else end)


def test_timestamps_are_counted_in_one_unit_whatever_their_resolution():
    seconds = np.array(["2024-05-01T10:00:00"], "datetime64[s]")
    nanoseconds = seconds.astype("datetime64[ns]")
    expected = conditions.ordered_timestamps(seconds)
    assert conditions.ordered_timestamps(nanoseconds).tolist() == expected.tolist()
    days = np.array(["2024-05-01"], "datetime64[D]")
    assert expected - conditions.ordered_timestamps(days) == 10 * 3600 * 10**6


def test_timestamps_that_a_unit_cannot_tell_apart_or_reach_are_refused():
    fine = np.array([1, 2], "datetime64[ns]")
    with pytest.raises(ConfigError, match="another one"):
        conditions.ordered_timestamps(fine, "us")
    with pytest.raises(ConfigError, match="another one"):
        conditions.ordered_timestamps(np.array(["3000-01-01"], "datetime64[D]"), "ns")


def test_a_timestamp_that_is_missing_overlaps_nothing():
    times = np.array(["2024-05-01", "NaT"], "datetime64[us]")
    made = conditions.points(conditions.ordered_timestamps(times)).empty_where(np.isnat(times))
    assert (made.lows <= made.highs).tolist() == [True, False]


def test_dates_are_days_and_nothing_else_is_taken_for_one():
    assert conditions.ordered_dates(np.array(["1970-01-03"], "datetime64[D]")).tolist() == [2]
    with pytest.raises(ConfigError, match="ordered_timestamps"):
        conditions.ordered_dates(np.array([1], "datetime64[s]"))


def test_an_open_end_that_cannot_move_leaves_nothing():
    made = conditions.intervals(ints(MOST, LEAST, 0), ints(MOST, LEAST, 2), "()")
    assert (made.lows <= made.highs).tolist() == [False, False, True]


def test_the_example_of_the_documentation_runs():
    page = Path(__file__).parents[2] / "docs" / "range-joins.md"
    (example,) = re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL)
    exec(compile(example, str(page), "exec"), {})
