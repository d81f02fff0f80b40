"""Every endpoint of the API: allowed to its role, closed to all below it, and told what is wrong.

An endpoint without a case here fails the first test.
"""

from __future__ import annotations

import asyncio
import json
import re
import time
from contextlib import closing
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from unittest.mock import Mock

import httpx
import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException

from dovetail.errors import Unavailable
from dovetail.pipeline.load import parse_pipeline
from dovetail.stream.topics import admin_of, ensure_topics
from dovetail.topology import Topology
from services.access.roles import Role
from services.control.reference import described
from services.control.routes import pipelines
from services.control.routes.running import MOST_WAITING
from services.control.store.commands import Order
from tests.integration.control_kit import named, running_control

DOCUMENT = """name: others
source: {fields: {product: int, amount: decimal}}
key: product
master: {table: goods, key: id, columns: [c_text]}
"""
HERE = "/v1/pipelines/{name}"
API_PAGE = Path(__file__).parents[2] / "docs/api.md"


@dataclass(frozen=True)
class Case:
    role: Role
    allowed: dict = field(default_factory=dict)
    """Options of a request that is good, and below the statuses that it may have."""
    statuses: tuple[int, ...] = (200,)
    malformed: tuple[dict, ...] = ()
    """Options of requests that are not; each is a 422, or a 404 for what stands in the path."""
    path: str = ""
    """With all that stands in braces in its place; {name} is the pipeline's that runs here."""


def body(**members):
    return {"json": members}


def query(**members):
    return {"params": members}


BAD_BODIES = (
    {"content": b"{", "headers": {"content-type": "application/json"}},
    {"json": []},
    {"json": {"no_such_field": 1}},
)
MOST = (query(most=0), query(most="x"), query(most="1.0"))
LINK = (query(link=0), query(link=9))
LETTERS = (query(most=0), query(since="yesterday"), query(before=-1))
WHY = (*BAD_BODIES, body(why="\0"), body(why=5))

