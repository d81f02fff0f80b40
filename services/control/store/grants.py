"""Lets the other services look at the tokens, where they have a role of their own for it."""

from __future__ import annotations

import sqlalchemy as sa

from dovetail.roles import GATE, gate_grants
from services.spark.runs import as_unavailable


def let_gates_in(engine: sa.Engine) -> None:
    """Grant what roles.py says; nothing where no such role is."""
    with as_unavailable(), engine.begin() as connection:
        there = sa.text("SELECT 1 FROM pg_roles WHERE rolname = :name")
        if connection.scalar(there, {"name": GATE}):
            for statement in gate_grants():
                connection.execute(sa.text(statement))
