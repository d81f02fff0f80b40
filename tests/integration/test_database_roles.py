"""The script of the database's roles, over a database that another role has used before."""

from __future__ import annotations

import psycopg
import pytest
import sqlalchemy as sa

from deploy.local.home import CHECKOUT
from dovetail import roles
from dovetail.pipeline.load import load_pipeline
from services.control.store.grants import let_gates_in, require_tables
from services.control.store.migrations import STEPS, migrate
from services.spark.runs import control_engine

SCRIPT = roles.script(load_pipeline(CHECKOUT / "pipeline.yaml", {}))
OWNERS = (
    "SELECT DISTINCT pg_get_userbyid(relowner) FROM pg_class "
    f"WHERE relnamespace = '{roles.SCHEMA}'::regnamespace "
    f"UNION SELECT pg_get_userbyid(nspowner) FROM pg_namespace WHERE nspname = '{roles.SCHEMA}'"
)


@pytest.fixture
def administrator(database):
    """Of a database with the demo's table; the server is left without the roles."""
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute("CREATE TABLE products (product_id bigint)")
        yield connection
        for role in roles.ROLES:
            connection.execute(f"DROP OWNED BY {role} CASCADE")
            connection.execute(f"DROP ROLE {role}")


def test_control_becomes_the_owner_of_what_an_administrator_made(database, administrator):
    """As of 0.2.0, where all services were the administrator."""
    before = control_engine(database)
    migrate(before, STEPS[:-1])
    for _ in range(2):  # it can be run again at any time
        administrator.execute(SCRIPT)
        assert administrator.execute(OWNERS).fetchall() == [(roles.CONTROL,)]
    control = control_engine(f"{database}?options=-c%20role%3D{roles.CONTROL}")
    migrate(control)
    require_tables(control)
    let_gates_in(control)
    with control.connect() as connection:
        assert connection.scalar(sa.text("SELECT current_user")) == roles.CONTROL
        assert connection.scalar(sa.text(f"SELECT nextval('{roles.SCHEMA}.jobs_id_seq')")) == 1


def test_tables_that_control_made_itself_are_left_to_it(database, administrator):
    administrator.execute(SCRIPT)
    control = control_engine(f"{database}?options=-c%20role%3D{roles.CONTROL}")
    migrate(control)
    administrator.execute(SCRIPT)
    assert administrator.execute(OWNERS).fetchall() == [(roles.CONTROL,)]