CASES = {
    ("GET", "/v1/me"): Case(Role.READ),
    ("GET", "/v1/pipelines"): Case(Role.READ),
    ("POST", "/v1/pipelines"): Case(
        Role.OPERATE,
        body(document=DOCUMENT, why="a test"),
        (201,),
        (*BAD_BODIES, body(document="name: x"), body(document="\t{"), body(document="")),
    ),
    ("POST", "/v1/validate"): Case(
        Role.OPERATE,
        body(document=DOCUMENT, database=True),
        (200,),
        (*BAD_BODIES, body(document="name: x"), body(document=DOCUMENT, database="perhaps")),
    ),
    ("GET", HERE): Case(Role.READ),
    ("PUT", HERE): Case(
        Role.OPERATE,
        body(document="changed below"),
        (200, 202, 409),
        (*BAD_BODIES, body(document="name: x"), body(document=DOCUMENT, from_revision=0)),
    ),
    ("PATCH", HERE): Case(
        Role.OPERATE,
        body(settings={"algorithm": "ssbj"}, why="a test"),
        (202, 409),
        (
            *BAD_BODIES,
            body(settings={}),
            body(settings={"slots": 2}),
            body(settings={"memory": "x"}),
        ),
    ),
    ("DELETE", HERE): Case(Role.ADMIN, body(confirm=True), (409,), BAD_BODIES),
    ("GET", f"{HERE}/revisions"): Case(Role.READ, malformed=MOST),
    ("GET", f"{HERE}/revisions/{{revision}}"): Case(
        Role.READ, path=f"{HERE}/revisions/1", malformed=({"path": f"{HERE}/revisions/x"},)
    ),
    ("GET", f"{HERE}/topology"): Case(Role.READ),
    **{
        ("POST", f"{HERE}/{action}"): Case(Role.OPERATE, body(why="a test"), (202, 409), WHY)
        for action in ("pause", "resume", "start", "drain")
    },
    ("POST", f"{HERE}/restart"): Case(
        Role.ADMIN,
        {"json": {"from": {"beginning": True}, "confirm": True}},
        (202, 409),
        (
            *BAD_BODIES,
            {"json": {"from": {}}},
            {"json": {"from": {"offsets": {}}, "confirm": True}},
            {"json": {"from": {"offsets": {"99": 1}}, "confirm": True}},
            {"json": {"from": {"time": "noon"}, "confirm": True}},
        ),
    ),
    ("GET", f"{HERE}/cache"): Case(Role.INSPECT, malformed=(*MOST, *LINK, query(by="x"))),
    ("GET", f"{HERE}/lookup"): Case(
        Role.INSPECT,
        query(key="1"),
        malformed=(
            {},
            query(key="x"),
            query(key="1|2"),
            query(key="9" * 30),
            query(key="1", link=9),
        ),
    ),
    ("GET", f"{HERE}/algorithm"): Case(Role.READ, malformed=LINK),
    **{
        key: case
        for kind in ("dead-letters", "parked")
        for key, case in {
            ("GET", f"{HERE}/{kind}"): Case(Role.INSPECT, malformed=LETTERS),
            ("GET", f"{HERE}/{kind}/{{number}}"): Case(
                Role.INSPECT,
                statuses=(404,),
                path=f"{HERE}/{kind}/7",
                malformed=({"path": f"{HERE}/{kind}/x"},),
            ),
            ("POST", f"{HERE}/{kind}/{{number}}/replay"): Case(
                Role.OPERATE, body(), (404,), WHY, path=f"{HERE}/{kind}/7/replay"
            ),
            ("POST", f"{HERE}/{kind}/replay"): Case(
                Role.OPERATE, body(confirm=True), (202,), (*WHY, body(ids=["x"]))
            ),
        }.items()
    },
    ("GET", f"{HERE}/plans"): Case(Role.READ, malformed=MOST),
    ("GET", f"{HERE}/plans/{{version}}"): Case(
        Role.INSPECT,
        statuses=(404,),
        path=f"{HERE}/plans/latest",
        malformed=(
            {"path": f"{HERE}/plans/x"},
            {"path": f"{HERE}/plans/{10**30}"},
            {"path": f"{HERE}/plans/{'9' * 5000}"},
        ),
    ),
    ("GET", f"{HERE}/plans/{{version}}/keys"): Case(
        Role.INSPECT, statuses=(404,), path=f"{HERE}/plans/1/keys", malformed=MOST
    ),
    ("GET", f"{HERE}/plans/{{version}}/keys/{{key}}"): Case(
        Role.INSPECT, statuses=(404,), path=f"{HERE}/plans/1/keys/5"
    ),
    ("GET", "/v1/nodes"): Case(Role.READ),
    ("GET", "/v1/slots"): Case(Role.READ),
    ("GET", "/v1/stats"): Case(Role.READ),
    ("GET", "/v1/stats/history"): Case(
        Role.READ,
        query(seconds=60, figure=["in", "lag"]),
        malformed=(query(seconds=1), query(step=0), query(service="\n")),
    ),
    ("GET", "/v1/events/live"): Case(Role.READ),
    ("GET", "/v1/audit"): Case(Role.READ),
    ("POST", "/v1/size"): Case(
        Role.READ,
        body(rate=1000, memory="64MiB"),
        (200,),
        (*BAD_BODIES, body(), body(rate=-1), body(rate=1, algorithms=["x"]), body(memory="much")),
    ),
    ("GET", "/v1/spark/jobs"): Case(Role.READ),
    ("GET", "/v1/spark/runs"): Case(Role.READ),
    ("GET", "/v1/spark/runs/{number}"): Case(
        Role.READ,
        statuses=(404,),
        path="/v1/spark/runs/5",
        malformed=({"path": "/v1/spark/runs/x"},),
    ),
    ("POST", "/v1/spark/jobs/{job}/start"): Case(
        Role.OPERATE,
        body(),
        (409,),
        (*WHY, {"json": {}, "path": "/v1/spark/jobs/nothing/start"}),
        path="/v1/spark/jobs/enrich/start",
    ),
    ("GET", "/v1/jobs"): Case(Role.READ, malformed=(*MOST, query(state="x"))),
    ("GET", "/v1/jobs/{number}"): Case(
        Role.READ,
        statuses=(404,),
        path="/v1/jobs/999999",
        malformed=({"path": "/v1/jobs/x"}, query(wait=31)),
    ),
    ("POST", "/v1/jobs/{number}/cancel"): Case(
        Role.OPERATE,
        statuses=(404,),
        path="/v1/jobs/999999/cancel",
        malformed=({"path": "/v1/jobs/-1/cancel"},),
    ),
    ("GET", "/v1/changes"): Case(Role.READ, malformed=(*MOST, query(since="x"))),
    ("GET", "/v1/tokens"): Case(Role.ADMIN),
    ("POST", "/v1/tokens"): Case(
        Role.ADMIN,
        body(name="someone", role="read"),
        (201,),
        (
            *BAD_BODIES,
            body(name="", role="read"),
            body(name="x", role="root"),
            body(name="x", role="read", expires_in_s=True),
        ),
    ),
    ("POST", "/v1/tokens/{number}/rotate"): Case(
        Role.ADMIN,
        body(keep_old_for_s=1),
        (404,),
        (*BAD_BODIES[:2], body(keep_old_for_s=-1)),
        path="/v1/tokens/999/rotate",
    ),
    ("DELETE", "/v1/tokens/{number}"): Case(
        Role.ADMIN, statuses=(404,), path="/v1/tokens/999", malformed=({"path": "/v1/tokens/x"},)
    ),
    ("GET", "/openapi.json"): Case(Role.READ),
    ("GET", "/docs"): Case(Role.READ),
    ("GET", "/docs/{file}"): Case(
        Role.READ,
        path="/docs/swagger-ui.css",
        malformed=({"path": "/docs/none.js"}, {"path": "/docs/..%2fapp.py"}),
    ),
}
NOT_DESCRIBED = {("GET", "/openapi.json"), ("GET", "/docs"), ("GET", "/docs/{file}")}
OPEN = {("GET", "/health"), ("GET", "/ready"), ("GET", "/metrics")}
PARAMETERS = [pytest.param(*key, id=" ".join(key)) for key in CASES]


