"""Compares a drained pipeline's topics with SQL's answer."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import psycopg
from psycopg import sql

from dovetail.errors import MasterDataError, Unavailable
from dovetail.verify.copying import copy_into
from dovetail.verify.join import expected_outputs, expected_unmatched, key_columns, parkable
from dovetail.verify.judge import Judge
from dovetail.verify.reading import Reader

if TYPE_CHECKING:
    from collections.abc import Callable

    from dovetail.pipeline.spec import Pipeline
    from dovetail.settings import Settings
    from dovetail.stream.whole import Identity
    from dovetail.topology import Topic, Topology
    from dovetail.verify.reading import Ends

_SHOWN = 5


@dataclass(slots=True)
class Verdict:
    events: int = 0
    """On the source topic, bad ones included."""
    expected: int = 0
    """Outputs that SQL gives."""
    outputs: int = 0
    """Outputs that the pipeline gave."""
    unmatched: int = 0
    shed: int = 0
    """Good events that have no output and are on the shed topic instead, to be completed."""
    parked: int = 0
    """And those that are on the parked topic."""
    dead_letters: int = 0
    differences: list[str] = field(default_factory=list)
    """Each kind of difference once, with its number and examples."""

    @property
    def equal(self) -> bool:
        return not self.differences


def verify(
    settings: Settings,
    pipeline: Pipeline,
    topology: Topology,
    report: Callable[[str], None] = lambda _: None,
    begin: Ends | None = None,
) -> Verdict:
    """Compare what is on the pipeline's topics with SQL; call it when all is drained.

    With `begin`, only what came after those ends counts. The database is left as it was:
    the tables are temporary and the transaction is rolled back.
    """
    reader = Reader(settings, topology, begin or {})
    try:
        with psycopg.connect(settings.database_url) as connection:
            return _Comparison(connection, pipeline, reader, report).run(topology)
    except psycopg.OperationalError as error:
        raise Unavailable(f"PostgreSQL cannot compare: {str(error).strip()}") from error
    except psycopg.errors.UndefinedTable as error:
        raise MasterDataError(
            f"there is no table {_tables(pipeline)} to compare with: name the database"
            " that the pipeline reads in DATABASE_URL"
        ) from error


class _Comparison:
    def __init__(
        self,
        connection: psycopg.Connection,
        pipeline: Pipeline,
        reader: Reader,
        report: Callable[[str], None],
    ) -> None:
        self._connection = connection
        self._pipeline = pipeline
        self._reader = reader
        self._report = report
        self._bad: dict[Identity, bytes | None] = {}
        self._verdict = Verdict()

    def run(self, topology: Topology) -> Verdict:
        verdict = self._verdict
        try:
            self._create_tables()
            self._report("reading the source events")
            verdict.events = self._load_events()
            self._report("reading the outputs")
            verdict.outputs = self._load_outputs(topology.enriched, "oracle_enriched")
            verdict.unmatched = self._load_outputs(topology.unmatched, "oracle_unmatched")
            if self._reader.has_backfill:
                verdict.unmatched += self._load_outputs(
                    topology.still_unmatched, "oracle_unmatched"
                )
            verdict.shed = self._load_outputs(topology.shed, "oracle_shed")
            verdict.parked = self._load_outputs(topology.parked, "oracle_parked")
            self._report("asking SQL")
            self._set_aside("shed", "oracle_shed")
            self._require_parkable()
            join = expected_outputs(self._pipeline)
            verdict.expected = self._compare("output", "oracle_enriched", join)
            self._compare("unmatched", "oracle_unmatched", expected_unmatched(self._pipeline))
        finally:
            self._connection.rollback()
        verdict.dead_letters = self._compare_dead_letters(topology.dead_letter)
        return verdict

    def _create_tables(self) -> None:
        keys = "".join(f", {name} {kind}" for name, kind in key_columns(self._pipeline).items())
        for statement in (
            "SET LOCAL TimeZone = 'UTC'",
            "SET LOCAL work_mem = '256MB'",
            f"CREATE TEMP TABLE oracle_events (part int, off bigint, event text{keys})",
            # Not text: whatever the pipeline gave out can be compared.
            "CREATE TEMP TABLE oracle_enriched (part int, off bigint, value bytea)",
            "CREATE TEMP TABLE oracle_unmatched (part int, off bigint, value bytea)",
            "CREATE TEMP TABLE oracle_shed (part int, off bigint, value bytea)",
            "CREATE TEMP TABLE oracle_parked (part int, off bigint, value bytea)",
        ):
            self._connection.execute(statement)

    def _load_events(self) -> int:
        judge = Judge(self._pipeline)
        with copy_into(self._connection, "oracle_events") as rows:
            for identity, value in self._reader.source():
                text = judge.text_of(value)
                key = judge.key_of(text)
                if key is None or text is None:
                    self._bad[identity] = value
                else:
                    rows.add(*identity, text.strip(b" \t\r\n"), key)
        self._connection.execute("ANALYZE oracle_events")
        return rows.count + len(self._bad)

    def _load_outputs(self, topic: Topic, table: str) -> int:
        stray = 0
        with copy_into(self._connection, table) as rows:
            for identity, value in self._reader.outputs(topic):
                if identity is None:
                    stray += 1
                else:
                    rows.add(*identity, value or b"")
        if stray:
            self._differ(f"{topic.name}: messages without a valid origin", stray)
        return rows.count + stray

    def _set_aside(self, what: str, table: str) -> None:
        """Expect no output of these events, each of which is one of the good events, once."""
        rows = self._connection.execute(
            "SELECT part, off, value, sum(extra) OVER ()::bigint FROM ("
            " SELECT s.part, s.off, s.value, count(*) - count(DISTINCT e.off) AS extra"
            f" FROM {table} s LEFT JOIN oracle_events e ON (e.part, e.off) = (s.part, s.off)"
            " AND convert_to(e.event, 'UTF8') = s.value"
            " GROUP BY s.part, s.off, s.value) AS counted"
            " WHERE extra > 0 ORDER BY part, off LIMIT %s",
            (_SHOWN,),
        ).fetchall()
        if rows:
            examples = [f"{part}/{off} {_shown(value)}" for part, off, value, _ in rows]
            self._differ(f"{what} too much", rows[0][3], examples)
        self._connection.execute(
            f"DELETE FROM oracle_events e USING {table} s WHERE (e.part, e.off) = (s.part, s.off)"
        )

    def _require_parkable(self) -> None:
        """Expect of what is parked that it came to a table, as often as it is there."""
        if not self._verdict.parked:
            return
        rows = self._connection.execute(
            sql.SQL(
                "SELECT part, off, value, sum(sum(n)) OVER ()::bigint FROM ("
                " SELECT part, off, value, 1 AS n FROM oracle_parked"
                " UNION ALL SELECT part, off, convert_to(value, 'UTF8'), -1 FROM ({}) AS e"
                ") AS both_ways GROUP BY part, off, value HAVING sum(n) > 0"
                " ORDER BY part, off LIMIT %s"
            ).format(parkable(self._pipeline)),
            (_SHOWN,),
        ).fetchall()
        if rows:
            examples = [f"{part}/{off} {_shown(value)}" for part, off, value, _ in rows]
            self._differ("parked too much", rows[0][3], examples)

    def _compare(self, name: str, table: str, expected: sql.Composed) -> int:
        """Subtract one multiset from the other; return how large the expected one is."""
        self._connection.execute(
            sql.SQL(
                "CREATE TEMP TABLE {} AS SELECT part, off, value, sum(n) AS n FROM ("
                " SELECT part, off, value, 1 AS n FROM {}"
                " UNION ALL SELECT part, off, convert_to(value, 'UTF8'), -1 FROM ({}) AS e"
                ") AS both_ways GROUP BY part, off, value HAVING sum(n) <> 0"
            ).format(sql.Identifier(f"{table}_off"), sql.Identifier(table), expected)
        )
        [(found,)] = self._connection.execute(
            sql.SQL("SELECT count(*) FROM {}").format(sql.Identifier(table))
        )
        expected_count = int(found)
        for sign, what in ((-1, "missing"), (1, "too much")):
            rows = self._connection.execute(
                sql.SQL(
                    "SELECT part, off, value, sum(abs(n)) OVER ()::bigint FROM {}"
                    " WHERE sign(n) = %s ORDER BY part, off LIMIT %s"
                ).format(sql.Identifier(f"{table}_off")),
                (sign, _SHOWN),
            ).fetchall()
            if rows:
                count = rows[0][3]
                expected_count -= sign * int(count)
                self._differ(
                    f"{name} {what}",
                    count,
                    [f"{part}/{off} {_shown(value)}" for part, off, value, _ in rows],
                )
        return expected_count

    def _compare_dead_letters(self, topic: Topic) -> int:
        missing = dict(self._bad)
        extra: list[str] = []
        changed: list[str] = []
        count = 0
        for identity, value in self._reader.outputs(topic):
            count += 1
            if identity is None or identity not in missing:
                extra.append(f"{identity} {_shown(value)}")
            elif missing.pop(identity) != value:
                changed.append(f"{identity} {_shown(value)}")
        lost = [f"{identity} {_shown(value)}" for identity, value in missing.items()]
        for what, found in (
            ("dead letter missing", lost),
            ("dead letter too much", extra),
            ("dead letter with other bytes than the event", changed),
        ):
            if found:
                self._differ(what, len(found), found)
        return count

    def _differ(self, what: str, count: int, examples: list[str] | None = None) -> None:
        shown = f", such as {'; '.join(examples[:_SHOWN])}" if examples else ""
        self._verdict.differences.append(f"{what}: {count:,}{shown}")


def _tables(pipeline: Pipeline) -> str:
    links = (pipeline.link(number) for number in range(1, pipeline.links + 1))
    return " or ".join(link.master.table for link in links)


def _shown(value: bytes | None, most: int = 300) -> str:
    if value is None:
        return "null"
    text = value[:most].decode(errors="replace")
    return text if len(value) <= most else f"{text}… ({len(value):,} bytes)"
