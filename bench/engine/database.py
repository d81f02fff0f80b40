"""A PostgreSQL with a table of so many 120-byte rows, for lookups by key."""

from __future__ import annotations

import os
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

import psycopg

from bench.engine import data
from deploy.local import ports
from deploy.local.home import CHECKOUT, Home
from deploy.local.postgres import Database
from deploy.local.processes import reap_leftovers, sole_supervisor
from dovetail.api import Postgres

if TYPE_CHECKING:
    from collections.abc import Iterator

    from dovetail.api.source import Relation


@contextmanager
def catalogue(rows: int) -> Iterator[Relation]:
    """The table as a relation, while its server runs."""
    home = Home(data.FOLDER / "database", CHECKOUT / ".dovetail")
    with ExitStack() as stack:
        stack.enter_context(sole_supervisor(home))
        reap_leftovers(home)
        database = Database(home, ports.Ports(home, os.environ, {}).choose(ports.POSTGRES))
        database.prepare()
        stack.callback(database.stop)
        database.start()
        database.wait_until_healthy()
        _fill(database.url, rows)
        relation = Postgres(database.url, "bench").open(["id"], ["v"], unique=True)
        stack.callback(relation.close)
        yield relation


def _fill(url: str, rows: int) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        found = connection.execute("SELECT to_regclass('bench')").fetchone()
        if found and found[0]:
            counted = connection.execute("SELECT count(*) FROM bench").fetchone()
            if counted == (rows,):
                return
            connection.execute("DROP TABLE bench")
        connection.execute("CREATE TABLE bench (id bigint, v text)")
        connection.execute(
            "INSERT INTO bench SELECT i, repeat('x', 108) FROM generate_series(0, %s) i",
            [rows - 1],
        )
        connection.execute("ALTER TABLE bench ADD PRIMARY KEY (id)")
        connection.execute("VACUUM ANALYZE bench")