@pytest.fixture(scope="module")
def control(stack, tmp_path_factory):
    with running_control(stack, tmp_path_factory.mktemp("control")) as running:
        yield running


def ask(control, role, method, path, options):
    """The status and the answer of a request; of a stream, no more than that it began."""
    options = dict(options)
    path = options.pop("path", path).replace("{name}", control.hub.name)
    with control.client(role) as client, client.stream(method, path, **options) as answer:
        if answer.headers["content-type"].startswith("text/event-stream"):
            return answer.status_code, None
        content = answer.read()
        if answer.status_code >= 400:
            assert answer.headers["content-type"] == "application/problem+json", content
            problem = json.loads(content)
            assert problem["status"] == answer.status_code
            assert problem["type"].startswith("urn:dovetail:problem:")
            assert problem["detail"]
        return answer.status_code, content


def test_every_endpoint_has_a_case(control):
    paths = described(control.app)["paths"]
    found = {(method.upper(), path) for path, methods in paths.items() for method in methods}
    assert found | NOT_DESCRIBED == CASES.keys() | OPEN


def test_the_reference_says_which_role_an_endpoint_needs(control):
    paths = described(control.app)["paths"]
    for (method, path), case in CASES.items():
        if (method, path) not in NOT_DESCRIBED:
            operation = paths[path][method.lower()]
            assert operation["security"] == [{"token": [str(case.role)]}, {}]
            assert operation["description"].endswith(f"Needs the role `{case.role}`.")
    for method, path in OPEN:
        assert paths[path][method.lower()]["security"] == []


