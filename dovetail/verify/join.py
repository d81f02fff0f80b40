"""The pipeline's join as SQL, over the good events in a table of the oracle's own.

oracle_events (part, off, event, k0, k1, …)    a column for each field that a table is joined by
oracle_parked (part, off, value)

In a chain every table is joined with what the one before it gave, but for what was parked there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from psycopg import sql

from dovetail.pipeline.spec import FieldType, JoinKind
from dovetail.stream.events import paths

if TYPE_CHECKING:
    from collections.abc import Iterable

    from dovetail.pipeline.spec import Pipeline

_TYPES = {FieldType.INT: "int8", FieldType.TEXT: "text"}


def key_fields(pipeline: Pipeline) -> list[str]:
    """The fields of an event that any table is joined by, each once."""
    return [path for path in _key_paths(pipeline) if path in pipeline.source.fields]


def key_columns(pipeline: Pipeline) -> dict[str, str]:
    """Name the columns of `oracle_events` that hold those fields, each with its type."""
    return {
        _named(pipeline, path): _TYPES[pipeline.source.fields[path].type]
        for path in key_fields(pipeline)
    }


def expected_outputs(pipeline: Pipeline) -> sql.Composed:
    """Select what the join gives, encoded as the output is: the event, continued by the rows."""
    return sql.SQL("SELECT part, off, event AS value FROM ({}) AS o").format(
        _joined(pipeline, pipeline.links)
    )


def expected_unmatched(pipeline: Pipeline) -> sql.Composed:
    """Select the events that have no output, as they were when a table had none for them."""
    return _all(
        sql.SQL("SELECT part, off, event AS value FROM ({}) AS u").format(
            _unmatched(pipeline, number)
        )
        for number in range(1, pipeline.links + 1)
    )


def parkable(pipeline: Pipeline) -> sql.Composed:
    """Select what comes to any of the tables, and might be parked there."""
    return _all(
        sql.SQL("SELECT part, off, event AS value FROM ({}) AS p").format(
            _arriving(pipeline, number)
        )
        for number in range(1, pipeline.links + 1)
    )


def _arriving(pipeline: Pipeline, number: int) -> sql.Composed:
    """Select what a table is joined with, and what is parked there."""
    if number == 1:
        return sql.SQL("SELECT * FROM {}").format(sql.Identifier("oracle_events"))
    return _joined(pipeline, number - 1)


def _before(pipeline: Pipeline, number: int) -> sql.Composed:
    return sql.SQL(
        "SELECT * FROM ({}) AS a WHERE NOT EXISTS (SELECT FROM oracle_parked p"
        " WHERE (p.part, p.off, p.value) = (a.part, a.off, convert_to(a.event, 'UTF8')))"
    ).format(_arriving(pipeline, number))


def _joined(pipeline: Pipeline, number: int) -> sql.Composed:
    link = pipeline.link(number)
    if not link.join.takes_columns:
        return _events(pipeline, number, with_row=link.join is JoinKind.SEMI)
    members = sql.SQL(", ").join(
        sql.SQL("r.{} AS {}").format(sql.Identifier(column), sql.Identifier(name))
        for column, name in link.master.columns.items()
    )
    return sql.SQL(
        "SELECT part, off, left(event, -1) || ',' ||"
        " substr((SELECT row_to_json(x)::text FROM (SELECT {}) x), 2) AS event{}"
        " FROM ({}) AS s {} JOIN {} r ON {}"
    ).format(
        members,
        _carried(pipeline, number),
        _before(pipeline, number),
        sql.SQL("LEFT" if link.join is JoinKind.LEFT else "INNER"),
        _table(link),
        _on(pipeline, number),
    )


def _unmatched(pipeline: Pipeline, number: int) -> sql.Composed:
    link = pipeline.link(number)
    if link.join is JoinKind.LEFT:
        return sql.SQL("SELECT * FROM ({}) AS s WHERE false").format(_before(pipeline, number))
    return _events(pipeline, number, with_row=link.join is JoinKind.ANTI)


def _events(pipeline: Pipeline, number: int, *, with_row: bool) -> sql.Composed:
    return sql.SQL("SELECT * FROM ({}) AS s WHERE {}EXISTS (SELECT FROM {} r WHERE {})").format(
        _before(pipeline, number),
        sql.SQL("" if with_row else "NOT "),
        _table(pipeline.link(number)),
        _on(pipeline, number),
    )


def _carried(pipeline: Pipeline, number: int) -> sql.Composed:
    """What a table gives beside the event: the keys known before, and its columns that are keys."""
    link = pipeline.link(number)
    known = [path for path in _key_paths(pipeline) if path in link.source.fields]
    added = {paths.join((name,)): column for column, name in link.master.columns.items()}
    needed = {
        path: later.source.fields[path].type
        for later in map(pipeline.link, range(number + 1, pipeline.links + 1))
        for path in later.key
        if path in added
    }
    return sql.Composed(
        [
            *(sql.SQL(", s.{}").format(_identifier(pipeline, path)) for path in known),
            *(
                sql.SQL(", r.{}::{} AS {}").format(
                    sql.Identifier(added[path]),
                    sql.Identifier(_TYPES[of]),
                    _identifier(pipeline, path),
                )
                for path, of in needed.items()
            ),
        ]
    )


def _key_paths(pipeline: Pipeline) -> list[str]:
    links = (pipeline.link(number) for number in range(1, pipeline.links + 1))
    return list(dict.fromkeys(path for link in links for path in link.key))


def _named(pipeline: Pipeline, path: str) -> str:
    return f"k{_key_paths(pipeline).index(path)}"


def _identifier(pipeline: Pipeline, path: str) -> sql.Identifier:
    return sql.Identifier(_named(pipeline, path))


def _table(link: Pipeline) -> sql.Identifier:
    schema, table = link.master.relation
    return sql.Identifier(schema, table) if schema else sql.Identifier(table)


def _on(pipeline: Pipeline, number: int) -> sql.Composed:
    link = pipeline.link(number)
    return sql.SQL(" AND ").join(
        sql.SQL("r.{} = s.{}").format(sql.Identifier(column), _identifier(pipeline, path))
        for column, path in zip(link.master.key, link.key, strict=True)
    )


def _all(parts: Iterable[sql.Composed]) -> sql.Composed:
    return sql.SQL(" UNION ALL ").join(parts)
