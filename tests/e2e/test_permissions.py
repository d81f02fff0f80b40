"""Each service with one permission taken away fails, and names the permission.

All of them as processes take minutes: `make test-secure`.
"""

from __future__ import annotations

import time

import psycopg
import pytest

from dovetail import roles
from dovetail.errors import NotAllowedError
from dovetail.permissions import Resource, permissions_of
from dovetail.settings import Settings
from dovetail.stream import acls
from dovetail.stream.topics import admin_of
from dovetail.topology import CONTROL
from tests.e2e import shop
from tests.e2e.api import Api
from tests.e2e.secured import compile_kernels, database_of, secured_pipeline, secured_stack

SERVICES = ("ingest", "mapper", "cache_phase", "disk_phase", CONTROL)
WITHIN_S = 120.0
EVENTS = [*shop.INT.good_events()[:20], b"no event"]


@pytest.fixture(scope="module")
def ran(stack_environ):
    """A pipeline of one node that has run, so that there is something to read back; stopped."""
    spec = {**shop.INT.spec("inner"), "nodes": 1}
    with secured_stack(stack_environ, "test-permissions") as stack, database_of(stack) as database:
        compile_kernels(stack, spec)
        shop.INT.fill(stack.database.url_of(database))
        with secured_pipeline(stack, database, spec, "permissions") as pipeline:
            with pipeline:
                pipeline.send(EVENTS)
                pipeline.drain()
            yield pipeline


@pytest.fixture
def admin(ran):
    return admin_of(ran.settings)


def process_of(pipeline, service):
    return next(one for one in pipeline._services.all if one.service == service)


def ended(pipeline, service):
    """Start one service alone; its exit code and its log, when it has ended by itself."""
    one = process_of(pipeline, service)
    one.start()
    try:
        deadline = time.monotonic() + WITHIN_S
        while one.process.exit_code() is None:
            assert time.monotonic() < deadline, f"{service} goes on: {one.process.log.read_text()}"
            time.sleep(0.1)
        return one.process.exit_code(), one.process.log.read_text()
    finally:
        one.process.stop()


def of_each_kind(permissions):
    """One of each operation on each kind of thing."""
    return list({(one.resource, one.operation): one for one in permissions}.values())


@pytest.mark.parametrize("service", SERVICES)
@pytest.mark.timeout(1800)
def test_a_service_without_one_of_its_permissions_ends_and_names_it(ran, admin, service):
    user = ran.admission.users[service]
    needed = permissions_of(ran.topology, service)
    if service == CONTROL:
        # Its transactional id is for replays: see below.
        needed = of_each_kind(
            one for one in needed if one.resource is not Resource.TRANSACTIONAL_ID
        )
    assert len(needed) > 4
    for permission in needed:
        acls.take(admin, user, [permission])
        try:
            code, log = ended(ran, service)
        finally:
            acls.give(admin, user, [permission])
        told = log.rstrip().splitlines()[-1]
        named = f"{permission.operation} on {permission.resource} {permission.name}"
        assert told.startswith(f"{service}: user {user} lacks the Kafka ACL"), (permission, log)
        assert named in told, (permission, told)
        assert f"--operation {permission.operation}" in told
        assert code == 2


@pytest.mark.parametrize("service", SERVICES)
def test_all_that_is_missing_on_topics_and_groups_is_named_at_once(ran, admin, service):
    user = ran.admission.users[service]
    settings = Settings.from_environment(
        {"KAFKA_BOOTSTRAP": ran.settings.bootstrap, **ran.admission(service)}
    )
    needed = permissions_of(ran.topology, service)
    acls.require(settings, needed)
    lost = [one for one in needed if one.resource is not Resource.TRANSACTIONAL_ID]
    acls.take(admin, user, lost)
    try:
        with pytest.raises(NotAllowedError) as refused:
            acls.require(settings, needed)
    finally:
        acls.give(admin, user, lost)
    assert [one for one in lost if str(one) not in str(refused.value)] == []


def test_a_permission_that_is_taken_while_a_service_runs_ends_it(ran, admin):
    user = ran.admission.users["mapper"]
    (permission,) = (
        one for one in permissions_of(ran.topology, "mapper") if one.name.endswith(".mapped")
    )
    ingest, mapper = (process_of(ran, service) for service in ("ingest", "mapper"))
    for one in (ingest, mapper):
        one.start()
    try:
        wait_until_ready(ran, "ingest", "mapper")
        acls.take(admin, user, [permission])
        ran.send(EVENTS)
        deadline = time.monotonic() + WITHIN_S
        while mapper.process.exit_code() is None:
            assert time.monotonic() < deadline, mapper.process.log.read_text()
            time.sleep(0.1)
        assert mapper.process.exit_code() == 2
        assert f"mapper: user {user} lacks the Kafka ACL {permission}" in (
            mapper.process.log.read_text()
        )
    finally:
        acls.give(admin, user, [permission])
        for one in (mapper, ingest):
            one.process.stop()


def test_a_replay_without_its_transactional_id_names_it(ran, admin):
    user = ran.admission.users[CONTROL]
    (permission,) = (
        one
        for one in permissions_of(ran.topology, CONTROL)
        if one.resource is Resource.TRANSACTIONAL_ID
    )
    control = process_of(ran, CONTROL)
    control.start()
    try:
        wait_until_ready(ran, CONTROL)
        api = Api(ran, ran.admission._security.token_file().read_text())
        letters = api("GET", "P/dead-letters")["letters"]
        acls.take(admin, user, [permission])
        answer = api("POST", f"P/dead-letters/{letters[0]['id']}/replay", status=409, json={})
        assert str(permission) in answer["detail"]
    finally:
        acls.give(admin, user, [permission])
        control.process.stop()


def wait_until_ready(pipeline, *services):
    deadline = time.monotonic() + WITHIN_S
    for service in services:
        while why := pipeline.not_ready_because(service):
            assert time.monotonic() < deadline, why
            time.sleep(0.2)


def test_a_missing_grant_on_the_table_is_named(ran):
    reader = roles.READER
    with psycopg.connect(ran.settings.database_url, autocommit=True) as connection:
        connection.execute(f"REVOKE SELECT ON goods FROM {reader}")
        try:
            code, log = ended(ran, "disk_phase")
        finally:
            connection.execute(f"GRANT SELECT ON goods TO {reader}")
    told = log.rstrip().splitlines()[-1]
    assert told.startswith("disk_phase: the database's user may not read 'goods'")
    assert "GRANT SELECT ON goods" in told
    assert code == 2


def test_control_without_its_schema_names_the_grant(ran):
    with psycopg.connect(ran.settings.database_url, autocommit=True) as connection:
        connection.execute(f"REVOKE ALL ON dovetail.tokens FROM {roles.CONTROL}")
        connection.execute("ALTER TABLE dovetail.tokens OWNER TO dovetail")
        try:
            code, log = ended(ran, CONTROL)
        finally:
            connection.execute(f"ALTER TABLE dovetail.tokens OWNER TO {roles.CONTROL}")
    told = log.rstrip().splitlines()[-1]
    assert "permission denied for table tokens" in told
    assert "GRANT" in told
    assert code == 2
