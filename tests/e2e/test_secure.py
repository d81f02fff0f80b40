"""A pipeline in a secured stack: TLS, a user for each service, ACLs, SQL roles, tokens.

Each permission taken away in turn, and the service that then fails, are in test_permissions.py.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import urllib.error
import urllib.request

import psycopg
import pytest

from deploy.local.certificates import ensure_certificates
from deploy.local.home import CHECKOUT
from deploy.local.security import SUPER_USER
from dovetail import roles
from dovetail.errors import NotAllowedError, Unavailable
from dovetail.permissions import Operation, Permission, Resource
from dovetail.pipeline.check import require_master
from dovetail.pipeline.load import load_pipeline
from dovetail.settings import Settings, with_password
from dovetail.stream import acls
from dovetail.stream.topics import admin_of, ensure_topics
from dovetail.topology import Topic
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


# --- strangers


def settings_of(secured, **changed):
    """Of the stack's own user, with something changed."""
    environment = {
        "KAFKA_BOOTSTRAP": secured.bootstrap,
        **secured.security.kafka_environment(SUPER_USER),
        **changed,
    }
    return Settings.of_kafka(environment)


def written(file, text):
    file.write_text(text)
    return str(file)


def test_a_wrong_password_is_told_at_once_and_not_shown(secured, tmp_path):
    wrong = written(tmp_path / "password", "not-the-password")
    settings = settings_of(secured, KAFKA_SASL_PASSWORD_FILE=wrong)
    with pytest.raises(NotAllowedError, match=r"(?i)authentication failed") as refused:
        ensure_topics(settings, [])
    assert f"user {SUPER_USER}" in str(refused.value)
    assert "KAFKA_SASL_PASSWORD_FILE" in str(refused.value)
    assert "not-the-password" not in str(refused.value)


def test_a_broker_by_another_authority_is_not_believed(secured, tmp_path):
    other = ensure_certificates(tmp_path).authority
    settings = settings_of(secured, KAFKA_SSL_CA_LOCATION=str(other))
    with pytest.raises(NotAllowedError, match="certificate verify failed") as refused:
        ensure_topics(settings, [])
    assert "KAFKA_SSL_CA_LOCATION" in str(refused.value)


def test_who_does_not_speak_tls_is_not_let_in(secured):
    with pytest.raises(Unavailable, match="no Kafka broker answers"):
        ensure_topics(Settings(secured.bootstrap, "", None), [])


def test_a_database_by_another_authority_is_not_believed(secured, tmp_path):
    other = ensure_certificates(tmp_path).authority
    ours = str(secured.security.certificates.authority)
    url = secured.database_url.replace(ours, str(other))
    assert url != secured.database_url
    pipeline = load_pipeline(CHECKOUT / "pipeline.yaml", {})
    with pytest.raises(Unavailable, match="certificate verify failed") as refused:
        require_master(pipeline, url)
    assert (secured.home.data / "postgres.password").read_text() not in str(refused.value)


def test_a_database_by_another_name_is_not_believed(secured, tmp_path):
    # The certificate is for 127.0.0.1 and localhost; this is the same machine.
    url = secured.database_url.replace("@127.0.0.1", "@elsewhere.invalid")
    url += "&hostaddr=127.0.0.1"
    pipeline = load_pipeline(CHECKOUT / "pipeline.yaml", {})
    with pytest.raises(Unavailable, match=r"elsewhere\.invalid"):
        require_master(pipeline, url)


def test_a_database_takes_nobody_without_tls(secured):
    url = secured.database_url.partition("?")[0] + "?sslmode=disable"
    with pytest.raises(psycopg.OperationalError, match="no encryption"):
        psycopg.connect(url)


def test_a_bearer_of_a_token_is_who_it_says(secured):
    """By unsigned tokens, the only ones that broker and client make by themselves."""
    settings = settings_of(
        secured,
        KAFKA_SASL_MECHANISM="OAUTHBEARER",
        KAFKA_ENABLE_SASL_OAUTHBEARER_UNSECURE_JWT="true",
        KAFKA_SASL_OAUTHBEARER_CONFIG="principal=ann",
    )
    topics = [Topic(f"of-{name}", 1) for name in ("ann", "bob")]
    ensure_topics(settings_of(secured), topics)
    admin = admin_of(settings_of(secured))
    acls.give(admin, "ann", [Permission(Resource.TOPIC, "of-ann", Operation.WRITE)])
    ensure_topics(settings, topics[:1])
    with pytest.raises(NotAllowedError, match="DESCRIBE on topic of-bob"):
        ensure_topics(settings, topics)


def test_a_service_with_a_wrong_password_ends_and_says_so(secured, tmp_path):
    wrong = written(tmp_path / "password", "not-the-password")
    ended = subprocess.run(
        [sys.executable, "-m", "services.mapper.main"],
        cwd=CHECKOUT,
        env={
            **os.environ,
            "KAFKA_BOOTSTRAP": secured.bootstrap,
            "DATABASE_URL": "postgresql://nobody@nowhere/none",
            **secured.security.kafka_environment(SUPER_USER),
            "KAFKA_SASL_PASSWORD_FILE": wrong,
        },
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert ended.returncode == 2
    assert "mapper: the Kafka broker at" in ended.stderr
    assert "not-the-password" not in ended.stdout + ended.stderr
