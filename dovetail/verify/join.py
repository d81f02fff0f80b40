"""The pipeline's join as SQL, over the good events in a table of the oracle's own.

oracle_events (part, off, event, k0, k1, …)
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from psycopg import sql

from dovetail.pipeline.spec import FieldType, JoinKind

if TYPE_CHECKING:
    from dovetail.pipeline.spec import Pipeline

_KEY_TYPES = {FieldType.INT: "bigint", FieldType.TEXT: "text"}


def key_columns(pipeline: Pipeline) -> dict[str, str]:
    """Name the columns of `oracle_events` that hold the join key, each with its type."""
    return {
        f"k{number}": _KEY_TYPES[pipeline.source.fields[name].type]
        for number, name in enumerate(pipeline.key)
    }


def expected_outputs(pipeline: Pipeline) -> sql.Composed:
    """Select what the join gives, encoded as the output is: the event, continued by the row."""
    if not pipeline.join.takes_columns:
        return _events(pipeline, with_row=pipeline.join is JoinKind.SEMI)
    members = sql.SQL(", ").join(
        sql.SQL("r.{} AS {}").format(sql.Identifier(column), sql.Identifier(name))
        for column, name in pipeline.master.columns.items()
    )
    return sql.SQL(
        "SELECT part, off, left(event, -1) || ',' ||"
        " substr((SELECT row_to_json(x)::text FROM (SELECT {}) x), 2) AS value"
        " FROM oracle_events s {} JOIN {} r ON {}"
    ).format(
        members,
        sql.SQL("LEFT" if pipeline.join is JoinKind.LEFT else "INNER"),
        _table(pipeline),
        _on(pipeline),
    )


def expected_unmatched(pipeline: Pipeline) -> sql.Composed:
    """Select the events that have no output."""
    if pipeline.join is JoinKind.LEFT:
        return sql.SQL("SELECT part, off, event AS value FROM oracle_events {}").format(
            sql.SQL("WHERE false")
        )
    return _events(pipeline, with_row=pipeline.join is JoinKind.ANTI)


def _events(pipeline: Pipeline, *, with_row: bool) -> sql.Composed:
    return sql.SQL(
        "SELECT part, off, event AS value FROM oracle_events s"
        " WHERE {}EXISTS (SELECT FROM {} r WHERE {})"
    ).format(sql.SQL("" if with_row else "NOT "), _table(pipeline), _on(pipeline))


def _table(pipeline: Pipeline) -> sql.Identifier:
    schema, table = pipeline.master.relation
    return sql.Identifier(schema, table) if schema else sql.Identifier(table)


def _on(pipeline: Pipeline) -> sql.Composed:
    return sql.SQL(" AND ").join(
        sql.SQL("r.{} = s.{}").format(sql.Identifier(column), sql.Identifier(name))
        for column, name in zip(pipeline.master.key, key_columns(pipeline), strict=True)
    )
