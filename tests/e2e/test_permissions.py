"""Each service with one permission taken away fails, and names the permission.

All of them as processes take minutes: `make test-secure`.
"""

from __future__ import annotations

import json
import time
import urllib.error
import urllib.request
from contextlib import contextmanager

import psycopg
import pytest

from dovetail import roles
from dovetail.errors import NotAllowedError
from dovetail.permissions import FREQUENCY, Resource, permissions_of, writes
from dovetail.settings import Settings
from dovetail.stream import acls
from dovetail.stream.topics import admin_of
from dovetail.topology import BACKFILL, CONTROL
from tests.e2e import shop
from tests.e2e.api import Api
from tests.e2e.secured import database_of, secured_pipeline

JOBS = (FREQUENCY, BACKFILL)
SERVICES = ("ingest", "mapper", "cache_phase", "disk_phase", CONTROL)
WITHIN_S = 120.0
EVENTS = [*shop.INT.good_events()[:20], b"no event"]


@pytest.fixture(scope="module")
def ran(secured):
    """A pipeline of one node that has run, so that there is something to read back; stopped.

    It may shed, for which the mapper needs more.
    """
    overload = {"shed": "auto", "when_behind": "1h"}
    spec = {**shop.INT.spec("inner"), "nodes": 1, "overload": overload}
    with database_of(secured.stack) as database:
        shop.INT.fill(secured.stack.database.url_of(database))
        with secured_pipeline(secured.stack, database, spec, "permissions") as pipeline:
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


@pytest.mark.parametrize("service", [*SERVICES, *JOBS])
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


@pytest.mark.parametrize("service", [*SERVICES, *JOBS])
@pytest.mark.timeout(600)
def test_each_permission_on_topics_and_groups_is_missed_by_its_name(ran, admin, service):
    user = ran.admission.users[service]
    settings = Settings.from_environment(
        {"KAFKA_BOOTSTRAP": ran.settings.bootstrap, **ran.admission(service)}
    )
    needed = permissions_of(ran.topology, service)
    for permission in needed:
        if permission.resource is Resource.TRANSACTIONAL_ID:
            continue
        acls.take(admin, user, [permission])
        try:
            with pytest.raises(NotAllowedError) as refused:
                acls.require(settings, needed)
        finally:
            acls.give(admin, user, [permission])
        # Where it was what let a topic be seen at all, others on it are named as well.
        assert f"user {user} lacks the Kafka ACL" in str(refused.value)
        assert str(permission) in str(refused.value)


def test_a_permission_that_is_taken_while_a_service_runs_ends_it(ran, admin):
    user = ran.admission.users["mapper"]
    permission = writes(ran.topology.mapped.name)
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
        # By whichever of its threads comes first: one writes there, one looks how far others are.
        told = mapper.process.log.read_text().rstrip().splitlines()[-1]
        assert told.startswith(f"mapper: user {user} lacks the Kafka ACL")
        assert f"on topic {permission.name}" in told
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


@contextmanager
def revoked(pipeline, right, role):
    with psycopg.connect(pipeline.settings.database_url, autocommit=True) as connection:
        connection.execute(f"REVOKE {right} FROM {role}")
        try:
            yield
        finally:
            connection.execute(f"GRANT {right} TO {role}")


def test_a_disk_phase_that_may_not_read_the_table_ends_and_names_the_grant(ran):
    with revoked(ran, "SELECT ON goods", roles.READER):
        code, log = ended(ran, "disk_phase")
    told = log.rstrip().splitlines()[-1]
    assert told.startswith("disk_phase: the database's user may not read 'goods'")
    assert "GRANT SELECT ON goods" in told
    assert code == 2


def test_a_mapper_that_may_not_count_the_table_ends_and_names_the_grant(ran):
    with revoked(ran, "SELECT ON goods", roles.READER):
        code, log = ended(ran, "mapper")
    told = log.rstrip().splitlines()[-1]
    assert told.startswith(f"mapper: role {roles.READER} lacks a permission in PostgreSQL")
    assert f"GRANT SELECT ON goods TO {roles.READER}" in told
    assert code == 2


@pytest.mark.parametrize(
    "right",
    [
        "USAGE ON SCHEMA dovetail",
        "SELECT ON TABLE dovetail.tokens",
        "UPDATE (last_used_at) ON TABLE dovetail.tokens",
    ],
)
def test_an_ingest_that_may_not_look_at_tokens_lets_nobody_in_and_names_the_grant(ran, right):
    token = ran.admission._security.token_file().read_text()
    ingest = process_of(ran, "ingest")
    with revoked(ran, right, roles.GATE):
        ingest.start()
        try:
            wait_until_ready(ran, "ingest")
            asked = urllib.request.Request(
                f"{ran.url('ingest')}/v1/events",
                json.dumps(shop.INT.event((1,))).encode(),
                {"Content-Type": "application/json", "Authorization": f"Bearer {token}"},
            )
            with pytest.raises(urllib.error.HTTPError) as refused:
                urllib.request.urlopen(asked, timeout=30)
            assert refused.value.code == 503
            assert "a permission is missing" in refused.value.read().decode()
            log = ingest.process.log.read_text()
        finally:
            ingest.process.stop()
    verb, _, place = right.partition(" ON ")
    assert f"GRANT {verb.split()[0]} ON {place} TO {roles.GATE}" in log


@pytest.mark.parametrize("table", ["tokens", "revisions", "jobs"])
def test_control_without_one_of_its_tables_ends_and_names_the_grant(ran, table):
    with psycopg.connect(ran.settings.database_url, autocommit=True) as connection:
        connection.execute(f"ALTER TABLE dovetail.{table} OWNER TO dovetail")
        connection.execute(f"REVOKE ALL ON dovetail.{table} FROM {roles.CONTROL}")
        try:
            code, log = ended(ran, CONTROL)
        finally:
            connection.execute(f"ALTER TABLE dovetail.{table} OWNER TO {roles.CONTROL}")
    told = log.rstrip().splitlines()[-1]
    assert f"permission denied for table {table}" in told
    assert f"ON TABLE dovetail.{table} TO {roles.CONTROL}" in told
    assert code == 2


def test_control_without_its_schema_ends_and_names_the_grant(ran):
    with psycopg.connect(ran.settings.database_url, autocommit=True) as connection:
        connection.execute("ALTER SCHEMA dovetail OWNER TO dovetail")
        connection.execute(f"REVOKE ALL ON SCHEMA dovetail FROM {roles.CONTROL}")
        try:
            code, log = ended(ran, CONTROL)
        finally:
            connection.execute(f"ALTER SCHEMA dovetail OWNER TO {roles.CONTROL}")
    told = log.rstrip().splitlines()[-1]
    assert f"GRANT CREATE ON SCHEMA dovetail TO {roles.CONTROL}" in told
    assert code == 2