def test_the_page_about_the_api_has_the_same_roles():
    told = {}
    for line in API_PAGE.read_text().splitlines():
        if cells := re.fullmatch(r"\| (.+?) \| (read|inspect|operate|send|admin) \|.*", line):
            verb = "GET"
            for word in re.findall(r"`([^`]+)`", cells[1]):
                verb, path = word.split() if " " in word else (verb, word)
                told[verb, re.sub(r"^P(?=/|$)", HERE, path)] = cells[2]
    meant = {
        (method, path.replace("{number}", "{id}")): str(case.role)
        for (method, path), case in CASES.items()
        if (method, path) not in NOT_DESCRIBED
    }
    assert told == meant


@pytest.mark.parametrize(("method", "path"), PARAMETERS)
def test_it_is_allowed_to_its_role(method, path, control):
    case = CASES[method, path]
    status, content = ask(control, case.role, method, case.path or path, case.allowed)
    if (method, path) == ("PUT", HERE):
        assert status == 422  # a document that is none: the good one is below
        return
    assert status in case.statuses, content


@pytest.mark.parametrize(("method", "path"), PARAMETERS)
def test_it_is_closed_to_those_below_and_to_strangers(method, path, control):
    case = CASES[method, path]
    assert ask(control, None, method, case.path or path, case.allowed)[0] == 401
    for below in (role for role in Role if not role.includes(case.role)):
        assert ask(control, below, method, case.path or path, case.allowed)[0] == 403
        changes = json.loads(ask(control, Role.READ, "GET", "/v1/changes?most=1", {})[1])
        assert (changes[0]["action"], changes[0]["by"]) == ("access.refused", named(below))


@pytest.mark.parametrize(
    ("method", "path", "options"),
    [
        pytest.param(*key, options, id=f"{' '.join(key)} {number}")
        for key, case in CASES.items()
        for number, options in enumerate(case.malformed)
    ],
)
def test_what_is_malformed_is_refused_with_the_reason(method, path, options, control):
    case = CASES[method, path]
    status, content = ask(control, case.role, method, case.path or path, options)
    assert status in ((404, 422) if "path" in options or "link" in str(options) else (422,)), (
        content
    )


def test_open_paths_need_no_token(control):
    for method, path in OPEN:
        assert ask(control, None, method, path, {})[0] in (200, 503)


def test_the_reference_comes_whole_from_here(control):
    with control.client(Role.READ) as client:
        page = client.get("/docs").text
        assert "http://" not in page
        assert "https://" not in page
        named = re.findall(r'(?:src|href)="(/docs/[^"]+)"', page)
        assert len(named) == 3
        for path in named:
            assert client.get(path).status_code == 200


def test_a_path_or_method_that_is_not_there_is_told_in_the_same_form(control):
    assert ask(control, Role.READ, "GET", "/v1/no-such", {})[0] == 404
    with control.client(Role.ADMIN) as client:
        answer = client.delete("/v1/me")
        assert answer.status_code == 405
        assert answer.headers["allow"] == "GET"
        assert answer.json()["type"] == "urn:dovetail:problem:method-not-allowed"
        assert client.post("/v1/size", content=b"x" * (2 << 20)).status_code == 413


def test_a_stored_pipeline_is_changed_listed_and_deleted(control):
    with control.client(Role.ADMIN) as client:
        document = DOCUMENT.replace("others", "third")
        made = client.post("/v1/pipelines", json={"document": document, "why": "new"}).json()
        assert (made["state"], made["here"], made["revision"]) == ("stopped", False, 1)
        assert client.post("/v1/pipelines", json={"document": document}).status_code == 409
        # Nothing of it is in flight: everything may change but the name.
        changed = client.put(
            "/v1/pipelines/third", json={"document": document + "slots: 2\n", "from_revision": 1}
        )
        assert (changed.status_code, changed.json()["changes"]) == (200, ["slots: 8 → 2"])
        stale = client.put("/v1/pipelines/third", json={"document": document, "from_revision": 1})
        assert (stale.status_code, stale.json()["type"]) == (409, "urn:dovetail:problem:conflict")
        patched = client.patch("/v1/pipelines/third", json={"settings": {"algorithm": "srj"}})
        assert patched.json()["revision"] == 3
        started = client.post("/v1/pipelines/third/start", json={})
        assert started.status_code == 409
        assert "make run" in started.json()["detail"]
        assert [one["revision"] for one in client.get("/v1/pipelines/third/revisions").json()] == [
            *(3, 2, 1)
        ]
        first = client.get("/v1/pipelines/third/revisions/1").json()
        assert first["document"] == document
        unsure = client.request("DELETE", "/v1/pipelines/third", json={})
        assert unsure.json()["type"] == "urn:dovetail:problem:confirmation-needed"
        gone = client.request("DELETE", "/v1/pipelines/third", json={"confirm": True})
        assert gone.status_code == 204
        assert client.get("/v1/pipelines/third").status_code == 404
        told = client.get("/v1/changes", params={"pipeline": "third"}).json()
        assert [one["action"] for one in told if not one["action"].startswith("access")] == [
            *("pipeline.delete", "pipeline.update", "pipeline.update", "pipeline.create")
        ]


