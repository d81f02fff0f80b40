"""What is killed or cut off under load comes back by itself, and the output stays exact."""

from __future__ import annotations

import random
import threading
import time
from contextlib import contextmanager
from urllib.parse import urlsplit

import pytest

from dovetail.demo.catalogue import load_catalogue
from dovetail.demo.generate import GenerateSettings, generate
from tests.e2e.proxy import Proxy

KEYS = 50_000
RATE = 3_000
PILE = 1_000
"""Events that never wait in front of a stage at this rate, unless it does not work."""
SALES = {
    "source": {
        "partitions": 4,
        "fields": {
            "sale_id": "int",
            "product_id": "int",
            "customer_id": "int?",
            "quantity": "int",
            "amount": "decimal",
            "channel": "text",
            "sold_at": "timestamp",
        },
    },
    "key": "product_id",
    "master": {
        "table": "products",
        "columns": ["name", "category", "vendor", "price", "weight", "active", "updated_at"],
    },
    "memory": "16MiB",
    "slots": 4,
}


class Load:
    """Demo events at a steady rate, from a thread of its own."""

    def __init__(self, pipeline, rate):
        self._rate = rate
        self._stop = threading.Event()
        self._failure = None
        self._thread = threading.Thread(target=self._run, args=(pipeline,))
        self.sent = 0

    def _run(self, pipeline):
        settings = GenerateSettings(rate=self._rate, skew=1.0, seed=7, keys=KEYS)
        config, topic = pipeline.settings.client(), pipeline.topology.source.name
        try:
            self.sent = generate(settings, config, topic, lambda _: None, self._stop).events
        except Exception as failure:  # noqa: BLE001 - told by stop(), in the test's own thread
            self._failure = failure

    @property
    def flows(self):
        return self._thread.is_alive()

    def start(self):
        self._thread.start()

    def stop(self):
        self._stop.set()
        self._thread.join()
        assert self._failure is None, self._failure


@contextmanager
def under_load(pipeline, rate=RATE):
    load = Load(pipeline, rate)
    load.start()
    try:
        yield load
    finally:
        load.stop()


def assert_events_pile_up(pipeline, name):
    """Nobody restarts the dead process meanwhile: what it would take in stays in front of it."""
    of_all = pipeline.topology.in_one
    stages = pipeline.audit().stages if of_all else (name.rpartition("-")[0] or name,)
    deadline = time.monotonic() + 60
    while max(pipeline.audit().backlogs[stage] for stage in stages) < PILE:
        assert time.monotonic() < deadline, f"no load in front of {name}"
        time.sleep(0.1)


def assert_exact(pipeline, sent):
    final = pipeline.drain()
    assert final.problems == []
    assert final.taken == sent
    assert final.taken == final.enriched + final.unmatched + final.dead_lettered
    verdict = pipeline.verdict()
    assert verdict.differences == []
    assert verdict.events == sent
    assert final.outputs == verdict.outputs == verdict.expected > 0
    return final


@pytest.mark.timeout(600)
def test_every_service_is_killed_under_load_and_the_output_stays_exact(run_pipeline, database):
    load_catalogue(database, rows=KEYS, report=lambda _: None)
    moments = random.Random(20_260)
    with run_pipeline({**SALES, "nodes": 2}) as pipeline, under_load(pipeline) as load:
        pipeline.wait_until(lambda seen: seen.hits > 0, "both phases answer")
        before = pipeline.pids()
        victims = ("disk_phase-0", "cache_phase-0", "mapper", "ingest", "control")
        for name in map(pipeline.process_of, victims):
            pipeline.pause(moments.uniform(0.5, 1.5))
            assert load.flows
            answered = pipeline.audit().enriched
            pipeline.kill(name)
            if name != "control":
                assert_events_pile_up(pipeline, name)
            pipeline.wait_until_ready()
            assert pipeline.pid(name) != before[name]
            pipeline.wait_until(lambda seen, then=answered: seen.enriched > then, "it goes on")
        load.stop()
        assert_exact(pipeline, load.sent)
        after = pipeline.pids()
        # No process but the killed ones has ended, for whatever reason.
        killed = set(map(pipeline.process_of, victims))
        assert {name for name in after if after[name] != before[name]} == killed
        if pipeline.has_nodes:
            ended = {name: pipeline.service(name).process.stop() for name in pipeline.names()}
            assert set(ended.values()) == {0}, "whoever is told to end has not failed"


@pytest.mark.timeout(600)
def test_while_the_database_is_cut_off_the_disk_phase_waits_and_then_goes_on(
    run_pipeline, database
):
    load_catalogue(database, rows=KEYS, report=lambda _: None)
    address = urlsplit(database)
    with Proxy(address.hostname, address.port) as proxy:
        cut_off = database.replace(f":{address.port}/", f":{proxy.port}/")
        spec = {**SALES, "nodes": 1}
        with run_pipeline(spec, DATABASE_URL=cut_off) as pipeline, under_load(pipeline) as load:
            pipeline.wait_until(lambda seen: seen.hits > 0, "both phases answer")
            before = pipeline.pids()
            disk_phase = pipeline.process_of("disk_phase-0")
            proxy.cut()
            if pipeline.has_phases:
                assert_the_disk_phase_alone_waits(pipeline)
                proxy.mend()
                pipeline.wait_until_ready()
                assert pipeline.pids() == before
            else:
                pipeline.wait_until(
                    lambda seen: (
                        seen.backlogs["ingest"] > PILE and pipeline.not_ready_because(disk_phase)
                    ),
                    "nothing is taken in, and it says why",
                )
                proxy.mend()
                pipeline.wait_until_ready()

            # Once more, and now it is killed as well: it cannot even start without the database.
            proxy.cut()
            pipeline.kill(disk_phase)
            started = pipeline.starts(disk_phase)
            pipeline.wait_until(
                lambda _: pipeline.starts(disk_phase) > started + 1, "it has tried again"
            )
            proxy.mend()
            pipeline.wait_until_ready()
            load.stop()
            assert_exact(pipeline, load.sent)
            after = pipeline.pids()
            assert {name for name in after if after[name] != before[name]} == {disk_phase}


def assert_the_disk_phase_alone_waits(pipeline):
    pipeline.wait_until(
        lambda _: "PostgreSQL" in pipeline.not_ready_because("disk_phase-0"),
        "the disk phase says why it is not ready",
    )
    unanswered = pipeline.wait_until(
        lambda seen: seen.backlogs["disk_phase"] > PILE, "misses pile up"
    )
    # The cache phase goes on answering what it has.
    pipeline.wait_until(lambda seen: seen.hits > unanswered.hits, "the cache goes on")
    assert pipeline.audit().stages["disk_phase"] == unanswered.stages["disk_phase"]
