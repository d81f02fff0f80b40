from __future__ import annotations

from pathlib import Path

import pytest

from dovetail.permissions import (
    GENERATOR,
    Operation,
    Permission,
    Resource,
    not_allowed,
    permissions_of,
    users,
)
from dovetail.pipeline.load import load_pipeline
from dovetail.pipeline.shape import Engine, Layout
from dovetail.roles import GATE, READER, gate_grants, lacks, script
from dovetail.topology import (
    BACKFILL,
    CONTROL,
    CONTROL_TOPIC,
    ENRICH,
    NODE,
    STATS_TOPIC,
    Topology,
)

ROOT = Path(__file__).parents[2]
SALES = Topology(load_pipeline(ROOT / "pipeline.yaml", {}))


CHAIN = """
name: chain
source: {fields: {id: int, shop: int}}
key: id
master: {table: goods, key: id, columns: [vendor]}
join: left
then:
  - key: shop
    master: {table: shops, key: id, columns: [city]}
    join: left
"""


def topics(service, operation, topology=SALES):
    return {
        one.name
        for one in permissions_of(topology, service)
        if one.resource is Resource.TOPIC and one.operation is operation
    }


def test_a_stage_reads_its_topic_and_writes_its_own_and_nothing_else():
    for stage in SALES.stages:
        written = topics(stage.service, Operation.WRITE) - {STATS_TOPIC}
        own = {topic.name for topic in stage.writes}
        beside = {SALES.source.name, SALES.requests.name} if stage.service == "ingest" else set()
        assert written == own | beside
        read = topics(stage.service, Operation.READ)
        assert stage.reads.name in read
        assert read <= {
            stage.reads.name,
            CONTROL_TOPIC,
            SALES.requests.name,
            SALES.migrations.name,
            SALES.progress.name,
        }


def test_nobody_but_control_creates_and_backfill_deletes_its_own():
    for service in users(SALES):
        if service != CONTROL:
            assert not topics(service, Operation.CREATE)
        if service not in (CONTROL, BACKFILL):
            assert not topics(service, Operation.DELETE)
    assert topics(BACKFILL, Operation.DELETE) == {SALES.still_unmatched.name}
    assert topics(CONTROL, Operation.CREATE) == {topic.name for topic in SALES.topics()}
    assert topics(CONTROL, Operation.DELETE) == {
        SALES.clean.name,
        SALES.mapped.name,
        SALES.missed.name,
    }


def test_nobody_but_control_gives_orders_and_few_write_the_output():
    assert [one for one in users(SALES) if CONTROL_TOPIC in topics(one, Operation.WRITE)] == [
        CONTROL
    ]
    assert [one for one in users(SALES) if SALES.enriched.name in topics(one, Operation.WRITE)] == [
        "cache_phase",
        "disk_phase",
        BACKFILL,
    ]


def test_the_generator_writes_the_source_and_no_more():
    assert permissions_of(SALES, GENERATOR) == (
        Permission(Resource.TOPIC, SALES.source.name, Operation.WRITE),
    )


def test_nothing_is_listed_that_another_permission_implies():
    for service in users(SALES):
        listed = set(permissions_of(SALES, service))
        for one in listed:
            if one.operation is Operation.READ:
                described = Permission(one.resource, one.name, Operation.DESCRIBE, one.prefixed)
                assert described not in listed


def test_each_service_is_a_user_of_its_own():
    named = users(SALES)
    assert len(set(named.values())) == len(named)
    assert named["mapper"] == "dovetail.sales.mapper"


def test_where_spark_runs_the_pipeline_it_is_one_user_instead_of_the_stages():
    on_spark = Topology(SALES.pipeline.model_copy(update={"engine": Engine.SPARK}))
    stages = {stage.service for stage in SALES.stages}
    assert set(users(on_spark)) == (set(users(SALES)) - stages) | {ENRICH}
    ids = Permission(Resource.TRANSACTIONAL_ID, "dovetail.sales.ingest.", Operation.WRITE, True)
    assert ids in permissions_of(on_spark, ENRICH), "it ends what ingest had under way"
    of_stages = {topic.name for stage in SALES.stages for topic in stage.writes}
    assert topics(ENRICH, Operation.WRITE, on_spark) & of_stages == {
        topic.name
        for topic in (SALES.enriched, SALES.unmatched, SALES.parked, SALES.dead_letter, SALES.shed)
    }


def test_a_fused_node_is_one_user_instead_of_the_stages():
    fused = Topology(SALES.pipeline.model_copy(update={"layout": Layout.FUSED, "nodes": 1}))
    stages = {stage.service for stage in SALES.stages}
    assert set(users(fused)) == (set(users(SALES)) - stages) | {NODE}
    mine = permissions_of(fused, NODE)
    group, ids = "dovetail.sales.ingest", "dovetail.sales.ingest."
    assert Permission(Resource.GROUP, group, Operation.READ) in mine, "it goes on where ingest was"
    assert Permission(Resource.TRANSACTIONAL_ID, ids, Operation.WRITE, True) in mine
    for service in ("mapper", "cache_phase", "disk_phase"):
        look = Permission(Resource.GROUP, f"dovetail.sales.{service}", Operation.DESCRIBE)
        assert look in mine, "it starts when they have answered everything"
    assert topics(NODE, Operation.READ, fused) == {
        *(fused.source.name, fused.requests.name, fused.migrations.name),
        *(fused.source_progress.name, fused.backfill.name, CONTROL_TOPIC),
    }
    written = {topic.name for topic in fused.stage(NODE).writes}
    assert topics(NODE, Operation.WRITE, fused) == {
        *(*written, STATS_TOPIC, fused.source.name, fused.requests.name)
    }


