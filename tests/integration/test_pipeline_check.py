"""Pipelines held against real tables: everything a user can get wrong, and what is told."""

from __future__ import annotations

import io
from pathlib import Path

import psycopg
import pytest

from dovetail.errors import ConfigError, MasterDataError, Unavailable
from dovetail.pipeline.check import Finding, Level, check_command, check_master
from dovetail.pipeline.spec import Pipeline

DEMO = Path(__file__).parents[2] / "pipeline.yaml"
PRODUCTS = """
CREATE TABLE products (
    product_id bigint PRIMARY KEY, name text, category text, vendor text, price numeric(10,2),
    weight float8, active boolean, listed_on date, updated_at timestamptz);
INSERT INTO products VALUES (1, 'Lamp', 'Light', 'Lux', 9.90, NULL, true, '2026-01-31', now());
"""


def run(url: str, script: str) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(script)


def pipeline(
    *, of: str = "int", columns: tuple[str, ...] = ("name",), **master: object
) -> Pipeline:
    return Pipeline.model_validate(
        {
            "name": "sales",
            "source": {"fields": {"sku": of, "country": "text"}},
            "key": "sku",
            "master": {"table": "items", "columns": list(columns), **master},
        }
    )


def errors(findings: list[Finding]) -> list[str]:
    return [finding.text for finding in findings if finding.level is Level.ERROR]


def warnings(findings: list[Finding]) -> list[str]:
    return [finding.text for finding in findings if finding.level is Level.WARNING]


def infos(findings: list[Finding]) -> list[str]:
    return [finding.text for finding in findings if finding.level is Level.INFO]


def test_the_demo_fits_its_catalogue(database: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"MEMORY": "128MiB", "NODES": "2", "SLOTS": "8"}.items():
        monkeypatch.setenv(f"DOVETAIL_{name}", value)
    run(database, PRODUCTS + "ANALYZE products;")
    out = io.StringIO()
    assert check_command(DEMO, database, out) == 0
    assert out.getvalue().splitlines() == [
        "info: 'products' is a table, about 1 rows",
        "info: product_id is unique: at most one master row a key",
        "pipeline sales",
        "  source   sales: json, 7 fields, up to 64KiB an event, 4 partitions",
        "  key      product_id (int)",
        (
            "  master   products by product_id: adds name, category, vendor, price, weight, active,"
            " listed_on, updated_at"
        ),
        "  join     inner by auto",
        "  order    none: outputs leave when they are ready",
        "  memory   128MiB a node, 2 nodes: 256MiB in all; 8 slots",
        "  overload backpressure: events wait in Kafka",
        "  sink     sales.enriched",
    ]


def test_an_empty_table_fails_the_check(database: str) -> None:
    run(database, PRODUCTS + "TRUNCATE products;")
    out = io.StringIO()
    assert check_command(DEMO, database, out) == 1
    assert out.getvalue().splitlines()[0] == (
        "error: 'products' is empty: there is no join before master data is there; fill it"
    )
    assert "pipeline sales" not in out.getvalue()


def test_a_missing_table_is_told_with_the_nearest_name(database: str) -> None:
    run(database, "CREATE SCHEMA shop; CREATE TABLE shop.items (sku bigint)")
    (finding,) = check_master(pipeline(table="shop.item"), database)
    assert finding == Finding(
        Level.ERROR, "there is no table 'shop.item'; did you mean 'shop.items'?"
    )


def test_a_table_in_upper_case_is_not_the_one_in_lower_case(database: str) -> None:
    run(database, "CREATE TABLE items (sku bigint)")
    assert errors(check_master(pipeline(table="Items"), database)) == [
        "there is no table 'Items'; did you mean 'items'?"
    ]


def test_a_sequence_is_no_table(database: str) -> None:
    run(database, "CREATE SEQUENCE items")
    assert errors(check_master(pipeline(), database)) == [
        "'items' is not a table or a view; name one in master.table"
    ]


def test_missing_columns_are_told_with_the_nearest_name(database: str) -> None:
    run(database, "CREATE TABLE items (sku bigint, name text); INSERT INTO items VALUES (1)")
    found = check_master(pipeline(key="skuu", columns=("names", "zzz")), database)
    assert errors(found) == [
        "'items' has no column 'skuu'; did you mean 'sku'?",
        "'items' has no column 'names'; did you mean 'name'?",
        "'items' has no column 'zzz'; it has sku, name",
    ]


