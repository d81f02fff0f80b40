"""The pipeline under control: changed while it runs, paused, drained, read again, looked into."""

from __future__ import annotations

import signal
import time
from collections import Counter
from contextlib import closing
from pathlib import Path

import httpx
import psycopg
import pytest
from confluent_kafka import Consumer, KafkaException, TopicPartition

from dovetail.pipeline.spec import Engine, Layout
from dovetail.stream.offsets import CommittedOffsets
from dovetail.stream.topics import admin_of, ends
from tests.e2e import shop
from tests.e2e.api import Api
from tests.e2e.conftest import ENGINE, LAYOUT

SHAPE = shop.INT


def start(run_pipeline, database, environment=None, **settings):
    SHAPE.fill(database)
    with psycopg.connect(database) as connection:
        connection.execute(f"CREATE INDEX ON goods ({', '.join(SHAPE.columns)})")
    return run_pipeline({**SHAPE.spec("inner"), **settings}, **(environment or {}))


def outputs_by_origin(pipeline):
    messages = pipeline.messages(pipeline.topology.enriched)
    return Counter((headers["origin"], value) for headers, value in messages)


def test_settings_change_while_events_flow_and_the_output_is_sqls(run_pipeline, database):
    events = [*SHAPE.good_events(), *SHAPE.bad_events()]
    with start(run_pipeline, database, algorithm="srj") as pipeline:
        api = Api(pipeline)
        pids = pipeline.pids()
        assert api("GET", "P")["revision"] == 1
        changes = [
            {"algorithm": "ssbj"},
            {"memory": "24MiB"},
            {"algorithm": "auto", "order": "key"},
            {"algorithm": "hybridjoin", "order": "none", "memory": "8MiB"},
        ]
        for number, settings in enumerate(changes, start=2):
            pipeline.send(events)
            revised = api(
                "PATCH",
                "P",
                202,
                json={"settings": settings, "why": "a test", "from_revision": number - 1},
            )
            assert revised["revision"] == number
            pipeline.send(events)
            api.done(revised["job"])
            pipeline.send(events)

        shown = api("GET", "P")
        assert shown["state"] == "running"
        assert set(shown["applied"].values()) == {len(changes) + 1}
        assert shown["pipeline"]["algorithm"] == "hybridjoin"
        # Who is in the middle of a step says so; asked again, it answers.
        nodes = api.until(lambda: api("GET", "P/algorithm")["nodes"], "told what runs")
        assert nodes[0]["running"] == "hybridjoin"

        final = pipeline.drain()
        verdict = pipeline.verdict()
        assert verdict.differences == []
        assert not final.problems
        assert final.taken == verdict.events == 3 * len(changes) * len(events)
        assert final.outputs == verdict.outputs == verdict.expected > 0
        # Nobody had to start anything again: each process has taken the revision in its place.
        assert pipeline.pids() == pids
        assert pipeline.reports == []


def test_what_was_ordered_holds_without_control_and_after_a_restart(run_pipeline, database):
    events = SHAPE.good_events()
    with start(run_pipeline, database) as pipeline:
        api = Api(pipeline)
        pipeline.send(events)
        pipeline.drain()
        api.done(api("POST", "P/pause", 202, json={"why": "a test"}))
        assert api("GET", "P")["state"] == "paused"

        # Neither a killed ingest nor one that control cannot tell anything takes an event.
        pipeline.kill("control")
        pipeline.kill(pipeline.process_of("ingest"))
        pipeline.send(events)
        pipeline.wait_until_ready()
        pipeline.pause(3)
        seen = pipeline.audit()
        assert seen.taken == len(events)
        assert seen.waiting >= len(events)
        api.until(lambda: api("GET", "P")["state"] == "paused", "paused")

        api.done(api("POST", "P/resume", 202, json={}))
        final = pipeline.drain()
        assert final.taken == 2 * len(events)
        assert pipeline.verdict().equal

        # A node that is silent is noticed, and found again; Spark's application is all nodes.
        stopped = pipeline.process_of("disk_phase-1")
        pipeline.send_signal(stopped, signal.SIGSTOP)
        lost = "degraded" if pipeline.has_nodes else "stopped"
        api.until(lambda: api("GET", "P")["state"] == lost, lost)
        gone = [one for one in api("GET", "/v1/nodes") if one["state"] == "gone"]
        names = {process.name: process.service for process in pipeline.topology.processes}
        assert [one["service"] for one in gone] == [names[stopped]]
        pipeline.send_signal(stopped, signal.SIGCONT)
        api.until(lambda: api("GET", "P")["state"] == "running", "running")
        assert {one["slot"] for one in api("GET", "/v1/slots")} == set(range(4))


