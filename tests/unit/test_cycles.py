import numpy as np

from dovetail.stream.cycles import NO_CYCLE, SharedCycle


def see(cycle, *migrations, standing=()):
    slots = np.array([slot for slot, _ in migrations], np.int32)
    cycle.see(slots, np.array([at for _, at in migrations], np.int64), standing)
    return cycle.cycle


def following(*slots):
    cycle = SharedCycle()
    cycle.follow(slots)
    return cycle


def test_the_first_migration_of_a_slot_only_says_where_it_stands():
    assert see(following(0), (0, 70)) == 0


def test_a_disk_phase_that_has_all_slots_is_followed_one_to_one():
    cycle = following(0, 1)
    see(cycle, (0, 5), (1, 5))
    assert see(cycle, (0, 6), (1, 6)) == 1
    assert see(cycle, (0, 7), (1, 7), (0, 9), (1, 9)) == 4


def test_several_disk_phases_count_by_their_slots():
    cycle = following(0, 1, 2, 3)
    see(cycle, (0, 100), (1, 100), (2, 3), (3, 3))
    assert see(cycle, (0, 108), (1, 108)) == 4
    assert see(cycle, (2, 5), (3, 5)) == 5


def test_a_disk_phase_that_counts_anew_turns_nothing_back():
    cycle = following(0)
    see(cycle, (0, 100))
    assert see(cycle, (0, 110)) == 10
    assert see(cycle, (0, 0)) == 10
    assert see(cycle, (0, 1)) == 11


def test_no_time_passes_while_old_migrations_are_read():
    cycle = following(0)
    assert see(cycle, (0, 1), standing={0}) == 0
    assert see(cycle, (0, 500), standing={0}) == 0
    assert see(cycle, (0, 502)) == 2


def test_a_slot_that_comes_back_starts_anew():
    cycle = following(0)
    see(cycle, (0, 1))
    cycle.forget([0])
    cycle.follow([0])
    assert see(cycle, (0, 900)) == 0


def test_a_plan_in_between_passes_no_time():
    cycle = following(0)
    see(cycle, (0, 5))
    assert see(cycle, (0, NO_CYCLE)) == 0
    assert see(cycle, (0, 7), (0, NO_CYCLE)) == 2
    assert see(cycle, (0, 8)) == 3
