"""A pipeline in a secured stack: TLS, a user for each service, ACLs, SQL roles, tokens.

Who is not let in is in test_secure_strangers.py; each permission taken away in turn, and the
service that then fails, in test_permissions.py.
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
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    ResourcePatternType,
    ResourceType,
)

from deploy.local.home import CHECKOUT
from deploy.local.security import SUPER_USER
from dovetail import roles
from dovetail.permissions import Operation, Permission, Resource, permissions_of, users
from dovetail.pipeline.load import load_pipeline
from dovetail.settings import with_password
from dovetail.stream import acls
from dovetail.stream.topics import admin_of
from dovetail.topology import Topology
from tests.e2e import shop, test_chain, test_shedding
from tests.e2e.api import Api
from tests.e2e.secured import compile_kernels, secured_pipeline, settings_of

ROUNDS = 2


def as_role(secured, role, database):
    """A connection with what a service has: the role's own password."""
    address = secured.stack.database.address_for(role, database)
    return psycopg.connect(with_password(address, secured.security.password(role)))


def test_the_pipeline_gives_what_sql_gives_with_no_more_than_it_needs(secured, database_name):
    shape = shop.INT
    shape.fill(secured.stack.database.url_of(database_name))
    with secured_pipeline(secured.stack, database_name, shape.spec("inner"), "secure") as pipeline:
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
    yield from secured.stack.home.logs.glob("*.log")
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


def answers_as_sql_does(pipeline, events):
    pipeline.send(events)
    final = pipeline.drain()
    assert not final.problems
    verdict = pipeline.verdict()
    assert verdict.differences == []
    assert final.outputs == verdict.outputs == verdict.expected > 0


@pytest.mark.timeout(600)
def test_a_chain_needs_no_more_than_is_derived(secured, database_name):
    test_chain.fill(secured.stack.database.url_of(database_name))
    spec = {**test_chain.CHAIN, "nodes": 1}
    compile_kernels(secured.stack, spec)
    chain = secured_pipeline(secured.stack, database_name, spec, "secure-chain")
    with chain as pipeline, pipeline:
        answers_as_sql_does(pipeline, test_chain.sales(test_chain.EVENTS, 1))


@pytest.mark.timeout(600)
def test_an_overload_needs_no_more_than_is_derived(secured, database_name):
    url = secured.stack.database.url_of(database_name)
    test_shedding.fill(url)
    spec = {**test_shedding.SPEC, "overload": {"shed": "auto", "when_behind": "5s"}}
    overloaded = secured_pipeline(secured.stack, database_name, spec, "secure-overload")
    with overloaded as pipeline, pipeline:
        sales = test_shedding.Sales(pipeline)
        held_up = test_shedding.HeldUp(pipeline, url)
        sales.flow_until(
            lambda seen: seen.hits and pipeline.figures("mapper")["service_rate"],
            "both phases answer",
        )
        held_up.begin()
        sales.flow_until(lambda seen: seen.shed > 0, "events are shed")
        held_up.end()
        final = pipeline.drain()
        assert final.problems == []
        verdict = pipeline.verdict()
        assert verdict.differences == []
        assert (verdict.events, verdict.shed) == (sales.sent, final.shed)
        assert verdict.outputs == verdict.expected == final.outputs > 0


# --- dovetail permissions --apply


def apply(secured, file):
    """What the command says that it has given and taken, by user."""
    ended = subprocess.run(
        [sys.executable, "-m", "dovetail.cli", "permissions", str(file), "--apply", "--json"],
        cwd=CHECKOUT,
        env={
            **os.environ,
            "KAFKA_BOOTSTRAP": secured.stack.bootstrap,
            **secured.security.kafka_environment(SUPER_USER),
        },
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert ended.returncode == 0, ended.stderr
    return json.loads(ended.stdout)


def allowed(user, resource, name, operation, host="*", permission=AclPermissionType.ALLOW):
    return AclBinding(
        resource, name, ResourcePatternType.LITERAL, f"User:{user}", host, operation, permission
    )


def test_permissions_are_applied_once_and_what_is_foreign_stays(secured):
    file = CHECKOUT / "pipeline.yaml"
    topology = Topology(load_pipeline(file, {}))
    mapper, mapped = users(topology)["mapper"], topology.mapped.name
    foreign = [
        allowed("ann", ResourceType.TOPIC, mapped, AclOperation.READ),
        allowed(mapper, ResourceType.TOPIC, mapped, AclOperation.WRITE, host="192.0.2.1"),
        allowed(
            mapper,
            ResourceType.TOPIC,
            topology.enriched.name,
            AclOperation.READ,
            permission=AclPermissionType.DENY,
        ),
        allowed(mapper, ResourceType.BROKER, "kafka-cluster", AclOperation.DESCRIBE),
    ]
    admin = admin_of(settings_of(secured))
    for done in admin.create_acls(foreign).values():
        done.result(30)

    first = apply(secured, file)
    assert {user: set(told["given"]) for user, told in first.items()} == {
        user: set(map(str, permissions_of(topology, service)))
        for service, user in users(topology).items()
    }
    nothing = {"given": [], "taken": []}
    assert set(map(str, apply(secured, file).values())) == {str(nothing)}

    too_much = Permission(Resource.TOPIC, topology.enriched.name, Operation.READ)
    acls.give(admin, mapper, [too_much])
    changed = {user: told for user, told in apply(secured, file).items() if told != nothing}
    assert changed == {mapper: {"given": [], "taken": [str(too_much)]}}

    everything = AclBindingFilter(
        ResourceType.ANY,
        None,
        ResourcePatternType.ANY,
        None,
        None,
        AclOperation.ANY,
        AclPermissionType.ANY,
    )
    left = admin.describe_acls(everything).result(30)
    assert [one for one in foreign if one not in left] == []