def test_the_source_is_read_again_and_every_event_counted_again(run_pipeline, database):
    events = [*SHAPE.good_events(), *SHAPE.bad_events()]
    with start(run_pipeline, database) as pipeline:
        api = Api(pipeline)
        pipeline.send(events)
        pipeline.drain()
        once = outputs_by_origin(pipeline)
        assert pipeline.verdict().equal

        wanted = {"from": {"beginning": True}, "why": "a test"}
        assert api("POST", "P/restart", 409, json=wanted)["type"].endswith("confirmation-needed")
        api.done(api("POST", "P/drain", 202, json={}))
        assert api("GET", "P")["state"] == "drained"
        job = api.done(api("POST", "P/restart", 202, json={**wanted, "confirm": True}))
        assert set(job["result"]["moved"]) == {"0", "1", "2"}
        # It was drained before, and is again: nothing was asked for but to read from elsewhere.
        assert api("GET", "P")["state"] == "drained"
        assert pipeline.audit().taken == len(events)

        # An order is obeyed once: who starts anew does not read everything yet again.
        api.done(api("POST", "P/start", 202, json={}))
        pipeline.drain()
        pipeline.kill(pipeline.process_of("ingest"))
        pipeline.wait_until_ready()
        final = pipeline.drain()
        assert not final.problems
        assert final.taken == 2 * len(events)
        assert final.in_flight == 0
        assert outputs_by_origin(pipeline) == Counter({one: 2 * n for one, n in once.items()})

        ahead = {"from": {"offsets": {"0": 10**9}}, "confirm": True}
        refused = api("POST", "P/restart", 202, json=ahead)
        ended = api.until(
            lambda: (job := api("GET", f"/v1/jobs/{refused['id']}"))["state"] != "running" and job,
            "an end",
        )
        assert ended["state"] == "failed"
        assert "would lose events" in ended["error"]


def cut(pipeline):
    """Let the source's first partition end before what was read of it; return where it ends."""
    topology = pipeline.topology
    group, source = topology.group("ingest"), topology.source
    with closing(CommittedOffsets(pipeline.settings, group, source)) as offsets:
        at = offsets.read()[0]
    beyond = TopicPartition(source.name, 0, at.offset + 10, metadata=at.text)
    deadline = time.monotonic() + 90
    with closing(Consumer(pipeline.settings.client({"group.id": group}))) as consumer:
        while True:
            try:
                consumer.commit(offsets=[beyond], asynchronous=False)
            except KafkaException:  # until the one that was killed counts as dead
                assert time.monotonic() < deadline
                time.sleep(1)
            else:
                return at.offset


@pytest.mark.skipif(ENGINE is Engine.SPARK, reason="Spark's application commits no offsets")
def test_a_source_that_was_cut_is_read_on_from_where_it_is_told(run_pipeline, database):
    """As the message and docs/operations.md say, Offsets out of range."""
    events = SHAPE.good_events()
    # One node: while another reads the source as well, nobody else can commit for their group.
    alone = {"nodes": 1} if LAYOUT is Layout.FUSED else {}
    with start(run_pipeline, database, **alone) as pipeline:
        api, reader = Api(pipeline), pipeline.process_of("ingest")
        pipeline.send(events)
        pipeline.drain()
        pipeline.kill(reader)
        end = cut(pipeline)
        told = f"partition 0 of {pipeline.topology.source.name} ends at {end}, and was read up to"
        api.until(lambda: told in pipeline.not_ready_because(reader), "halted")
        wanted = {"from": {"offsets": {"0": end}}, "confirm": True}
        job = api.done(api("POST", "P/restart", 202, json=wanted))
        assert set(job["result"]["moved"]) == {"0"}
        pipeline.wait_until_ready()
        pipeline.send(events)
        final = pipeline.drain()
        assert not final.problems
        assert final.taken == 2 * len(events)
        assert pipeline.verdict().equal


