"""Where control sends its pass, whatever a heartbeat says; and what it makes of the answers."""

from __future__ import annotations

import time
from types import SimpleNamespace

import pytest

from dovetail.contracts.control_pb2 import Heartbeat
from dovetail.errors import ConfigError
from dovetail.pipeline.spec import Pipeline
from dovetail.topology import Topology
from services.control.asking import Asking
from services.control.monitor import Member
from services.control.places import Places, UnknownPlaceError
from tests.unit.cli_kit import Answer, problem, served

PIPELINE = {
    "name": "sales",
    "source": {"fields": {"id": "int"}},
    "key": "id",
    "master": {"table": "goods", "key": "id"},
    "join": "semi",
    "nodes": 2,
}
CHAIN = {**PIPELINE, "then": [{"key": "id", "master": {"table": "more", "columns": ["a"]}}]}


def topology(spec=PIPELINE, **more):
    return Topology(Pipeline.model_validate({**spec, **more}))


def beat(url="", service="cache_phase", node=0):
    return Heartbeat(pipeline="sales", service=service, node=node, url=url)


@pytest.mark.parametrize(
    "url",
    [
        "http://thief.example:80",
        "http://10.1.2.3:8080",
        "http://169.254.169.254",
        "ftp://127.0.0.1:21",
        "file:///etc/passwd",
        "http://127.0.0.1:80@thief.example",
        "http://127.0.0.1:80/v1/me?x=",
        "http://127.0.0.1:80#",
        "http://127.0.0.1.thief.example:80",
        "http://127.0.0.1:99999",
        "http://[::1",
        "HTTP://127.0.0.1:80",
        "http://127.0.0.1:80\r\nX: y",
        "//127.0.0.1:80",
        "",
    ],
)
def test_no_heartbeat_leads_elsewhere_than_to_this_machine(url):
    with pytest.raises(UnknownPlaceError, match="DOVETAIL_STAGES"):
        Places(topology()).of(beat(url))


@pytest.mark.parametrize("url", ["http://127.0.0.1:18082", "http://localhost:1", "http://[::1]:80"])
def test_this_machines_own_addresses_are_believed(url):
    assert Places(topology()).of(beat(url)) == url


@pytest.mark.parametrize(
    ("template", "service", "node", "meant"),
    [
        ("http://{process}:8080", "cache_phase", 1, "http://cache-phase-1:8080"),
        ("http://{process}:8080", "ingest", 0, "http://ingest:8080"),
        ("http://{process}:8080", "disk_phase.2", 0, "http://disk-phase-2-0:8080"),
        (
            "https://sales-{service}-{node}.sales-{service}:8443",
            *("disk_phase.2", 1),
            "https://sales-disk-phase-2-1.sales-disk-phase-2:8443",
        ),
    ],
)
def test_where_it_is_told_where_stages_are_no_heartbeat_is_believed(template, service, node, meant):
    places = Places.from_environment(topology(CHAIN), {"DOVETAIL_STAGES": template})
    assert places.of(beat("http://thief.example", service, node)) == meant


def test_so_it_is_with_spark():
    places = Places.from_environment(
        topology(engine="spark"), {"DOVETAIL_STAGES": "http://{process}:8080"}
    )
    assert places.of(beat("http://thief.example", "enrich")) == "http://enrich:8080"


@pytest.mark.parametrize(
    "template",
    [
        *("{process}:8080", "ftp://{process}", "http://s3cret@{process}", "http://{host}:8080"),
        *("http://{process}:8080/", "http://{process}:8080/x", "http://", "s3cret", "http://{}"),
    ],
)
def test_what_does_not_say_where_is_refused_and_not_shown(template):
    with pytest.raises(ConfigError, match=r"^DOVETAIL_STAGES does not say") as refused:
        Places.from_environment(topology(), {"DOVETAIL_STAGES": template})
    assert "s3cret" not in str(refused.value)


def test_only_where_stages_have_names_are_they_asked_by_them():
    environment = {"DOVETAIL_STAGES": "https://{process}:8080"}
    assert Places.from_environment(topology(), environment).named
    assert not Places.from_environment(topology(), {}).named


# --- asking


class Passes:
    def pass_for(self, service):
        return "a-pass"


def asked(*urls, tokens=None):
    members = [Member(beat(url, node=node), time.monotonic()) for node, url in enumerate(urls)]
    for member in members:
        member.beat.state = Heartbeat.STATE_READY
    monitor = SimpleNamespace(members=lambda: members)
    asking = Asking(monitor, Places(topology()), tokens)
    return asking.phase(topology(), "cache_phase", "/v1/cache", {"most": 5})


def test_a_stage_is_asked_with_a_pass():
    with served({"GET /v1/cache": Answer({"keys": []})}) as stage:
        heard = asked(stage.url, tokens=Passes())
    assert heard.answers == {0: {"keys": []}}
    assert heard.missing == []
    assert stage.asked[0].path == "/v1/cache?most=5"
    assert stage.asked[0].headers["authorization"] == "Bearer a-pass"


def test_a_redirect_does_not_take_the_pass_elsewhere():
    with served({"GET /v1/cache": Answer({"keys": []})}) as thief:
        away = Answer(b"", 307, {"Location": f"{thief.url}/v1/cache"})
        with served({"GET /v1/cache": away}) as stage:
            heard = asked(stage.url, tokens=Passes())
        assert thief.asked == []
    assert heard.missing == [{"node": 0, "reason": "it answers 307"}]


def test_no_proxy_gets_the_pass(monkeypatch):
    with served({}) as thief, served({"GET /v1/cache": Answer({})}) as stage:
        for name in ("http_proxy", "HTTP_PROXY", "all_proxy"):
            monkeypatch.setenv(name, thief.url)
        assert asked(stage.url, tokens=Passes()).answers == {0: {}}
        assert thief.asked == []


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (problem(503, "unavailable", "a step takes long"), "it answers 503: a step takes long"),
        (Answer({}, 503), "it answers 503"),
        (Answer([], 503), "it answers 503"),
        (Answer(b"<html>", 503), "it answers 503"),
        (Answer(b"", 503), "it answers 503"),
        (Answer([1]), "it does not answer as a stage does"),
        (Answer(b" " * (9 << 20)), "it does not answer: its answer has more than 8,388,608 bytes"),
    ],
)
def test_a_node_that_does_not_answer_is_told_with_its_reason(answer, reason):
    with served({"GET /v1/cache": answer}) as stage:
        heard = asked(stage.url)
    assert heard.answers == {}
    assert heard.missing == [{"node": 0, "reason": reason}]


def test_others_answer_all_the_same():
    with served({"GET /v1/cache": Answer({"keys": [1]})}) as stage:
        heard = asked("http://thief.example:80", stage.url, "http://127.0.0.1:1")
    assert heard.answers == {1: {"keys": [1]}}
    told = {one["node"]: one["reason"] for one in heard.missing}
    assert "DOVETAIL_STAGES" in told[0]
    assert told[2] == "it does not answer: Connection refused"