@pytest.mark.parametrize("of", ["smallint", "integer", "bigint"])
def test_int_events_join_any_integer_column(database: str, of: str) -> None:
    run(database, f"CREATE TABLE items (sku {of}, name text); INSERT INTO items VALUES (1)")
    assert errors(check_master(pipeline(), database)) == []


@pytest.mark.parametrize("of", ["text", "varchar", "varchar(20)", "code"])
def test_text_events_join_any_text_column_and_domains_over_it(database: str, of: str) -> None:
    run(
        database,
        f"""CREATE DOMAIN short AS varchar(20); CREATE DOMAIN code AS short;
        CREATE TABLE items (sku {of}, name text); INSERT INTO items VALUES ('a')""",
    )
    assert errors(check_master(pipeline(of="text"), database)) == []


@pytest.mark.parametrize(
    ("event", "of", "told"),
    [
        (
            "text",
            "char(8)",
            (
                "key column 'sku' is character(8): it pads with blanks and compares without them;"
                " join a view with rtrim(sku) AS sku, over an index on that expression"
            ),
        ),
        (
            "int",
            "numeric",
            (
                "key column 'sku' is numeric: 1 and 1.00 are equal there but two keys in events;"
                " join a view with sku::bigint AS sku, over an index on that expression"
            ),
        ),
        (
            "text",
            "uuid",
            (
                "key column 'sku' is uuid: one value can be written in several ways;"
                " join a view with sku::text AS sku, over an index on that expression"
            ),
        ),
        (
            "int",
            "text",
            (
                "column 'sku' is text, but the event's sku is int; write sku: text in"
                " source.fields, or join a view with sku::bigint AS sku, over an index on that"
                " expression"
            ),
        ),
        (
            "text",
            "integer",
            (
                "column 'sku' is integer, but the event's sku is text; write sku: int in"
                " source.fields, or join a view with sku::text AS sku, over an index on that"
                " expression"
            ),
        ),
        (
            "text",
            "date",
            (
                "key column 'sku' is date: events cannot be joined by that type;"
                " join a view with sku::text AS sku, over an index on that expression"
            ),
        ),
    ],
)
def test_a_key_column_that_compares_otherwise_is_refused(
    database: str, event: str, of: str, told: str
) -> None:
    run(database, f"CREATE TABLE items (sku {of}, name text); INSERT INTO items DEFAULT VALUES")
    assert errors(check_master(pipeline(of=event), database)) == [told]


def test_a_nondeterministic_collation_is_refused_as_a_key(database: str) -> None:
    script = """
        CREATE COLLATION blind (provider = icu, locale = 'und-u-ks-level2', deterministic = false);
        CREATE TABLE items (sku text COLLATE blind, name text); INSERT INTO items VALUES ('a')"""
    try:
        run(database, script)
    except psycopg.errors.FeatureNotSupported:
        pytest.skip("this PostgreSQL was built without ICU")
    (told,) = errors(check_master(pipeline(of="text"), database))
    assert told.startswith("key column 'sku' has a nondeterministic collation")
    assert 'sku COLLATE "C"' in told


def test_every_supported_column_goes_into_the_output(database: str) -> None:
    types = (
        "smallint,integer,bigint,real,float8,numeric(10,2),text,varchar(9),boolean,date,timestamp,"
        "timestamptz,uuid"
    ).replace(",2)", ";2)")
    columns = {f"c{i}": of.replace(";", ",") for i, of in enumerate(types.split(","))}
    defined = ", ".join(f"{name} {of}" for name, of in columns.items())
    run(database, f"CREATE TABLE items (sku int, {defined}); INSERT INTO items VALUES (1)")
    assert errors(check_master(pipeline(columns=tuple(columns)), database)) == []


@pytest.mark.parametrize(
    ("of", "written", "cure"),
    [
        ("jsonb", "jsonb", "name::text AS name"),
        ("text[]", "text[]", "name::text AS name"),
        ("bytea", "bytea", "encode(name, 'base64') AS name"),
        ("char(3)", "character(3)", "rtrim(name) AS name"),
        ("interval", "interval", "name::text AS name"),
    ],
)
def test_a_column_the_output_cannot_hold_is_refused(
    database: str, of: str, written: str, cure: str
) -> None:
    run(database, f"CREATE TABLE items (sku int, name {of}); INSERT INTO items VALUES (1)")
    assert errors(check_master(pipeline(), database)) == [
        (
            f"column 'name' is {written}, which the output cannot hold;"
            f" leave it out, or join a view with {cure}"
        )
    ]