@pytest.mark.skipif(ENGINE is Engine.SERVICES, reason="the services keep no states")
def test_states_that_were_deleted_are_begun_anew_from_where_it_is_told(run_pipeline, database):
    """As the message and docs/operations.md say, Forgotten offsets."""
    events = SHAPE.good_events()
    with start(run_pipeline, database) as pipeline:
        api = Api(pipeline)
        pipeline.send(events)
        pipeline.drain()
        source, states = pipeline.topology.source, pipeline.topology.states
        admin = admin_of(pipeline.settings)
        read_to = {str(number): end for number, end in enumerate(ends(admin, source))}
        enrich = pipeline.process_of("ingest")
        pipeline.kill(enrich)
        admin.delete_topics([states.name])[states.name].result(30)
        told = f"{states.name} has nothing of what was read"
        api.until(lambda: told in pipeline.not_ready_because(enrich), "halted")
        job = api.done(
            api("POST", "P/restart", 202, json={"from": {"offsets": read_to}, "confirm": True})
        )
        assert job["result"]["moved"].keys() == read_to.keys()
        pipeline.wait_until_ready()
        pipeline.send(events)
        final = pipeline.drain()
        assert not final.problems
        assert final.taken == len(events)  # what it had counted was lost with the states
        assert pipeline.verdict().equal


def test_the_caches_keys_and_one_key_are_shown_with_their_rows(run_pipeline, database):
    events = SHAPE.good_events()
    with start(run_pipeline, database, algorithm="srj") as pipeline:
        api = Api(pipeline)

        def hits():
            pipeline.send(events)
            pipeline.drain()
            return [key for key in api("GET", "P/cache")["keys"] if key["hits"]]

        found = api.until(hits, "hits")
        key = found[0]
        shown = api("GET", "P/lookup", params={"key": key["key"]})
        assert shown["answered_by"] == "cache"
        assert shown["slot"] == key["slot"]
        assert shown["cache_phase"] == key["node"]
        assert shown["row_count"] == key["rows"] == shown["cached"]["rows"]
        assert shown["row_count"] == SHAPE.rows.get((int(key["key"]),), 0)
        owned = {one["slot"]: one["cache_phase"] for one in api("GET", "/v1/slots")}
        assert owned[key["slot"]] == key["node"]

        stranger = api("GET", "P/lookup", params={"key": "987654321"})
        assert (stranger["answered_by"], stranger["row_count"]) == ("disk", 0)
        assert api("GET", "P/lookup", 422, params={"key": "x"})["status"] == 422
        sizes = api("GET", "P/cache", params={"by": "bytes", "most": 3})["keys"]
        assert [one["bytes"] for one in sizes] == sorted((o["bytes"] for o in sizes), reverse=True)


def test_a_dead_letter_goes_back_once_and_is_answered_after_the_fix(run_pipeline, database):
    spec = SHAPE.spec("inner")
    key = next(iter(SHAPE.rows))
    late = shop.compact({**SHAPE.event(key), "coupon": "x"}).encode()
    with start(run_pipeline, database, **spec) as pipeline:
        api = Api(pipeline)
        pipeline.send([late, late, *SHAPE.good_events()])
        pipeline.drain()
        wanted = {"reason": "unknown-field"}
        # What control has counted, it counts once a second.
        api.until(lambda: api("GET", "P/dead-letters")["total"] == 2, "counted")
        page = api("GET", "P/dead-letters", params=wanted)
        assert page["total"] == len(page["letters"]) == 2
        first, second = (letter["id"] for letter in page["letters"])
        whole = api("GET", f"P/dead-letters/{first}")
        assert whole["text"].encode() == late

        document = api("GET", "P")["document"].replace("sale: int", "sale: int\n    coupon: text?")
        api.done(api("PUT", "P", 202, json={"document": document, "why": "coupons"})["job"])
        sent = api("POST", f"P/dead-letters/{first}/replay", json={"why": "fixed"})
        assert sent["origin"] == whole["origin"]
        refused = api("POST", f"P/dead-letters/{first}/replay", 409, json={})
        assert refused["type"].endswith("already-replayed")
        job = api(
            "POST", "P/dead-letters/replay", 202, json={"reason": "unknown-field", "confirm": True}
        )
        assert api.done(job)["result"] == {"replayed": 1, "skipped": 1}
        shown = {letter["id"]: letter for letter in api("GET", "P/dead-letters")["letters"]}
        assert shown[first]["replayed"]["to"] == sent["to"]
        assert shown[second]["replayed"]["by"] == "local"

        final = pipeline.drain()
        assert not final.problems
        assert final.taken == 2 + 2 + len(SHAPE.good_events())
        assert final.dead_lettered == 2
        rows = [
            headers
            for headers, value in pipeline.messages(pipeline.topology.enriched)
            if headers["origin"] == sent["to"]
        ]
        assert len(rows) == SHAPE.rows[key]


