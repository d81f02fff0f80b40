"""A pipeline in a secured stack: TLS, a user for each service, ACLs, SQL roles, tokens.

Each permission taken away in turn, and the service that then fails, are in test_permissions.py.
"""

from __future__ import annotations

import json
import subprocess
import urllib.error
import urllib.request

import psycopg
import pytest

from dovetail import roles
from dovetail.settings import with_password
from tests.e2e import shop
from tests.e2e.api import Api
from tests.e2e.secured import compile_kernels, database_of, secured_pipeline, secured_stack

ROUNDS = 2


@pytest.fixture(scope="module")
def secured(stack_environ):
    with secured_stack(stack_environ) as stack:
        compile_kernels(stack, shop.INT.spec("inner"))
        yield stack


@pytest.fixture
def database_name(secured):
    with database_of(secured) as name:
        yield name


def as_role(secured, role, database):
    """A connection with what a service has: the role's own password."""
    address = secured.database.address_for(role, database)
    return psycopg.connect(with_password(address, secured.security.password(role)))


def test_the_pipeline_gives_what_sql_gives_with_no_more_than_it_needs(secured, database_name):
    shape = shop.INT
    shape.fill(secured.database.url_of(database_name))
    with secured_pipeline(secured, database_name, shape.spec("inner"), "secure") as pipeline:
        with pipeline:
            good, bad = shape.good_events(), [b"no event", b"{}"]
            for _ in range(ROUNDS):
                pipeline.send([*good, *bad])
                final = pipeline.drain()
                assert not final.problems
            verdict = pipeline.verdict()
            assert verdict.differences == []
            assert verdict.outputs == verdict.expected > 0
            assert final.taken == ROUNDS * (len(good) + len(bad))
            assert final.dead_lettered == ROUNDS * len(bad)
            the_api_wants_a_token(pipeline, secured.security.token_file().read_text())
            no_secret_is_seen(secured, pipeline)
        roles_may_do_what_they_need_and_no_more(secured, database_name)


def the_api_wants_a_token(pipeline, token):
    for path in ("/v1/stats", "/v1/pipelines"):
        with pytest.raises(urllib.error.HTTPError) as refused:
            urllib.request.urlopen(f"{pipeline.url('control')}{path}", timeout=10)
        assert refused.value.code == 401
    # The token is in the control service's table, which ingest reads as another role.
    asked = urllib.request.Request(
        f"{pipeline.url('ingest')}/v1/events",
        json.dumps(shop.INT.event((1,))).encode(),
        {"Content-Type": "application/json"},
    )
    with pytest.raises(urllib.error.HTTPError) as refused:
        urllib.request.urlopen(asked, timeout=10)
    assert refused.value.code == 401
    asked.add_header("Authorization", f"Bearer {token}")
    with urllib.request.urlopen(asked, timeout=30) as answer:
        assert answer.status in {200, 202}
    api = Api(pipeline, token)
    assert api("GET", "/v1/stats")["pipeline"] == pipeline.spec.name


def no_secret_is_seen(secured, pipeline):
    """Neither in the list of processes nor in a log."""
    passwords = [file.read_text() for file in (secured.security.folder / "passwords").iterdir()] + [
        secured.security.token_file().read_text()
    ]
    assert len(passwords) > 8
    processes = subprocess.run(
        ["ps", "-eo", "args", "ww"], capture_output=True, text=True, check=True
    ).stdout
    logs = {file: file.read_text(errors="replace") for file in _logs(secured, pipeline)}
    assert len(logs) > 8
    for password in passwords:
        assert password not in processes
        assert [file for file, text in logs.items() if password in text] == []


def _logs(secured, pipeline):
    yield from secured.home.logs.glob("*.log")
    for name in pipeline.names():
        yield pipeline.service(name).process.log


def roles_may_do_what_they_need_and_no_more(secured, database):
    with as_role(secured, roles.READER, database) as connection:
        assert connection.info.pgconn.ssl_in_use
        assert connection.execute("SELECT count(*) > 0 FROM goods").fetchone() == (True,)
    denied = {
        roles.READER: [
            "UPDATE goods SET sku = ''",
            "DELETE FROM goods",
            "SELECT * FROM dovetail.tokens",
            "CREATE TABLE mine (id int)",
        ],
        roles.GATE: [
            "SELECT * FROM goods",
            "UPDATE dovetail.tokens SET role = 'admin'",
            "DELETE FROM dovetail.tokens",
            "SELECT * FROM dovetail.revisions",
        ],
        roles.CONTROL: ["SELECT * FROM goods", "CREATE TABLE public.mine (id int)"],
    }
    for role, statements in denied.items():
        for statement in statements:
            with (
                as_role(secured, role, database) as connection,
                pytest.raises(psycopg.errors.InsufficientPrivilege),
            ):
                connection.execute(statement)
