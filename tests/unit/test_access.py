"""Who may do what, and how often."""

from __future__ import annotations

import ast
import asyncio
import time
from pathlib import Path
from typing import get_args

import pytest
from fastapi import APIRouter, FastAPI
from fastapi.testclient import TestClient
from pydantic import ValidationError

from dovetail.errors import ConfigError, NotAllowedError, Unavailable
from services.access.gate import Gate, Rules
from services.access.limits import Limits
from services.access.roles import GRANTED, Role, Who, needs
from services.access.settings import AccessSettings
from services.access.tokens import digest_of, new_token
from services.control.app import note_refusals
from services.control.shapes import Me, NewToken, Token

ROLES = {f"{role}-token": Who(f"{role}", role, number) for number, role in enumerate(Role)}


LADDER = (Role.READ, Role.INSPECT, Role.OPERATE, Role.ADMIN)
MAY = {
    Role.READ: {*LADDER},
    Role.INSPECT: {*LADDER[1:]},
    Role.OPERATE: {*LADDER[2:]},
    Role.ADMIN: {Role.ADMIN},
    Role.SEND: {Role.SEND, Role.ADMIN},
    Role.PASS: {*LADDER[1:], Role.PASS},
}
"""Who may do what needs a role."""


class Known:
    def known(self, token):
        return None

    def find(self, token):
        if token == "away":
            raise Unavailable("the database is away")
        return ROLES.get(token)


def client(**rules):
    router = APIRouter()

    @router.get("/health")
    def health():
        return {}

    @router.get("/look")
    def look():
        return {}

    @router.get("/letters")
    @needs(Role.INSPECT)
    def letters():
        return {}

    @router.get("/cache")
    @needs(Role.PASS)
    def cache():
        return {}

    @router.post("/events")
    @needs(Role.SEND)
    def events(body: dict):
        return {}

    @router.post("/act")
    @needs(Role.OPERATE)
    async def act(body: dict):
        return body

    @router.delete("/unmarked")
    def unmarked():
        return {}

    within = APIRouter()

    @within.get("/within")
    def of_another_router():
        return {}

    router.include_router(within)
    app = FastAPI()
    app.include_router(router)
    app.add_middleware(Gate, known=Known(), rules=Rules(router.routes, **rules))
    return TestClient(app, base_url="http://127.0.0.1:18080")


def bearer(token):
    return {"Authorization": f"Bearer {token}"}


@pytest.mark.parametrize(
    ("method", "path", "least"),
    [
        ("GET", "/look", Role.READ),
        ("GET", "/letters", Role.INSPECT),
        ("GET", "/cache", Role.PASS),
        ("POST", "/events", Role.SEND),
        ("POST", "/act", Role.OPERATE),
        ("DELETE", "/unmarked", Role.ADMIN),
        ("GET", "/within", Role.ADMIN),  # which the gate cannot see through
    ],
)
def test_a_role_may_what_it_is_for_and_no_more(method, path, least):
    closed = client()
    for role in Role:
        answer = closed.request(method, path, headers=bearer(f"{role}-token"), json={})
        assert answer.status_code == (200 if role in MAY[least] else 403), role
        if answer.status_code == 403:
            assert answer.headers["content-type"] == "application/problem+json"
            asked_for = "inspect" if least is Role.PASS else least
            assert f"the role {asked_for} is needed" in answer.json()["detail"]


def test_nobody_is_given_a_pass():
    assert set(GRANTED) == set(Role) - {Role.PASS}
    for shape in (NewToken, Me, Token):
        assert set(get_args(shape.model_fields["role"].annotation)) == set(GRANTED)
    with pytest.raises(ValidationError):
        NewToken.model_validate({"name": "x", "role": "pass"})


def test_a_path_that_is_not_there_is_told_to_those_who_may_look_alone():
    closed = client()
    told = {role: closed.get("/none", headers=bearer(f"{role}-token")).status_code for role in Role}
    assert {role for role, status in told.items() if status == 403} == {Role.SEND, Role.PASS}
    assert set(told.values()) == {403, 404}


@pytest.mark.parametrize(
    "headers", [{}, bearer("nobody"), bearer(""), {"Authorization": "Basic x"}]
)
def test_without_a_good_token_all_but_health_is_closed(headers):
    closed = client()
    assert closed.get("/health", headers=headers).status_code == 200
    for path in ("/look", "/no-such-path"):
        answer = closed.get(path, headers=headers)
        assert answer.status_code == 401
        assert answer.headers["www-authenticate"] == "Bearer"


def test_a_database_that_is_away_is_told_as_such():
    answer = client().get("/look", headers=bearer("away"))
    assert answer.status_code == 503
    assert int(answer.headers["retry-after"]) >= 1


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 200),
        ({"host": "localhost:18080"}, 200),
        ({"host": "[::1]:18080"}, 200),
        ({"origin": "http://127.0.0.1:18080"}, 200),
        ({"host": "rebound.example:18080"}, 403),
        ({"origin": "http://evil.example"}, 403),
        ({"origin": "null"}, 403),
        ({"origin": "http://127.0.0.1:9999"}, 403),
        ({"host": "["}, 403),
        ({"host": ""}, 403),
        ({"origin": "http://["}, 403),
        (bearer("nobody"), 401),
    ],
)
def test_local_mode_is_open_to_this_machines_own_pages_alone(headers, status):
    assert client(local=True).get("/look", headers=headers).status_code == status