def test_outside_local_mode_all_is_closed_and_no_secret_is_shown(run_pipeline, database):
    first = "root-" + "s3cret" * 8
    closed = {"DOVETAIL_LOCAL": "0", "DOVETAIL_ADMIN_TOKEN": first}
    with start(run_pipeline, database, closed, algorithm="srj") as pipeline:
        stranger, admin = Api(pipeline), Api(pipeline, first)
        assert stranger("GET", "/v1/stats", 401)["type"].endswith("unauthenticated")
        made = {
            role: admin("POST", "/v1/tokens", 201, json={"name": f"a {role}", "role": role})
            for role in ("read", "inspect", "operate", "send")
        }
        reader, eye, operator, till = (Api(pipeline, one["token"]) for one in made.values())

        # Ingest and the phases take the same tokens; control asks the phases by a pass.
        url = f"{pipeline.url(pipeline.process_of('ingest'))}/v1/events"
        event = shop.compact(SHAPE.event(next(iter(SHAPE.rows))))
        kind = {"Content-Type": "application/json"}
        assert httpx.post(url, content=event, headers=kind).status_code == 401
        for api, status in ((reader, 403), (eye, 403), (operator, 403), (till, 202)):
            answer = httpx.post(url, content=event, headers={**kind, **api.headers})
            assert answer.status_code == status
        pipeline.drain()
        phase = f"{pipeline.url(pipeline.process_of('cache_phase-0'))}/v1/cache"
        assert httpx.get(phase).status_code == 401
        for api, status in ((reader, 403), (till, 403), (eye, 200)):
            assert httpx.get(phase, headers=api.headers, timeout=60).status_code == status
        for path in ("P/cache", "P/dead-letters", "P/lookup?key=1"):
            reader("GET", path, 403)
        for path in ("/v1/stats", "/v1/me", "P/dead-letters"):
            till("GET", path, 403)
        till("POST", "P/drain", 403, json={})
        assert len(eye("GET", "P/cache")["nodes"]) == 2
        assert reader("GET", "P/algorithm")["missing"] == []
        eye("POST", "P/pause", 403, json={})
        operator.done(operator("POST", "P/pause", 202, json={}))
        admin("DELETE", f"/v1/tokens/{made['operate']['id']}", 204)
        operator("GET", "/v1/me", 401)
        told = admin("GET", "/v1/changes")
        assert {"token.create", "token.revoke", "pipeline.pause", "access.refused"} <= {
            one["action"] for one in told
        }

        password = database.split("@")[0].rsplit(":", 1)[1]
        secrets = (first, *(one["token"] for one in made.values()), password)
        commands = [
            Path(f"/proc/{pid}/cmdline").read_bytes().decode() for pid in pipeline.pids().values()
        ]
        logs = [pipeline.service(name).process.log.read_text() for name in pipeline.names()]
        answers = [
            str(admin("GET", path)) for path in ("/v1/tokens", "/v1/stats", "P", "/v1/nodes")
        ]
        for text in (*commands, *logs, *answers, str(told)):
            assert not any(secret in text for secret in secrets)
