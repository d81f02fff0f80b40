"""The demo's master data: a table of products, made inside PostgreSQL.

Every value is a hash of the seed, the product id and the column's name, so the same seed gives
the same rows. Everything happens in one transaction: whoever looks sees the old catalogue or the
new one, and an interrupted load leaves nothing behind.
"""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, LiteralString

import psycopg
from psycopg import sql

from dovetail.demo.popularity import CATALOGUE_SEED
from dovetail.errors import ConfigError, MasterDataError, Unavailable

if TYPE_CHECKING:
    from collections.abc import Callable

TABLE = "products"
ROWS = 1_000_000
_CHUNK = 100_000
# Two loaders at once take turns; the second then finds the first one's work.
_LOCK = 0x646F76657461696C

_CREATE = """
CREATE TABLE products_loading (
    product_id bigint NOT NULL,
    name text NOT NULL,
    category text NOT NULL,
    vendor text NOT NULL,
    price numeric(10, 2) NOT NULL,
    weight float8,
    active boolean NOT NULL,
    listed_on date NOT NULL,
    updated_at timestamptz NOT NULL
)
"""

# hashint8extended is what PostgreSQL places rows of hash partitions by: its answer stays the same
# from release to release. pick(salt, n) is a number in 0..n-1.
_FILL: LiteralString = """
INSERT INTO products_loading
SELECT
    id,
    (ARRAY['Folding', 'Compact', 'Heavy-duty', 'Classic', 'Slim', 'Organic', 'Travel', 'Kids'''])
        [1 + {pick_1_8}]
    || ' ' ||
    (ARRAY['oak', 'steel', 'cotton', 'bamboo', 'glass', 'leather', 'linen', 'crème'])
        [1 + {pick_2_8}]
    || ' ' ||
    (ARRAY['chair', 'lamp', 'kettle', 'backpack', 'notebook', 'jacket', 'mixer', 'Stövchen'])
        [1 + {pick_3_8}]
    || ' ' || upper(to_hex(id + 1048576)),
    (ARRAY['furniture', 'lighting', 'kitchen', 'outdoor', 'stationery', 'clothing',
           'appliances', 'toys', 'garden', 'sports', 'beauty', 'books'])[1 + {pick_4_12}],
    'vendor-' || lpad(({pick_5_5000})::text, 5, '0'),
    (99 + {pick_6_99900})::numeric / 100,
    CASE WHEN {pick_7_20} > 0 THEN (1 + {pick_8_30000})::float8 / 1000 END,
    {pick_9_50} > 0,
    date '2015-01-01' + {pick_10_3650},
    timestamptz '2025-01-01 00:00:00+00' + {pick_11_31536000} * interval '1 second'
FROM generate_series(%(first)s::bigint, %(last)s::bigint) AS id
"""


def load_catalogue(
    database_url: str,
    rows: int = ROWS,
    seed: int = CATALOGUE_SEED,
    report: Callable[[str], None] = print,
) -> None:
    """Make the table `products` with ids 1..rows, or return at once if it is there already.

    A catalogue of another size or seed is replaced; a table that this function did not make is
    never touched.
    """
    if rows < 1:
        raise ConfigError(f"a catalogue needs at least one row, not {rows}")
    try:
        connection = psycopg.connect(database_url, autocommit=True)
    except psycopg.OperationalError as error:
        raise Unavailable(f"the database for the catalogue cannot be reached: {error}") from error
    with connection:
        if _build(connection, rows, seed, report):
            # Rows settled for good: the first reader need not mark them, nor a scan be slowed.
            connection.execute("VACUUM (FREEZE, ANALYZE) products")


def _build(
    connection: psycopg.Connection, rows: int, seed: int, report: Callable[[str], None]
) -> bool:
    mark = json.dumps({"dovetail": "catalogue", "rows": rows, "seed": seed})
    started = time.monotonic()
    with connection.transaction():
        connection.execute("SELECT pg_advisory_xact_lock(%s)", (_LOCK,))
        found = _mark(connection)
        if found == mark:
            report(f"catalogue: {rows:,} products are there already")
            return False
        connection.execute(_CREATE)
        _fill(connection, rows, seed, report)
        _put_in_place(connection, mark, replace=found is not None)
    report(f"catalogue: {rows:,} products in {time.monotonic() - started:.1f} s")
    return True


def _mark(connection: psycopg.Connection) -> str | None:
    """Read how the present catalogue was made; None if there is no such table."""
    row = connection.execute(
        "SELECT obj_description(oid, 'pg_class') FROM pg_class WHERE oid = to_regclass(%s)",
        (TABLE,),
    ).fetchone()
    if row is None:
        return None
    if row[0] is None or '"dovetail": "catalogue"' not in row[0]:
        raise MasterDataError(
            f"the database has a table {TABLE} that is not a demo catalogue: "
            "rename it, or load the catalogue into another database"
        )
    return str(row[0])


def _fill(
    connection: psycopg.Connection, rows: int, seed: int, report: Callable[[str], None]
) -> None:
    statement = _fill_statement(seed)
    for first in range(1, rows + 1, _CHUNK):
        last = min(first + _CHUNK - 1, rows)
        connection.execute(statement, {"first": first, "last": last})
        report(f"catalogue: {last:,} of {rows:,} products")


def _fill_statement(seed: int) -> sql.Composed:
    """Expand each {pick_salt_n} into a number in 0..n-1 that depends on seed, salt and id."""
    names = (part.split("}")[0] for part in _FILL.split("{")[1:])
    picks = {}
    for name in names:
        salt, limit = (int(number) for number in name.removeprefix("pick_").split("_"))
        # A salt per column and seed; shifted so that no two of them meet.
        picks[name] = sql.SQL("mod((hashint8extended(id, {}) & 2147483647)::int, {})").format(
            sql.Literal(seed * 64 + salt), sql.Literal(limit)
        )
    return sql.SQL(_FILL).format(**picks)


def _put_in_place(connection: psycopg.Connection, mark: str, *, replace: bool) -> None:
    connection.execute("ALTER TABLE products_loading ADD PRIMARY KEY (product_id)")
    if replace:
        try:
            connection.execute("DROP TABLE products")
        except psycopg.errors.DependentObjectsStillExist as error:
            raise MasterDataError(
                f"the catalogue cannot be replaced, other objects depend on it: {error}"
            ) from error
    connection.execute("ALTER TABLE products_loading RENAME TO products")
    connection.execute("ALTER INDEX products_loading_pkey RENAME TO products_pkey")
    connection.execute(sql.SQL("COMMENT ON TABLE products IS {}").format(sql.Literal(mark)))
