"""One event enriched from several tables in turn gives what SQL's joins in turn give."""

from __future__ import annotations

import json
import random

import psycopg
import pytest

PRODUCTS, VENDORS, EVENTS = 60, 7, 1_500
SQL = """
CREATE TABLE products (id bigint, product text, vendor_id int);
INSERT INTO products SELECT i, 'p' || i, CASE WHEN i % 5 > 0 THEN i % 9 END
  FROM generate_series(1, 60) i;
INSERT INTO products SELECT i, 'again ' || i, i % 3 FROM generate_series(1, 60, 4) i;
CREATE INDEX ON products (id);
CREATE TABLE customers (code text PRIMARY KEY, segment text);
INSERT INTO customers SELECT 'c-' || i, 'segment ' || i % 4 FROM generate_series(1, 30) i;
INSERT INTO customers VALUES ('größe "X"', 'escaped'), ('', 'empty');
CREATE TABLE vendors (id int PRIMARY KEY, region text);
INSERT INTO vendors SELECT i, (ARRAY['north', 'süd', NULL])[1 + i % 3]
  FROM generate_series(1, 7) i;
CREATE TABLE closed (region text, shop int);
INSERT INTO closed VALUES ('north', 1), ('north', 3), ('süd', 2), ('süd', 2), (NULL, 1);
CREATE INDEX ON closed (region, shop);
"""
CHAIN = {
    "source": {
        "partitions": 2,
        "fields": {"sale": "int", "product": "int", "buyer.code": "text?", "shop": "int?"},
    },
    "key": "product",
    "master": {"table": "products", "key": "id", "columns": {"product": "name", "vendor_id": "by"}},
    "join": "inner",
    "memory": "8MiB",
    "nodes": 2,
    "slots": 4,
    "then": [
        {
            "key": "buyer.code",
            "master": {"table": "customers", "columns": ["segment"]},
            "join": "left",
            "algorithm": "srj",
            "memory": "8MiB",
        },
        {
            "key": "by",
            "fields": {"by": "int"},
            "master": {"table": "vendors", "key": "id", "columns": ["region"]},
            "join": "left",
            "algorithm": "ssbj",
            "memory": "8MiB",
        },
        {
            "key": ["region", "shop"],
            "fields": {"region": "text"},
            "master": {"table": "closed"},
            "join": "anti",
            "algorithm": "hybridjoin",
            "memory": "8MiB",
        },
    ],
}


def kinds(first, second, third, fourth):
    """The same chain with other kinds of join; a key that is not joined any more is left out."""
    links = [dict(link) for link in CHAIN["then"]]
    chain = {**CHAIN, "join": first, "then": links}
    for link, kind in zip(links, (second, third, fourth), strict=True):
        link["join"] = kind
        if kind in ("semi", "anti"):
            link["master"] = {k: v for k, v in link["master"].items() if k != "columns"}
    if third in ("semi", "anti"):
        links.pop()  # there is no region to join by
    return chain


def sales(number, seed):
    choose = random.Random(seed)
    codes = [*(f"c-{i}" for i in range(40)), 'größe "X"', "", "nul \0", "x"]
    for sale in range(number):
        event = {"sale": sale, "product": choose.randrange(PRODUCTS + 8)}
        if choose.random() < 0.8:
            event["buyer"] = {"code": choose.choice([*codes, None])}
        elif choose.random() < 0.5:
            event["buyer"] = None
        if choose.random() < 0.8:
            event["shop"] = choose.choice([1, 2, 3, None])
        yield json.dumps(event, ensure_ascii=choose.random() < 0.5).encode()


def fill(database):
    with psycopg.connect(database) as connection:
        connection.execute(SQL)


@pytest.mark.parametrize(
    "spec",
    [
        pytest.param(CHAIN, id="inner-left-left-anti"),
        pytest.param(kinds("left", "semi", "inner", "semi"), id="left-semi-inner-semi"),
        pytest.param(kinds("inner", "inner", "anti", "semi"), id="inner-inner-anti"),
    ],
)
def test_every_table_of_a_chain_adds_what_sql_adds(spec, run_within, database):
    fill(database)
    with run_within(spec) as pipeline:
        for seed in range(2):
            pipeline.send([*sales(EVENTS, seed), b"{}", b'{"sale": 1, "product": null}'])
            final = pipeline.drain()
            assert not final.problems
        verdict = pipeline.verdict()
        assert verdict.differences == []
        assert final.taken == verdict.events == 2 * (EVENTS + 2)
        assert final.outputs == verdict.outputs == verdict.expected > 0
        assert final.unmatched == verdict.unmatched > 0
        assert final.copies > 0
        assert verdict.dead_letters == 4
        tables = {
            headers["detail"] for headers, _ in pipeline.messages(pipeline.topology.unmatched)
        }
        links = [pipeline.spec.link(number) for number in range(1, pipeline.spec.links + 1)]
        assert tables == {link.master.table for link in links if link.join != "left"}


def test_a_row_missing_in_one_table_does_not_lose_the_others(run_within, database):
    fill(database)
    with run_within({**CHAIN, "join": "left"}) as pipeline:
        pipeline.send([b'{"sale": 1, "product": 999, "buyer": {"code": "c-1"}}'])
        assert not pipeline.drain().problems
        ((headers, output),) = pipeline.messages(pipeline.topology.enriched)
        assert json.loads(output) == {
            "sale": 1,
            "product": 999,
            "buyer": {"code": "c-1"},
            "name": None,
            "by": None,
            "segment": "segment 1",
            "region": None,
        }
        assert headers["origin"] == f"{pipeline.spec.name}/0/0"


@pytest.mark.timeout(600)
def test_phases_of_a_chain_are_killed_and_the_output_stays_exact(run_pipeline, database):
    fill(database)
    with run_pipeline({**CHAIN, "nodes": 1}) as pipeline:
        for turn, name in enumerate(("disk_phase.3-0", "cache_phase.2-0", "cache_phase-0")):
            before = pipeline.audit().enriched
            pipeline.send(sales(3 * EVENTS, turn))
            pipeline.wait_until(
                lambda seen, then=before: seen.enriched > then, "more of it is enriched"
            )
            pipeline.send(sales(3 * EVENTS, 10 + turn))
            pipeline.kill(pipeline.process_of(name))
        final = pipeline.drain()
        assert not final.problems
        verdict = pipeline.verdict()
        assert verdict.differences == []
        assert final.outputs == verdict.outputs == verdict.expected > 0