def test_what_places_events_cannot_change_on_the_pipeline_that_runs_here(own_control):
    """On its own: a revision that another test has begun may be half told."""
    with own_control.client(Role.OPERATE) as client:
        path = f"/v1/pipelines/{own_control.hub.name}"
        document = client.get(path).json()["document"]
        refused = client.put(path, json={"document": document.replace("slots: 4", "slots: 8")})
        assert refused.status_code == 409
        assert refused.json()["type"] == "urn:dovetail:problem:setting-fixed"
        assert [one["field"] for one in refused.json()["problems"]] == ["slots"]
        same = client.put(path, json={"document": document})
        assert (same.status_code, same.json()["changes"], same.json()["job"]) == (200, [], None)


@pytest.fixture
def own_control(stack, tmp_path):
    with running_control(stack, tmp_path) as running:
        yield running


def test_a_revision_that_not_all_were_told_of_is_applied_when_it_is_sent_again(own_control):
    hub = own_control.hub
    change = {"settings": {"memory": "12MiB"}}

    def given_up(number):
        """The job waits for processes that are not there: end it, as if it had waited for long."""
        until(lambda: hub.jobs.find(number).text)
        hub.jobs.rows.end(number, "failed")

    with own_control.client(Role.OPERATE) as client:
        path = f"/v1/pipelines/{hub.name}"
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(hub.jobs.rows, "add", Mock(side_effect=Unavailable("it is away")))
            assert client.patch(path, json=change).status_code == 503
        begun = client.patch(path, json=change)
        assert (begun.status_code, begun.json()["revision"]) == (202, 2)
        given_up(begun.json()["job"]["id"])
        told = hub.commander.revisions()
        assert {told[name] for name in ("cache_phase", "disk_phase")} == {2}
        assert told["ingest"] == 1  # not one that the change leaves less memory
        again = client.patch(path, json=change)
        assert (again.status_code, again.json()["changes"]) == (202, [])
        given_up(again.json()["job"]["id"])
        hub.commander.order("a test", {name: Order("resume", 2) for name in told})
        assert client.patch(path, json=change).status_code == 200


def test_topics_are_deleted_that_nobody_else_reads_and_nobody_works_on(own_control, monkeypatch):
    hub = own_control.hub
    name, after = f"{hub.name}-a", f"{hub.name}-b"
    document = DOCUMENT.replace("others", name)
    further = DOCUMENT.replace("others", after).replace(
        "source: {", f"source: {{topic: {name}.enriched, "
    )
    topology = Topology(parse_pipeline(document.encode(), hub.file, {}))
    ensure_topics(hub.settings, topology.topics())
    deletion = {"json": {"confirm": True, "topics": True}}
    with own_control.client(Role.ADMIN) as client:
        for one in (document, further):
            assert client.post("/v1/pipelines", json={"document": one}).status_code == 201
        path = f"/v1/pipelines/{name}"
        group = {"group.id": topology.group("mapper"), "session.timeout.ms": 10_000}
        with closing(Consumer(hub.settings.client(group))) as working:
            working.subscribe([topology.clean.name])
            until(lambda: working.poll(0.1) or working.assignment())
            refused = client.request("DELETE", path, **deletion)
            assert (refused.status_code, "has members" in refused.text) == (409, True)
        away = Mock(side_effect=KafkaException(KafkaError(KafkaError._TRANSPORT, "it is away")))
        with monkeypatch.context() as patched:
            patched.setattr(pipelines, "admin_of", lambda _: Mock(list_topics=away))
            patched.setattr(pipelines, "_require_nobody_in", Mock())
            assert client.request("DELETE", path, **deletion).status_code == 503
        assert client.request("DELETE", path, **deletion).status_code == 204
        told = client.get("/v1/changes", params={"pipeline": name, "most": 1}).json()
        assert client.request("DELETE", f"/v1/pipelines/{after}", **deletion).status_code == 204
    gone = set(told[0]["detail"]["topics"])
    assert topology.clean.name in gone
    assert not gone & {topology.source.name, topology.enriched.name}
    kept = [topology.source.name, topology.enriched.name]
    admin = admin_of(hub.settings)
    for deleted in admin.delete_topics(kept).values():
        deleted.result(30)  # they were there