def test_of_several_fused_nodes_each_maps_and_joins_as_the_same_user():
    fused = Topology(SALES.pipeline.model_copy(update={"layout": Layout.FUSED, "nodes": 2}))
    assert NODE in users(fused)
    mine = permissions_of(fused, NODE)
    for keeper in ("ingest", "cache_phase"):
        group = f"dovetail.sales.{keeper}"
        assert Permission(Resource.GROUP, group, Operation.READ) in mine
        ids = Permission(Resource.TRANSACTIONAL_ID, f"{group}.", Operation.WRITE, prefixed=True)
        assert ids in mine
    written = {topic.name for stage in fused.stages for topic in stage.writes}
    assert topics(NODE, Operation.WRITE, fused) == {
        *(*written, STATS_TOPIC, fused.source.name, fused.requests.name)
    }
    assert topics(NODE, Operation.READ, fused) >= {stage.reads.name for stage in fused.stages}


def test_of_a_fused_chain_only_the_first_tables_node_takes_events(tmp_path):
    file = tmp_path / "chain.yaml"
    file.write_text(CHAIN)
    fused = Topology(load_pipeline(file, {"DOVETAIL_LAYOUT": "fused"}))
    assert fused.source.name in topics(NODE, Operation.WRITE, fused), "by HTTP"
    second = permissions_of(fused, "node.2")
    assert fused.source.name not in {
        one.name for one in second if one.operation in (Operation.READ, Operation.WRITE)
    }
    assert fused.links[1].mapped.name in topics("node.2", Operation.READ, fused)


def test_control_purges_what_the_split_layout_has_left_to_a_node():
    fused = Topology(SALES.pipeline.model_copy(update={"layout": Layout.FUSED, "nodes": 1}))
    deleted = topics(CONTROL, Operation.DELETE, fused)
    assert deleted == topics(CONTROL, Operation.DELETE)
    assert SALES.clean.name in deleted


def test_a_chain_has_no_backfill(tmp_path):
    file = tmp_path / "chain.yaml"
    file.write_text(CHAIN)
    assert BACKFILL not in users(Topology(load_pipeline(file, {})))


def test_a_link_of_a_chain_has_its_own_topics(tmp_path):
    file = tmp_path / "chain.yaml"
    file.write_text(CHAIN)
    chain = Topology(load_pipeline(file, {}))
    second = permissions_of(chain, "disk_phase.2")
    read = {one.name for one in second if one.operation is Operation.READ}
    assert chain.links[1].missed.name in read
    assert chain.links[0].missed.name not in read
    assert chain.links[1].mapped.name in topics("disk_phase", Operation.WRITE, chain)


def test_what_is_missing_is_named_with_user_and_cure():
    text = str(not_allowed("ann", [Permission(Resource.GROUP, "sales.", Operation.DESCRIBE, True)]))
    assert "user ann lacks the Kafka ACL DESCRIBE on group sales.*" in text
    assert "--allow-principal 'User:ann' --operation DESCRIBE --group 'sales.'" in text
    assert "--resource-pattern-type prefixed" in text


def test_the_reader_may_select_from_the_master_table_alone():
    grants = [line for line in script(SALES.pipeline).splitlines() if line.startswith("GRANT")]
    assert [line for line in grants if f"TO {READER}" in line] == grants
    assert all("SELECT ON TABLE" in line or "USAGE ON SCHEMA" in line for line in grants)
    assert all(f"TO {GATE}" in line for line in gate_grants())


@pytest.mark.parametrize(
    ("told", "statement", "grant"),
    [
        ("table tokens", "SELECT 1 FROM dovetail.tokens", "SELECT ON TABLE dovetail.tokens"),
        ("table tokens", "UPDATE dovetail.tokens SET …", "UPDATE ON TABLE dovetail.tokens"),
        ("table tokens", "", "SELECT ON TABLE dovetail.tokens"),
        ("schema dovetail", "SELECT 1 FROM dovetail.tokens", "USAGE ON SCHEMA dovetail"),
        ("schema dovetail", "CREATE TABLE dovetail.jobs ()", "CREATE ON SCHEMA dovetail"),
    ],
)
def test_a_denial_of_postgresql_names_the_grant(told, statement, grant):
    told = f"permission denied for {told}"
    assert f"GRANT {grant} TO ann" in str(lacks("ann", told, statement=statement))


def test_the_table_in_the_docs_is_what_is_derived():
    written = (ROOT / "docs" / "security.md").read_text()
    for service, user in users(SALES).items():
        for one in permissions_of(SALES, service):
            pattern = f"{one.name}*" if one.prefixed else one.name
            row = f"| `{service}` | {one.operation} | {one.resource} | `{pattern}` |"
            assert row in written, f"docs/security.md lacks: {row} (user {user})"
    rows = [line for line in written.splitlines() if line.startswith("| `") and " | `" in line]
    listed = sum(len(permissions_of(SALES, service)) for service in users(SALES))
    acl_rows = [line for line in rows if any(f"| {one} |" in line for one in Operation)]
    assert len(acl_rows) == listed
