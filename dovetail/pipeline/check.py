"""Holds a pipeline against the master data that is really there."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum, auto
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import psycopg
from psycopg import sql

from dovetail.certificates import told
from dovetail.errors import DovetailError, MasterDataError, Unavailable, hidden
from dovetail.pipeline.column_types import why_not_key, why_not_output
from dovetail.pipeline.hints import did_you_mean
from dovetail.pipeline.load import load_pipeline
from dovetail.pipeline.relation import KINDS, Catalogue, Column, Relation
from dovetail.pipeline.shape import FieldType
from dovetail.pipeline.summary import summary
from dovetail.roles import lacks
from dovetail.settings import parts_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path
    from typing import TextIO

    from dovetail.pipeline.spec import Pipeline

_CONNECT_SECONDS = 5
_QUERY_SECONDS = 30


class Level(StrEnum):
    ERROR = auto()
    WARNING = auto()
    INFO = auto()


@dataclass(frozen=True, slots=True)
class Finding:
    level: Level
    text: str

    def __str__(self) -> str:
        return f"{self.level}: {self.text}"


def check_command(path: Path, database_url: str | None, out: TextIO) -> int:
    """Print what is found and, if nothing is wrong, what the pipeline does; 1 if it cannot run.

    Raises Unavailable if the database cannot be asked.
    """
    try:
        pipeline, findings = examine(path, database_url)
    except Unavailable:
        raise
    except DovetailError as error:
        print(error, file=out)
        return 1
    for finding in findings:
        print(finding, file=out)
    if any(finding.level is Level.ERROR for finding in findings):
        return 1
    print(summary(pipeline), file=out)
    return 0


def examine(path: Path, database_url: str | None) -> tuple[Pipeline, list[Finding]]:
    """Load a pipeline's file and, where a database is named, look at its master tables."""
    pipeline = load_pipeline(path)
    return pipeline, all_findings(pipeline, database_url) if database_url else [_UNCHECKED]


def all_findings(pipeline: Pipeline, database_url: str) -> list[Finding]:
    """Of every table, errors first."""
    links = (pipeline.link(number) for number in range(1, pipeline.links + 1))
    findings = [finding for link in links for finding in check_master(link, database_url)]
    return sorted(findings, key=_rank)


def _rank(finding: Finding) -> int:
    return list(Level).index(finding.level)


def require_master(pipeline: Pipeline, database_url: str) -> list[Finding]:
    """Raise MasterDataError unless the pipeline can run on its master table; else its warnings."""
    findings = check_master(pipeline, database_url)
    errors = [finding.text for finding in findings if finding.level is Level.ERROR]
    if errors:
        raise MasterDataError("\n".join(errors))
    return [finding for finding in findings if finding.level is Level.WARNING]


def check_master(pipeline: Pipeline, database_url: str) -> list[Finding]:
    """Return everything worth knowing about the pipeline's master table, errors first."""
    with _connect(database_url) as connection:
        try:
            connection.execute(f"SET statement_timeout = '{_QUERY_SECONDS}s'")
            findings = list(_MasterCheck(pipeline, connection).findings())
        except psycopg.OperationalError as error:
            raise Unavailable(f"PostgreSQL went away or took too long: {told(error)}") from error
        except psycopg.errors.InsufficientPrivilege as error:
            wanted = f"SELECT ON {pipeline.master.table}"
            raise lacks(connection.info.user, told(error), wanted) from error
        except psycopg.Error as error:
            raise MasterDataError(
                f"'{pipeline.master.table}' cannot be looked at: {told(error)};"
                " check what the database's user may do, and a view's own query"
            ) from error
    return sorted(findings, key=_rank)


def _connect(url: str) -> psycopg.Connection[Any]:
    place = parts_of(url)
    try:
        return psycopg.connect(
            url,
            autocommit=True,
            connect_timeout=_CONNECT_SECONDS,
            client_encoding="utf8",
        )
    except psycopg.OperationalError as error:
        password = str(place.get("password") or "")
        reason = hidden(told(error), password, quote(password, safe=""))
        raise Unavailable(
            f"PostgreSQL cannot be reached at {_address(place)}: {reason};"
            " check that it runs there and that host, port, user and password are right"
        ) from None


def _address(place: Mapping[str, Any]) -> str:
    host, port = place.get("host", "localhost"), place.get("port", 5432)
    return f"{host}:{port}, database '{place.get('dbname', place.get('user', ''))}'"


def _error(text: str) -> Finding:
    return Finding(Level.ERROR, text)


def _warning(text: str) -> Finding:
    return Finding(Level.WARNING, text)


def _info(text: str) -> Finding:
    return Finding(Level.INFO, text)


_UNCHECKED = _info("the master table was not looked at; give --database to check it too")