NO_INDEX = (
    "no index begins with sku: every lookup would scan the table; run CREATE INDEX ON items (sku)"
)


@pytest.mark.parametrize(
    "index",
    [
        "",
        "CREATE INDEX ON items (name, sku)",
        "CREATE INDEX ON items (sku) WHERE sku > 5",
        "CREATE INDEX ON items ((sku + 0))",
        "CREATE INDEX ON items USING brin (sku)",
        "CREATE INDEX ON items (name) INCLUDE (sku)",
    ],
)
def test_a_key_without_a_usable_index_is_warned_of(database: str, index: str) -> None:
    run(
        database,
        "CREATE TABLE items (sku int, name text); INSERT INTO items VALUES (1);" + index,
    )
    assert warnings(check_master(pipeline(), database)) == [NO_INDEX]


@pytest.mark.parametrize(
    "index",
    [
        "CREATE INDEX ON items (sku)",
        "CREATE INDEX ON items USING hash (sku)",
        "CREATE INDEX ON items (sku, name)",
        "CREATE INDEX ON items (sku) INCLUDE (name)",
    ],
)
def test_an_index_that_begins_with_the_key_is_enough(database: str, index: str) -> None:
    run(
        database,
        "CREATE TABLE items (sku int, name text); INSERT INTO items VALUES (1);" + index,
    )
    found = check_master(pipeline(), database)
    assert warnings(found) == []
    assert infos(found)[1] == "sku is not unique: an event yields an output for each row of its key"


def test_a_unique_index_on_more_than_the_key_leaves_it_many_rows(database: str) -> None:
    run(
        database,
        "CREATE TABLE items (sku int, name text, UNIQUE (sku, name)); INSERT INTO items VALUES (1)",
    )
    assert "sku is not unique" in infos(check_master(pipeline(), database))[1]


def composite() -> Pipeline:
    return Pipeline.model_validate(
        {
            "name": "sales",
            "source": {"fields": {"country": "text", "sku": "int"}},
            "key": ["country", "sku"],
            "master": {"table": "items", "key": ["land", "nr"], "columns": ["name"]},
        }
    )


@pytest.mark.parametrize("order", ["land, nr", "nr, land"])
def test_a_composite_key_is_found_by_an_index_in_any_order(database: str, order: str) -> None:
    run(
        database,
        f"""CREATE TABLE items (land text, nr int, name text, PRIMARY KEY ({order}));
        INSERT INTO items VALUES ('de', 1)""",
    )
    found = check_master(composite(), database)
    assert [finding.level for finding in found] == [Level.INFO, Level.INFO]
    assert found[1].text == "land, nr is unique: at most one master row a key"


def test_an_index_on_a_part_of_a_composite_key_is_not_enough(database: str) -> None:
    run(
        database,
        """CREATE TABLE items (land text, nr int, name text); CREATE INDEX ON items (land);
        INSERT INTO items VALUES ('de', 1)""",
    )
    assert warnings(check_master(composite(), database)) == [
        (
            "no index begins with land, nr: every lookup would scan the table;"
            " run CREATE INDEX ON items (land, nr)"
        )
    ]


def test_a_cast_in_a_view_needs_an_index_on_the_expression(database: str) -> None:
    run(
        database,
        """CREATE TABLE raw (sku uuid PRIMARY KEY, name text);
        INSERT INTO raw VALUES (gen_random_uuid());
        CREATE VIEW items AS SELECT sku::text AS sku, name FROM raw""",
    )
    found = check_master(pipeline(of="text"), database)
    assert errors(found) == []
    assert warnings(found) == [
        (
            "'items' is a view, in which every lookup would scan a whole table;"
            " create an index on what it gives as sku"
        )
    ]
    assert "sku is" not in "".join(infos(found)), "a view tells nothing of uniqueness"
    run(database, "CREATE INDEX ON raw ((sku::text))")
    assert warnings(check_master(pipeline(of="text"), database)) == []


