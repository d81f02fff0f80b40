"""A join over the slots of a snapshot gives what SQL gives, also while versions change."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dovetail.join.algorithms import ALGORITHMS, Parameters
from dovetail.join.engine import Engine
from dovetail.join.kinds import JoinKind
from dovetail.join.splice import splice
from dovetail.master.snapshot.current import CurrentSnapshot
from dovetail.master.snapshot.slots import SlotsRelation
from dovetail.master.snapshot.split import slot_folder, write_slots
from dovetail.master.snapshot.versions import Versions
from dovetail.node.master import MasterJoin
from tests.property.engine_cases import NO_ROW, cases, int_keys
from tests.property.test_engine_exact import check, drive
from tests.property.test_snapshot import POOL, Driven, steps
from tests.unit.snapshot_kit import COMMAND, pipeline_of, publish

MODEST = settings(
    max_examples=6, deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True
)
BUFFERS = st.sampled_from([40_000, 400_000, 5_000_000])
PAGE_BYTES = st.sampled_from([1, 60, 8192])
SLOTS = st.sampled_from([1, 2, 5])


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@MODEST
@given(case=cases(), steps=steps, slots=SLOTS, page_bytes=PAGE_BYTES, disk_buffer=BUFFERS)
def test_the_slots_together_give_what_sql_gives(
    algorithm, case, steps, slots, page_bytes, disk_buffer
):
    key = "int" if case.make_keys is int_keys else "text"
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place) / "slots"
        write_slots(folder, case.relation()._rows, slots, key=key, page_bytes=page_bytes)
        folders = {slot: slot_folder(folder, slot) for slot in range(slots)}
        relation = SlotsRelation(folders, slots, key)
        engine = Engine(
            algorithm,
            relation.facts,
            POOL + disk_buffer,
            parameters=Parameters(keys=12),
            disk_buffer=disk_buffer,
        )
        check(drive(engine, Driven(relation, disk_buffer), case, steps), case)
        relation.close()


@pytest.mark.parametrize("algorithm", ["meshjoin", "hybridjoin", "srj", "ssbj"])
@MODEST
@given(
    case=cases(),
    steps=steps,
    slots=SLOTS,
    page_bytes=PAGE_BYTES,
    masters=st.lists(st.lists(st.integers(0, 40), max_size=60), min_size=1, max_size=4),
    gaps=st.lists(st.integers(1, 6), min_size=1),
)
def test_an_event_is_answered_by_one_version_whole(
    algorithm, case, steps, slots, page_bytes, masters, gaps
):
    """Row r of version n has the number 1000 n + r."""
    of = pipeline_of("int" if case.make_keys is int_keys else "text", slots)
    masters = [case.master, *masters]
    with tempfile.TemporaryDirectory() as place:
        versions = Versions(Path(place))
        waiting = list(enumerate(masters))

        def next_version():
            number, master = waiting.pop(0)
            publish(versions, of, case.version(master, number)._rows, page_bytes)

        next_version()
        relation = CurrentSnapshot(versions, of, COMMAND)
        engine = Engine(
            algorithm,
            relation.facts,
            POOL + 400_000,
            parameters=Parameters(keys=12),
            disk_buffer=400_000,
        )
        join = MasterJoin(engine, relation)
        answered = {}
        events = case.events()
        at = step = 0
        while at < len(events) or join.pending:
            size = steps[step % len(steps)]
            step += 1
            offered = engine.offer(events.slice(at, min(at + size, len(events))))
            at += offered.accepted
            note(offered.answers, answered)
            if waiting and step % gaps[step % len(gaps)] == 0:
                next_version()
            answers = join.step()
            if answers is not None:
                note(answers, answered)
        join.close()
    assert answered.keys() == set(range(len(case.stream)))
    for event, rows in answered.items():
        key = case.stream[event]
        possible = [
            sorted(1000 * n + r for r, name in enumerate(master) if name == key) or [None]
            for n, master in enumerate(masters)
        ]
        assert (rows if rows == [None] else sorted(rows)) in possible


def note(answers, answered):
    made = splice(JoinKind.LEFT, answers.events, answers.entries, answers.starts, NO_ROW)
    for output in made.outputs:
        value = json.loads(output)
        answered.setdefault(value["e"], []).append(value["r"])
