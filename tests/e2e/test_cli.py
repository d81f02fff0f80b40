"""Every command that asks the control service, against a real one over a running pipeline."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
import uuid
from typing import Any

import psycopg
import pytest
from confluent_kafka.admin import NewTopic
from psycopg import sql

from deploy.local.home import CHECKOUT, Home
from deploy.local.kernels import kept_in
from dovetail.cli import main
from dovetail.stream.topics import admin_of
from dovetail.testing.pipeline import RunningPipeline
from services.spark.plan_tables import PlanKey, PlanTables
from services.spark.runs import Run, control_engine
from tests.e2e import shop
from tests.unit.cli_kit import INTERRUPTIBLE

pytestmark = pytest.mark.timeout(600)

FACTS = {
    "hour": None,
    "algorithm": "auto",
    "horizon": {"seconds": 600.0, "reason": "master.refresh"},
    "event_bytes": 130,
    "slot_bytes": 1 << 20,
    "expected_hit_rate": 0.8,
    "bytes": 256,
    "keys": {"chosen": 1, "budget": 1, "inequality": 0, "too-large": 0},
    "folder": "plans/1",
}
KEYS = [
    PlanKey(b"42", 1, 900.0, 50, 256, 3.5, "chosen"),
    PlanKey(b"7", 2, 1.0, 1, 128, 0.1, "budget"),
]


@pytest.fixture(scope="module")
def pipeline(stack, kernels):
    """One pipeline for all of the tests, with everything in it that the commands show."""
    name = f"test_{uuid.uuid4().hex[:12]}"
    spec = {"name": f"test-{uuid.uuid4().hex[:12]}", **shop.INT.spec("inner"), "nodes": 1}
    home = Home(stack.home.folder / "pipelines" / "cli", CHECKOUT / ".dovetail")
    with psycopg.connect(stack.database_url, autocommit=True) as connection:
        connection.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
        database = f"{stack.database_url.rpartition('/')[0]}/{name}"
        shop.INT.fill(database)
        running = RunningPipeline(home, stack.bootstrap, database, spec)
        try:
            with running:
                running.send(shop.INT.good_events() * 20)
                running.send(shop.INT.bad_events())
                running.drain()
                engine = control_engine(database)
                with Run(engine, spec["name"], "frequency") as run:
                    run.figure("events", 1234567)
                plans = PlanTables(engine, spec["name"])
                plans.create()
                plans.add(run.id, FACTS, KEYS)
                engine.dispose()
                yield running
        finally:
            admin = admin_of(running.settings)
            own = [topic.name for topic in running.topology.topics()]
            own = [topic for topic in own if topic.startswith(spec["name"])]
            for deletion in admin.delete_topics(own).values():
                deletion.result(30)
            drop = sql.SQL("DROP DATABASE {} WITH (FORCE)")
            connection.execute(drop.format(sql.Identifier(name)))


class Cli:
    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys

    def words(self, *words: object, code: int = 0) -> str:
        """Run a command; give what it says to a person."""
        said, _ = self.run(*words, code=code)
        return said

    def json(self, *words: object, code: int = 0) -> Any:
        said, _ = self.run(*words, "--json", code=code)
        return json.loads(said)

    def refused(self, *words: object, code: int) -> dict[str, Any]:
        """Run a command that fails; the person and the script are told the same."""
        out, err = self.run(*words, "--json", code=code)
        assert out == ""
        problem = json.loads(err)
        out, err = self.run(*words, code=code)
        assert out == ""
        assert err.startswith(f"dovetail: {problem['title']}")
        assert problem["detail"] in err
        return problem

    def run(self, *words: object, code: int = 0) -> tuple[str, str]:
        self._capsys.readouterr()
        returned = main([str(word) for word in words])
        out, err = self._capsys.readouterr()
        assert returned == code, (words, returned, out, err)
        return out, err


@pytest.fixture
def cli(pipeline, capsys, monkeypatch):
    for name in ("TOKEN", "TOKEN_FILE"):
        monkeypatch.delenv(f"DOVETAIL_{name}", raising=False)
    for name in ("KAFKA_BOOTSTRAP", "DATABASE_URL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("DOVETAIL_URL", pipeline.url("control"))
    return Cli(capsys)


# --- looking


def test_status(cli, pipeline):
    final = pipeline.audit()
    while (stats := cli.json("status"))["totals"]["enriched"] != final.enriched:
        pipeline.pause(0.2)  # the control service looks once a second
    assert stats["pipeline"] == pipeline.spec.name
    assert stats["totals"]["in"] == final.taken
    shown = cli.words("status")
    assert f"{pipeline.spec.name} is running" in shown
    assert f"{final.enriched:,}" in shown
    assert "holds" in shown
    assert all(name in shown for name in ("ingest-0", "mapper-0", "cache_phase-0", "disk_phase-0"))


def test_status_is_live_on_a_terminal_until_it_is_interrupted(cli, pipeline):
    mine, its = pty.openpty()
    words = [sys.executable, "-c", INTERRUPTIBLE, "status", "--every", "100ms"]
    child = subprocess.Popen(words, stdout=its, env={**os.environ, "TERM": "xterm"})
    os.close(its)
    seen = b""
    while seen.count(b"Ctrl-C ends this view") < 3:
        seen += os.read(mine, 65_536)
    os.kill(child.pid, 2)
    assert child.wait(60) == 0
    os.close(mine)
    assert b"\x1b[32mrunning" in seen, "with colours"
    assert b"\x1b[1A" in seen, "drawn in place"


def test_nodes(cli, pipeline):
    nodes = {f"{node['service']}-{node['node']}": node for node in cli.json("nodes")}
    assert nodes["disk_phase-0"]["pid"] == pipeline.pid("disk_phase-0")
    shown = cli.words("nodes")
    assert all(name in shown for name in nodes)
    assert "ready" in shown


def test_slots(cli):
    slots = cli.json("slots")
    assert {slot["slot"] for slot in slots} == {0, 1, 2, 3}
    assert cli.words("slots").count("node 0") == 2 * len(slots)


def test_history(cli):
    answer = cli.json("history", "in", "--last", "10m", "--step", "10s")
    assert {series["figure"] for series in answer["series"]} <= {"in"}
    assert "figure" in cli.words("history") or "nothing is kept yet" in cli.words("history")


def test_cache(cli):
    answer = cli.json("cache", "--most", 5, "--by", "bytes")
    assert answer["keys"]
    assert len(answer["keys"]) <= 5
    assert cli.json("cache", "--slot", answer["keys"][0]["slot"])["keys"]
    shown = cli.words("cache", "--link", 1)
    assert answer["policy"] in shown
    assert all(key["key"] in shown for key in answer["keys"])


def test_lookup(cli):
    answer = cli.json("lookup", 42, "--most", 3)
    assert answer["row_count"] == 50
    assert len(answer["rows"]) == 3
    shown = cli.words("lookup", "42", "--most", "3")
    assert "50 rows" in shown
    assert "47 more" in shown
    assert "größe & maß" in shown
    assert cli.json("lookup", "2")["row_count"] == 0
    assert "0 rows" in cli.words("lookup", "2")


def test_algorithm(cli):
    (node,) = cli.json("algorithm")["nodes"]
    shown = cli.words("algorithm", "--link", 1)
    assert node["running"] in shown
    assert all(name in shown for name in node["factors"])


def test_audit_by_the_control_service_and_by_the_broker_agree(cli, pipeline, monkeypatch):
    by_control = cli.json("audit")
    assert by_control["equation"] == pipeline.audit().equation()
    assert by_control["equation"] in cli.words("audit")
    monkeypatch.setenv("KAFKA_BOOTSTRAP", pipeline.settings.bootstrap)
    monkeypatch.setenv("DOVETAIL_URL", "http://127.0.0.1:1")
    file = pipeline.settings.pipeline
    assert cli.json("audit", file)["equation"] == by_control["equation"]
    shown = cli.words("audit", file)
    assert "waiting to be taken: 0" in shown
    cli.words("audit", file, "--url", "http://127.0.0.1:1", code=3)


def test_verify(cli, pipeline, monkeypatch):
    monkeypatch.setenv("KAFKA_BOOTSTRAP", pipeline.settings.bootstrap)
    monkeypatch.setenv("DATABASE_URL", pipeline.settings.database_url)
    verdict = cli.json("verify", pipeline.settings.pipeline)
    assert verdict["equal"]
    assert verdict["outputs"] == pipeline.audit().outputs
    assert f"{verdict['outputs']:,} outputs found" in cli.words(
        "verify", pipeline.settings.pipeline
    )


def test_generate(cli, pipeline, monkeypatch):
    """Sales are no events of this pipeline: they go to a topic of their own."""
    monkeypatch.setenv("KAFKA_BOOTSTRAP", pipeline.settings.bootstrap)
    topic = f"{pipeline.spec.name}.sales"
    words = [*("generate", "--topic", topic, "--rate", "max", "--count", "500", "--keys", "100")]
    admin = admin_of(pipeline.settings)
    admin.create_topics([NewTopic(topic, 1)])[topic].result(30)
    env = {**os.environ, **kept_in(Home(CHECKOUT / ".dovetail"))}
    command = [sys.executable, "-m", "dovetail.cli", *words]
    told = subprocess.run([*command, "--json"], env=env, stdout=subprocess.PIPE, check=True)
    assert json.loads(told.stdout)["events"] == 500
    told = subprocess.run(command, env=env, stdout=subprocess.PIPE, check=True)
    assert b"500 events in" in told.stdout
    admin.delete_topics([topic])[topic].result(30)


# --- running it


def test_pipelines(cli, pipeline, tmp_path):
    name = pipeline.spec.name
    (mine,) = (one for one in cli.json("pipelines") if one["here"])
    assert (mine["name"], mine["state"]) == (name, "running")
    assert name in cli.words("pipelines")
    assert cli.json("pipelines", "show")["document"] == cli.words("pipelines", "show", "--document")
    assert "running" in cli.words("pipelines", "show", name)
    assert cli.json("pipelines", "revisions")[-1]["origin"] == "file"
    assert "file" in cli.words("pipelines", "revisions", name, "--most", 5)
    first = cli.json("pipelines", "revision", 1)
    assert first["document"] in cli.words("pipelines", "revision", 1, name)
    assert cli.json("pipelines", "topology")["slots"] == 4
    assert f"{name}.enriched" in cli.words("pipelines", "topology")


def test_a_pipeline_is_validated_stored_updated_and_deleted(cli, pipeline, tmp_path):
    name = f"{pipeline.spec.name}-b"
    file = tmp_path / "other.yaml"
    document = cli.words("pipelines", "show", "--document")
    file.write_text(document.replace(f"name: {pipeline.spec.name}", f"name: {name}"))
    assert cli.json("pipelines", "validate", file)["summary"].startswith(f"pipeline {name}")
    assert f"pipeline {name}" in cli.words("pipelines", "validate", file, "--no-database")
    assert cli.json("pipelines", "create", file, "--why", "a second shop")["state"] == "stopped"
    taken = cli.refused("pipelines", "create", file, code=1)
    assert taken["status"] == 409
    file.write_text(file.read_text().replace("memory: 16MiB", "memory: 24MiB"))
    revised = cli.json("pipelines", "update", file, name, "--from-revision", 1)
    assert (revised["revision"], revised["job"]) == (2, None)
    assert "nothing changes" in cli.words("pipelines", "update", file, name)
    assert name in cli.words("pipelines", "show", name)
    assert cli.json("pipelines", "delete", name, "--yes") == {"deleted": name}
    assert cli.refused("pipelines", "show", name, code=1)["status"] == 404


def test_settings_change_while_it_runs(cli, pipeline):
    before = cli.json("pipelines", "show")["revision"]
    answer = cli.json("set", "memory=20MiB", "--why", "more hits", "--from-revision", before)
    assert answer["revision"] == before + 1
    assert answer["job"]["state"] == "done"
    assert set(cli.json("pipelines", "show")["applied"].values()) == {before + 1}
    shown = cli.words("set", "algorithm=srj")
    assert "algorithm" in shown
    assert "done" in shown
    assert "nothing changes" in cli.words("set", "algorithm=srj")
    stale = cli.refused("set", "memory=30MiB", "--from-revision", before, code=1)
    assert stale["status"] == 409
    wrong = cli.refused("set", "algorithm=ssjb", code=2)
    assert wrong["status"] == 422
    assert "ssbj" in json.dumps(wrong["problems"])


def test_it_pauses_resumes_drains_and_starts(cli):
    assert cli.json("pause", "--why", "the database moves")["state"] == "done"
    assert cli.json("status")["state"] == "paused"
    assert "paused" in cli.words("status")
    assert "done" in cli.words("resume")
    assert "done" in cli.words("pause", "--service", "disk_phase")
    assert cli.json("resume", "--service", "disk_phase")["state"] == "done"
    assert cli.json("drain")["state"] == "done"
    assert cli.json("status")["state"] == "drained"
    assert "done" in cli.words("start")
    assert cli.json("start")["state"] == "done"
    assert "done" in cli.words("drain")
    job = cli.json("resume", "--no-wait")
    assert "done" in cli.words("jobs", "follow", job["id"])
    assert cli.json("jobs", "follow", job["id"])["state"] == "done"
    assert cli.json("jobs", "show", job["id"])["kind"] == "resume"
    assert f"{job['id']}: resume" in cli.words("jobs", "show", job["id"])
    assert (
        cli.json("jobs", "--kind", "resume", "--state", "done", "--most", 1)[0]["id"] == job["id"]
    )
    assert "the database moves" in cli.words("jobs")
    assert cli.refused("jobs", "cancel", job["id"], code=1)["status"] == 409


def test_the_source_is_read_again(cli, pipeline):
    before = pipeline.audit()
    job = cli.json("restart", "--offset", "0=0", "--yes", "--why", "once more")
    assert job["state"] == "done"
    assert job["result"]["moved"]["0"][1] == 0
    after = pipeline.drain()
    assert after.taken > before.taken
    assert not after.off
    assert "done" in cli.words("restart", "--offset", "1=0", "--yes")
    pipeline.drain()


# --- letters


def test_dead_letters_are_listed_shown_and_replayed_once(cli, pipeline):
    listed = cli.json("dead-letters", "--reason", "wrong-type", "--most", 2, "--since", "1d")
    assert [letter["reason"] for letter in listed["letters"]] == ["wrong-type"] * 2
    older = cli.json("dead-letters", "--reason", "wrong-type", "--before", listed["next"])
    assert older["letters"][0]["id"] < listed["letters"][-1]["id"]
    shown = cli.words("dead-letters", "--most", 50)
    assert "wrong-type" in shown
    assert "invalid-json" in shown
    letter = cli.json("dead-letters", "show", listed["letters"][0]["id"])
    assert letter["text"] in cli.words("dead-letters", "show", letter["id"])
    sent = cli.json("dead-letters", "replay", letter["id"], "--why", "fixed")
    assert sent["origin"] == letter["origin"]
    again = cli.refused("dead-letters", "replay", letter["id"], code=1)
    assert again["type"].endswith("already-replayed")
    assert "is sent again" in cli.words("dead-letters", "replay", letter["id"], "--force")
    assert "yes" in cli.words("dead-letters", "--origin", letter["origin"])
    pipeline.drain()
    many = [one["id"] for one in older["letters"]][:2]
    job = cli.json("dead-letters", "replay", *many, "--yes")
    assert job["result"] == {"replayed": 2, "skipped": 0}
    assert "done" in cli.words("dead-letters", "--reason", "oversized", "replay", "--yes")
    pipeline.drain()
    raw = subprocess.run(
        [sys.executable, "-m", "dovetail.cli", "dead-letters", "show", str(letter["id"]), "--raw"],
        stdout=subprocess.PIPE,
        check=True,
    )
    assert raw.stdout == letter["text"].encode()
    assert cli.refused("dead-letters", "show", 10**9, code=1)["status"] == 404


def test_parked_events(cli):
    assert cli.json("parked")["letters"] == []
    assert "there is none" in cli.words("parked")
    job = cli.json("parked", "replay", "--all", "--yes")
    assert job["result"] == {"replayed": 0, "skipped": 0}
    assert "done" in cli.words("parked", "replay", "--all", "--yes")
    assert cli.refused("parked", "show", 5, code=1)["status"] == 404


# --- Spark


def test_spark(cli):
    jobs = {job["job"]: job for job in cli.json("spark")}
    assert jobs["frequency"]["last"]["state"] == "done"
    assert "never ran" in cli.words("spark")
    (run,) = cli.json("spark", "runs")
    assert "events 1,234,567" in cli.words("spark", "runs")
    assert cli.json("spark", "runs", run["id"])["figures"] == {"events": 1234567}
    assert "1,234,567" in cli.words("spark", "runs", run["id"])
    assert cli.refused("spark", "runs", 10**6, code=1)["status"] == 404


def test_a_spark_job_is_started_and_cancelled(cli):
    """What stands behind the job's name is the job's own, so --json stands before it."""
    _, refused = cli.run("spark", "start", "--json", "enrich", code=1)
    assert json.loads(refused)["status"] == 409
    out, _ = cli.run("spark", "start", "--json", "--no-wait", "frequency", "--no-plan")
    job = json.loads(out)
    assert (job["kind"], job["state"]) == ("spark", "running")
    cli.json("jobs", "cancel", job["id"])
    assert cli.json("jobs", "follow", job["id"], code=1)["state"] == "cancelled"
    assert "cancelled" in cli.words("jobs", "follow", job["id"], code=1)


def test_plans(cli):
    (plan,) = cli.json("plans")
    assert plan["expected_hit_rate"] == 0.8
    assert "80%" in cli.words("plans")
    assert cli.json("plans", "show")["first_keys"][0]["key"] == "42"
    assert "plans/1" in cli.words("plans", "show", plan["version"])
    assert [key["key"] for key in cli.json("plans", "keys", "--verdict", "budget")] == ["7"]
    assert "save more and fill it" in cli.words("plans", "keys", plan["version"], "--most", 2)
    assert cli.json("plans", "key", 42)["verdict"] == "chosen"
    assert "chosen" in cli.words("plans", "key", 42, plan["version"])
    assert cli.refused("plans", "show", 99, code=1)["status"] == 404


# --- who may, and who did


def test_tokens_and_what_they_allow(cli, monkeypatch, tmp_path):
    assert cli.json("me")["local"]
    assert "admin" in cli.words("me")
    file = tmp_path / "reader.token"
    assert "saved" in cli.words("tokens", "create", "reader", "read", "--save", file)
    root = cli.json("tokens", "create", "root", "admin", "--expires-in", "30d")
    monkeypatch.setenv("DOVETAIL_TOKEN_FILE", str(file))
    assert cli.json("me") == {"name": "reader", "role": "read", "local": False}
    refused = cli.refused("pause", code=4)
    assert refused["status"] == 403
    assert file.read_text().strip() not in json.dumps(refused)
    assert cli.refused("tokens", code=4)["status"] == 403
    monkeypatch.setenv("DOVETAIL_TOKEN", root["token"])
    reader = next(token["id"] for token in cli.json("tokens") if token["name"] == "reader")
    assert "reader" in cli.words("tokens")
    rotated = cli.json("tokens", "rotate", reader, "--keep-old-for", "1h")
    assert rotated["token"] != file.read_text().strip()
    assert "It is not shown again." in cli.words("tokens", "rotate", reader)
    assert "revoked" in cli.words("tokens", "revoke", reader, "--yes")
    assert cli.refused("tokens", "revoke", root["id"], "--yes", code=1)["status"] == 409
    monkeypatch.setenv("DOVETAIL_TOKEN", "dvt_" + "x" * 40)
    unknown = cli.refused("me", code=4)
    assert unknown["status"] == 401
    assert "xxxx" not in json.dumps(unknown)


def test_changes(cli):
    cli.json("start", "--why", "who did this?")
    (change,) = cli.json("changes", "--most", 1, "--action", "pipeline.start", "--since", "1h")
    assert (change["by"], change["why"]) == ("local", "who did this?")
    assert "who did this?" in cli.words("changes", "--by", "local")


# --- errors


def test_what_is_not_there_or_not_right_is_told(cli, monkeypatch):
    assert cli.refused("cache", "--pipeline", "other", code=1)["status"] == 404
    assert cli.refused("jobs", "show", 10**6, code=1)["status"] == 404
    assert cli.refused("jobs", "--most", 10**6, code=2)["status"] == 422
    assert cli.refused("lookup", "no-number", code=2)["status"] == 422
    monkeypatch.setenv("DOVETAIL_URL", "http://127.0.0.1:1")
    cli.words("status", code=3)