class _MasterCheck:
    def __init__(self, pipeline: Pipeline, connection: psycopg.Connection[Any]) -> None:
        self._pipeline = pipeline
        self._master = pipeline.master
        self._catalogue = Catalogue(connection)
        self._table = sql.Identifier(*filter(None, self._master.relation))

    def findings(self) -> Iterator[Finding]:
        relation = self._catalogue.relation(self._table)
        if relation is None:
            near = did_you_mean(self._master.table, self._catalogue.relation_names())
            yield _error(
                f"there is no table '{self._master.table}'{near or '; create and fill it'}"
            )
            return
        if relation.kind not in KINDS:
            yield _error(
                f"'{self._master.table}' is not a table or a view; name one in master.table"
            )
            return
        yield from self._encoding()
        columns = self._catalogue.columns(relation)
        unfit = [*self._missing(columns), *self._types(columns)]
        yield from unfit
        yield from self._rows(relation)
        missing = any(column not in columns for column in self._master.key)
        if not missing and self._master.snapshot is None:
            yield from self._lookups(relation, fits=not unfit)

    def _encoding(self) -> Iterator[Finding]:
        encoding = self._catalogue.encoding()
        if encoding == "SQL_ASCII":
            yield _warning(
                "the database's encoding is SQL_ASCII: text that is not UTF-8 would break the"
                " output; use a database with the encoding UTF8"
            )

    def _missing(self, columns: Mapping[str, Column]) -> Iterator[Finding]:
        for column in dict.fromkeys((*self._master.key, *self._master.columns)):
            if column not in columns:
                near = did_you_mean(column, columns) or f"; it has {', '.join(columns)}"
                yield _error(f"'{self._master.table}' has no column '{column}'{near}")

    def _types(self, columns: Mapping[str, Column]) -> Iterator[Finding]:
        for field, name in zip(self._pipeline.key, self._master.key, strict=True):
            if name in columns:
                of = self._pipeline.source.fields[field].type
                yield from map(_error, filter(None, [why_not_key(columns[name], field, of)]))
        for name in self._master.columns:
            if name in columns:
                yield from map(_error, filter(None, [why_not_output(columns[name])]))

    def _rows(self, relation: Relation) -> Iterator[Finding]:
        table = self._master.table
        if not relation.populated:
            yield _error(f"'{table}' was never filled; run REFRESH MATERIALIZED VIEW {table}")
            return
        try:
            filled = self._catalogue.has_rows(self._table)
        except psycopg.errors.InsufficientPrivilege:
            yield _error(f"the database's user may not read '{table}'; run GRANT SELECT ON {table}")
            return
        if not filled:
            yield _error(
                f"'{table}' is empty: there is no join before master data is there; fill it"
            )
        if relation.row_security:
            yield _warning(
                f"'{table}' has row-level security: only rows its user may see are joined"
            )
        about = f", about {relation.about_rows:,.0f} rows" if relation.about_rows > 0 else ""
        yield _info(f"'{table}' is {KINDS[relation.kind]}{about}")

    def _lookups(self, relation: Relation, *, fits: bool) -> Iterator[Finding]:
        key = self._master.key
        named = ", ".join(key)
        if relation.kind in ("v", "f", "i"):
            yield from self._lookups_through(relation, fits=fits)
            return
        indexes = self._catalogue.indexes(relation)
        if not any(index.finds(key) for index in indexes):
            yield _warning(
                f"no index begins with {named}: every lookup would scan the table;"
                f" run CREATE INDEX ON {self._master.table} ({named})"
            )
        if any(index.singles_out(key) for index in indexes):
            yield _info(f"{named} is unique: at most one master row a key")
        else:
            yield _info(f"{named} is not unique: an event yields an output for each row of its key")

    def _lookups_through(self, relation: Relation, *, fits: bool) -> Iterator[Finding]:
        """Ask the planner what a lookup would do, for no index is over all that is read."""
        if relation.kind == "f":
            yield _warning(
                f"'{self._master.table}' is a foreign table: whether a lookup uses an index there"
                " cannot be seen from here"
            )
        elif fits and self._scans():
            what, key = KINDS[relation.kind], ", ".join(self._master.key)
            where = f"{key}, also in those" if relation.kind == "i" else f"what it gives as {key}"
            yield _warning(
                f"'{self._master.table}' is {what}, in which every lookup would scan a whole table;"
                f" create an index on {where}"
            )

    def _scans(self) -> bool:
        fields = (self._pipeline.source.fields[name].type for name in self._pipeline.key)
        types = ("int8" if of is FieldType.INT else "text" for of in fields)
        return self._catalogue.scans(self._table, dict(zip(self._master.key, types, strict=True)))
