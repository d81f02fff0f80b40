"""Types that not every PostgreSQL has; the others are in tests/integration."""

from __future__ import annotations

from dovetail.pipeline.column_types import why_not_key, why_not_output
from dovetail.pipeline.relation import Column
from dovetail.pipeline.spec import FieldType


def test_a_key_that_ignores_case_is_refused() -> None:
    column = Column("sku", "citext", "citext", deterministic=True)
    assert why_not_key(column, "sku", FieldType.TEXT) == (
        "key column 'sku' is citext: it ignores case, so that one row has many keys;"
        " join a view with lower(sku::text) AS sku, over an index on that expression"
    )


def test_a_key_with_a_nondeterministic_collation_is_refused() -> None:
    column = Column("Sku", "text", "text", deterministic=False)
    assert why_not_key(column, "sku", FieldType.TEXT) == (
        "key column 'Sku' has a nondeterministic collation, under which different texts are equal;"
        ' join a view with "Sku" COLLATE "C" instead, over an index with that collation'
    )


def test_a_nondeterministic_collation_does_no_harm_in_the_output() -> None:
    assert why_not_output(Column("name", "text", "text", deterministic=False)) is None