def test_a_parents_index_says_nothing_of_the_tables_that_inherit_from_it(database: str) -> None:
    run(
        database,
        """CREATE TABLE items (sku int PRIMARY KEY, name text); INSERT INTO items VALUES (1);
        CREATE TABLE more () INHERITS (items); INSERT INTO more VALUES (1)""",
    )
    found = check_master(pipeline(), database)
    assert warnings(found) == [
        (
            "'items' is a table that others inherit from, in which every lookup would scan a whole"
            " table; create an index on sku, also in those"
        )
    ]
    assert "sku is" not in "".join(infos(found)), "it is not unique, though the parent's index is"
    run(database, "CREATE INDEX ON more (sku)")
    assert warnings(check_master(pipeline(), database)) == []


@pytest.mark.parametrize(
    ("script", "kind"),
    [
        (
            """CREATE TABLE items (sku int PRIMARY KEY, name text) PARTITION BY HASH (sku);
            CREATE TABLE one PARTITION OF items FOR VALUES WITH (MODULUS 1, REMAINDER 0);
            INSERT INTO items VALUES (1)""",
            "a partitioned table",
        ),
        (
            """CREATE MATERIALIZED VIEW items AS SELECT 1 AS sku, 'x'::text AS name;
            CREATE UNIQUE INDEX ON items (sku)""",
            "a materialised view",
        ),
    ],
)
def test_partitioned_tables_and_materialised_views_are_tables_too(
    database: str, script: str, kind: str
) -> None:
    run(database, script)
    found = check_master(pipeline(), database)
    assert [finding.level for finding in found] == [Level.INFO, Level.INFO]
    assert infos(found)[0].startswith(f"'items' is {kind}")


def test_a_materialised_view_that_was_never_filled_is_an_error(database: str) -> None:
    run(
        database,
        """CREATE MATERIALIZED VIEW items AS SELECT 1 AS sku, 'x'::text AS name WITH NO DATA;
        CREATE UNIQUE INDEX ON items (sku)""",
    )
    assert errors(check_master(pipeline(), database)) == [
        "'items' was never filled; run REFRESH MATERIALIZED VIEW items"
    ]


def test_a_table_that_may_not_be_read_is_told_with_the_grant(database: str) -> None:
    run(
        database,
        """CREATE TABLE items (sku int PRIMARY KEY, name text); INSERT INTO items VALUES (1);
        DROP ROLE IF EXISTS stranger; CREATE ROLE stranger LOGIN PASSWORD 'pw'""",
    )
    url = psycopg.conninfo.make_conninfo(database, user="stranger", password="pw")
    assert errors(check_master(pipeline(), url)) == [
        "the database's user may not read 'items'; run GRANT SELECT ON items"
    ]


def test_a_view_whose_query_fails_is_told(database: str) -> None:
    run(
        database,
        """CREATE TABLE raw (sku int); INSERT INTO raw VALUES (0);
        CREATE VIEW items AS SELECT sku, 'x'::text AS name FROM raw WHERE 1 / sku > 0""",
    )
    with pytest.raises(MasterDataError, match="'items' cannot be looked at: division by zero"):
        check_master(pipeline(), database)


def test_an_unreachable_database_is_told_without_its_password() -> None:
    url = "postgresql://shop:s3cr%40t@127.0.0.1:1/master"
    with pytest.raises(Unavailable) as caught:
        check_master(pipeline(), url)
    told = str(caught.value)
    assert told.startswith("PostgreSQL cannot be reached at 127.0.0.1:1, database 'master': ")
    assert "check that it runs there" in told
    assert "s3cr" not in told


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://shop:p@s3cret@127.0.0.1:1/master",
        "postgresql://shop:s3cret@[127/master",
        "postgresql+psycopg://shop:s3cret@127.0.0.1/master",
    ],
)
def test_an_unreadable_url_is_told_without_its_password(url: str) -> None:
    with pytest.raises(ConfigError) as caught:
        check_master(pipeline(), url)
    assert "s3cr" not in str(caught.value)
    assert "postgresql://user@host:5432/database" in str(caught.value)


def test_the_command_tells_an_unreachable_database() -> None:
    with pytest.raises(Unavailable, match="PostgreSQL cannot be reached"):
        check_command(DEMO, "postgresql://127.0.0.1:1/master", io.StringIO())