def until(holds):
    deadline = time.monotonic() + 30
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.1)


def test_many_who_wait_for_a_job_keep_nobody_from_health(control):
    rows = control.hub.jobs.rows
    job = rows.add("elsewhere", "replay", "a test", "")

    async def all_at_once():
        headers = {"Authorization": f"Bearer {control.tokens[Role.READ]}"}
        async with httpx.AsyncClient(base_url=control.url, headers=headers, timeout=60) as client:
            path = f"/v1/jobs/{job.id}?wait=30"
            waiting = [asyncio.create_task(client.get(path)) for _ in range(60)]
            for refused in islice(asyncio.as_completed(waiting), len(waiting) - MOST_WAITING):
                assert (await refused).status_code == 429
            for probe in ("/health", "/ready", f"/v1/jobs/{job.id}"):
                assert (await client.get(probe, timeout=2)).status_code in (200, 503)
            await asyncio.to_thread(rows.end, job.id, "done")
            return await asyncio.gather(*waiting)

    answers = asyncio.run(all_at_once())
    told = [one.json() for one in answers if one.status_code == 200]
    assert len(told) == MOST_WAITING
    assert {one["state"] for one in told} == {"done"}
    assert {one.status_code for one in answers} == {200, 429}


def test_tokens_are_made_rotated_and_revoked_without_a_restart(control):
    with control.client(Role.ADMIN) as admin, control.client() as other:

        def me(token):
            return other.get("/v1/me", headers={"Authorization": f"Bearer {token}"})

        made = admin.post("/v1/tokens", json={"name": "grafana", "role": "read"}).json()
        assert me(made["token"]).json() == {"name": "grafana", "role": "read", "local": False}
        kept = admin.post(f"/v1/tokens/{made['id']}/rotate", json={"keep_old_for_s": 60}).json()
        assert me(made["token"]).status_code == me(kept["token"]).status_code == 200
        new = admin.post(f"/v1/tokens/{made['id']}/rotate", json={}).json()
        assert (me(kept["token"]).status_code, me(new["token"]).status_code) == (401, 200)
        assert admin.delete(f"/v1/tokens/{made['id']}").status_code == 204
        assert me(new["token"]).status_code == 401
        short = admin.post("/v1/tokens", json={"name": "x", "role": "read", "expires_in_s": 1})
        assert me(short.json()["token"]).status_code == 200
        for name in ("pass", "environment"):
            refused = admin.post("/v1/tokens", json={"name": name, "role": "admin"})
            assert (refused.status_code, refused.json()["problems"][0]["field"]) == (
                *(422, "body.name"),
            )
        listed = admin.get("/v1/tokens").text
        for token in (made["token"], kept["token"], new["token"]):
            assert token not in listed


def test_the_conservation_sum_and_stats_are_there_without_any_service(control):
    with control.client(Role.READ) as client:
        assert client.get("/v1/audit").json()["problems"] == []
        stats = client.get("/v1/stats").json()
        assert stats["state"] == "stopped"
        assert stats["services"] == []