def test_a_body_is_bounded_whatever_its_length_is_said_to_be():
    small = client(local=True, most_body_bytes=100)
    assert small.post("/act", json={"a": "x" * 10}).json() == {"a": "x" * 10}
    assert small.post("/act", json={"a": "x" * 200}).status_code == 413

    def chunks():
        yield from (b"x" * 60 for _ in range(3))

    assert small.post("/act", content=chunks()).status_code == 413


def test_too_many_requests_are_told_when_to_come_again():
    busy = client(local=True, rate=5.0)
    answers = [busy.get("/look") for _ in range(30)]
    assert [one.status_code for one in answers[:20]] == [200] * 20
    late = [one for one in answers if one.status_code == 429]
    assert late
    assert all(int(one.headers["retry-after"]) >= 1 for one in late)


def test_those_who_are_refused_may_ask_less_often_but_do_not_lock_others_out():
    busy = client(rate=5.0)
    statuses = [busy.get("/look", headers=bearer("nobody")).status_code for _ in range(10)]
    assert statuses[0] == 401
    assert statuses[-1] == 429
    assert busy.get("/look", headers=bearer("read-token")).status_code == 200


def test_of_a_flood_without_a_role_only_what_the_bucket_gives_is_told_and_not_on_the_loop():
    told = []

    def refused(who, method, path):
        with pytest.raises(RuntimeError, match="no running event loop"):
            asyncio.get_running_loop()
        told.append((who.name, method, path))

    busy = client(rate=5.0, refused=refused)
    answers = [busy.post("/act", json={}, headers=bearer("read-token")) for _ in range(30)]
    statuses = [one.status_code for one in answers]
    assert set(statuses) == {403, 429}
    assert told == [("read", "POST", "/act")] * statuses.count(403)


def test_a_refusal_that_cannot_be_written_down_is_a_refusal_all_the_same(caplog):
    class Changes:
        def note(self, *_, **__):
            raise NotAllowedError("user control lacks INSERT on changes")

    note = note_refusals(Changes())
    note(ROLES["read-token"], "POST", "/act")
    assert "a refusal is not written down" in caplog.text


def test_however_many_tokens_nobody_knows_a_few_are_looked_up_at_once():
    most = now = 0

    class Slow(Known):
        def find(self, token):
            nonlocal most, now
            now += 1
            most = max(most, now)
            time.sleep(0.02)
            now -= 1
            return super().find(token)

    closed = Gate(FastAPI(), Slow(), Rules([]))

    async def ask(token):
        statuses = []

        async def send(message):
            statuses.append(message.get("status"))

        headers = [(b"authorization", b"Bearer " + token)]
        scope = {"type": "http", "method": "GET", "path": "/look", "headers": headers}
        await closed(scope, None, send)
        return statuses[0]

    async def flood():
        return await asyncio.gather(*(ask(b"nobody") for _ in range(100)), ask(b"away"))

    statuses = asyncio.run(flood())
    assert set(statuses[:-1]) == {401, 429}
    assert statuses[-1] == 503
    assert most < 10


def test_no_server_takes_an_address_from_a_header():
    root = Path(__file__).parents[2]
    files = [file for part in ("dovetail", "services") for file in (root / part).rglob("*.py")]
    started = [
        {keyword.arg: ast.unparse(keyword.value) for keyword in node.keywords}
        for file in files
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.Call)
        and ast.unparse(node.func) in ("uvicorn.run", "uvicorn.Config")
    ]
    assert len(started) >= 3
    assert all(one.get("proxy_headers") == "False" for one in started)


def test_a_bucket_fills_again():
    now = 0.0
    limits = Limits(2.0, 2.0, lambda: now)
    assert [limits.take("a"), limits.take("a")] == [0.0, 0.0]
    assert limits.take("a") == pytest.approx(0.5)
    assert limits.take("b") == 0.0
    now = 0.5
    assert limits.take("a") == 0.0


def test_local_mode_needs_a_loopback_address():
    local = {"DOVETAIL_LOCAL": "1"}
    assert AccessSettings.from_environment("127.0.0.1", local).local
    assert not AccessSettings.from_environment("0.0.0.0", local).local
    assert not AccessSettings.from_environment("127.0.0.1", {}).local


@pytest.mark.parametrize("rate", ["0", "000", "-1", "x", "0.5"])
def test_a_rate_by_which_nobody_could_ask_is_refused(rate):
    with pytest.raises(ConfigError, match="DOVETAIL_REQUESTS"):
        AccessSettings.from_environment("127.0.0.1", {"DOVETAIL_REQUESTS": rate})
    assert AccessSettings.from_environment("127.0.0.1", {"DOVETAIL_REQUESTS": "1"}).rate == 1


def test_the_first_token_comes_from_a_file_and_is_never_shown(tmp_path):
    file = tmp_path / "token"
    file.write_text("x" * 40 + "\n")
    read = AccessSettings.from_environment("0.0.0.0", {"DOVETAIL_ADMIN_TOKEN_FILE": str(file)})
    assert read.first_token == "x" * 40
    assert "xxx" not in repr(read)
    with pytest.raises(ConfigError, match="at least 32"):
        AccessSettings.from_environment("0.0.0.0", {"DOVETAIL_ADMIN_TOKEN": "short"})
    with pytest.raises(ConfigError, match="cannot be read"):
        AccessSettings.from_environment("0.0.0.0", {"DOVETAIL_ADMIN_TOKEN_FILE": "/no/such"})


def test_tokens_have_256_random_bits_and_are_kept_as_their_hash():
    one, other = new_token(), new_token()
    assert one != other
    assert len(one) >= 43
    assert len(digest_of(one)) == 32
