"""The control database: its steps, and what two controls at once cannot do to each other."""

from __future__ import annotations

import threading
import time

import pytest
import sqlalchemy as sa

from dovetail.errors import ConfigError
from services.access.roles import Role
from services.access.tokens import Tokens
from services.control.jobs import Jobs
from services.control.store.commands import PAUSE, RESUME, Commands, Order
from services.control.store.history import EVERY_S, KEPT_S, TOTALS, Figures, History
from services.control.store.jobs import DONE, FAILED, RUNNING, JobRows
from services.control.store.migrations import STEPS, migrate
from services.control.store.pipelines import API, NewRevision, Pipelines
from services.control.store.replays import Replays
from services.problem import Kind, ProblemError
from services.spark.runs import control_engine


@pytest.fixture
def engine(database):
    engine = control_engine(database, pooled=True)
    migrate(engine)
    yield engine
    engine.dispose()


def revision(document, by="ops"):
    return NewRevision(document, {"name": "x"}, [], API, by, "")


def at_once(*tasks):
    """What each gave, all begun at the same moment."""
    results = [None] * len(tasks)
    barrier = threading.Barrier(len(tasks))

    def run(number, task):
        barrier.wait()
        try:
            results[number] = task()
        except Exception as error:  # noqa: BLE001 - it is what was given
            results[number] = error

    threads = [threading.Thread(target=run, args=one) for one in enumerate(tasks)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results


def test_steps_are_applied_once_however_many_start_at_once(database):
    engines = [control_engine(database) for _ in range(4)]
    assert at_once(*(lambda engine=engine: migrate(engine) for engine in engines)) == [None] * 4
    with engines[0].connect() as connection:
        applied = connection.execute(sa.text("SELECT step, name FROM dovetail.migrations")).all()
    assert sorted(map(tuple, applied)) == [
        (number, name) for number, (name, _) in enumerate(STEPS, start=1)
    ]


def test_a_step_that_fails_leaves_nothing_and_is_tried_again(engine):
    broken = (*STEPS, ("broken", ("CREATE TABLE {s}.half (a int)", "SELECT no_such_function()")))
    with pytest.raises(Exception, match="no_such_function"):
        migrate(engine, broken)
    migrate(engine, (*STEPS, ("mended", ("CREATE TABLE {s}.half (a int)",))))
    with engine.connect() as connection:
        assert connection.execute(sa.text("SELECT count(*) FROM dovetail.half")).scalar() == 0
    with pytest.raises(ConfigError, match="later release"):
        migrate(engine)


def test_of_two_changes_to_the_same_revision_one_is_refused(engine):
    pipelines = Pipelines(engine)
    assert pipelines.create("x", revision("one"))
    assert not pipelines.create("x", revision("two"))
    numbers = at_once(*(lambda n=n: pipelines.revise("x", 1, revision(str(n))) for n in range(4)))
    assert sorted(numbers, key=str) == [2, None, None, None]
    assert pipelines.current("x").revision == 2
    assert [row.revision for row in pipelines.revisions("x", 10)] == [2, 1]


def test_one_job_at_a_time_moves_a_pipeline(engine):
    jobs = JobRows(engine)
    results = at_once(
        *(lambda kind=kind: jobs.add("x", kind, "ops", "") for kind in ("drain", "pause"))
    )
    assert sum(isinstance(one, ProblemError) for one in results) == 1
    job = next(one for one in results if not isinstance(one, ProblemError))
    assert jobs.add("x", "replay", "ops", "").state == RUNNING
    assert jobs.add("y", "drain", "ops", "").state == RUNNING
    jobs.end(job.id, DONE)
    assert jobs.add("x", "pause", "ops", "").state == RUNNING


def test_a_job_whose_control_died_is_buried(engine):
    jobs = JobRows(engine)
    dead, alive = jobs.add("x", "drain", "ops", ""), jobs.add("y", "drain", "ops", "")
    with engine.begin() as connection:
        connection.execute(
            sa.text("UPDATE dovetail.jobs SET heard_at = now() - interval '1 min' WHERE id = :id"),
            {"id": dead.id},
        )
    jobs.bury()
    assert jobs.find(dead.id).state == FAILED
    assert "control ended" in jobs.find(dead.id).error
    assert jobs.find(alive.id).state == RUNNING


def test_a_job_is_alive_while_its_work_waits_in_one_call(engine, monkeypatch):
    monkeypatch.setattr("services.control.store.jobs.SILENT_S", 1)
    monkeypatch.setattr("services.control.jobs._BEAT_S", 0.1)
    jobs = Jobs(JobRows(engine))
    back = threading.Event()
    job = jobs.start("x", "drain", "ops", "", lambda _: back.wait(30) and None)
    time.sleep(2)
    jobs.rows.bury()
    assert jobs.find(job.id).state == RUNNING
    back.set()
    assert ended(jobs, job).state == DONE


def test_a_job_that_was_buried_orders_nothing_more(engine):
    jobs = Jobs(JobRows(engine))
    going_on = threading.Event()
    ordered = []

    def work(progress):
        going_on.wait(30)
        progress.tell("about to order")
        ordered.append("more")

    job = jobs.start("x", "drain", "ops", "", work)
    jobs.rows.end(job.id, FAILED, error="buried")
    after = jobs.rows.add("x", "drain", "ops", "")
    going_on.set()
    assert ended(jobs, job).error == "buried"
    assert ordered == []
    assert jobs.find(after.id).state == RUNNING


def ended(jobs, job):
    for thread in jobs._threads:
        thread.join(30)
    return jobs.find(job.id)


def test_commands_are_numbered_upwards_and_keep_where_to_read_from(engine):
    commands = Commands(engine)
    first = commands.add(
        "x", "ops", {"ingest": Order(PAUSE, 1, {"0": 5}), "mapper": Order(PAUSE, 1)}
    )
    assert first["ingest"].read_from_number == first["ingest"].number < first["mapper"].number
    second = commands.add("x", "ops", {"ingest": Order(RESUME, 2)})
    assert second["ingest"].number > first["mapper"].number
    assert second["ingest"].read_from == {"0": 5}
    assert second["ingest"].read_from_number == first["ingest"].number
    assert commands.latest("x") == {"ingest": second["ingest"], "mapper": first["mapper"]}
    assert commands.latest("y") == {}
    done = commands.add("x", "ops", {"ingest": Order(RESUME, 2, {})})
    assert done["ingest"].read_from == {}
    assert commands.add("x", "ops", {"ingest": Order(PAUSE, 2)})["ingest"].read_from == {}


def test_an_origin_is_claimed_once(engine):
    replays = Replays(engine, "x")

    def claim(force=False):
        return replays.claim("sales/0/7", "dead-letters", 1, 100, "ops", force=force)

    claims = at_once(claim, claim, claim)
    assert sum(one.new for one in claims) == 1
    assert len({one.mark for one in claims}) == 1
    replays.sent(claims[0], "sales/0/101")
    assert claim().sent_to == "sales/0/101"
    forced = claim(force=True)
    assert forced.new
    assert (forced.time, forced.sent_to) == (2, None)
    # It is not known whether that one went out: nobody may claim yet another.
    assert claim(force=True).mark == forced.mark


def test_figures_are_kept_for_a_day_and_thinned_out(engine):
    history = History(engine, "x")
    now = time.time()
    for back in range(6):
        rows = [Figures(TOTALS, 0, {"in": 100.0 - back}), Figures("ingest", 0, {"lag": 1.0})]
        history.add(rows, now - back * EVERY_S)
    history.add([Figures(TOTALS, 0, {"in": 1e9})], now)  # another control's: the first one stays
    history.add([Figures(TOTALS, 0, {"in": 0.0})], now - KEPT_S - 100)
    points = history.since(3600, 1)
    assert max(point.figures.get("in", 0) for point in points) == 100.0
    assert len(history.since(3600, 1, "ingest")) == 6
    assert 2 <= len(history.since(3600, 3, "ingest")) <= 3
    history.forget(now)
    assert len(history.since(2 * KEPT_S, 1, TOTALS)) == 6


def test_the_first_token_of_the_environment_is_replaced_by_another(engine):
    tokens = Tokens(engine)
    tokens.set_first("a" * 40)
    tokens.set_first("a" * 40)
    assert tokens.find("a" * 40).role is Role.ADMIN
    tokens.set_first("b" * 40)
    assert tokens.find("a" * 40) is None
    assert tokens.find("b" * 40).name == "root"
    with engine.connect() as connection:
        kept = connection.execute(sa.text("SELECT * FROM dovetail.tokens")).all()
    assert "bbb" not in str(kept)


def test_the_environments_token_does_not_come_back_after_it_was_rotated_or_revoked(engine):
    tokens = Tokens(engine)
    tokens.create("another", Role.ADMIN, "test")
    tokens.set_first("a" * 40)
    root = tokens.find("a" * 40).token
    for _ in range(2):
        _, turned = tokens.rotate(root, 0)
        tokens.set_first("a" * 40)
        assert tokens.find("a" * 40) is None
        assert tokens.find(turned).token == root
    tokens.revoke(root)
    tokens.set_first("a" * 40)
    assert tokens.find("a" * 40) is None
    tokens.set_first("b" * 40)
    tokens.revoke(tokens.find("b" * 40).token)
    tokens.set_first("b" * 40)
    assert tokens.find("b" * 40) is None
    # Somebody has put another one there: it is meant, even if it was there before.
    tokens.set_first("a" * 40)
    assert tokens.find("a" * 40).role is Role.ADMIN


def test_the_last_admin_token_stays(engine):
    tokens = Tokens(engine)
    only, _ = tokens.create("one", Role.ADMIN, "test")
    reader, _ = tokens.create("two", Role.READ, "test")
    with pytest.raises(ProblemError, match="last admin") as refused:
        tokens.revoke(only.id)
    assert refused.value.kind is Kind.CONFLICT
    tokens.revoke(reader.id)
    tokens.create("three", Role.ADMIN, "test")
    tokens.revoke(only.id)
    with pytest.raises(ProblemError, match="no token"):
        tokens.rotate(only.id, 0)


def test_tokens_are_managed_from_a_terminal(database, monkeypatch, capsys):
    from services.access.command import main

    monkeypatch.setenv("DATABASE_URL", database)
    assert main(["create", "ops", "--role", "admin", "--expires-in", "1d"]) == 0
    token = capsys.readouterr().out.strip()
    tokens = Tokens(control_engine(database))
    number = tokens.find(token).token
    assert main(["rotate", str(number)]) == 0
    assert tokens.find(token) is None
    assert main(["revoke", str(number)]) == 1
    assert "last admin" in capsys.readouterr().err
    assert main(["list"]) == 0
    assert "ops" in capsys.readouterr().out
