"""The oracle: what SQL makes of the same events, compared with what the pipeline gave out.

1. Read every event of the source topic and judge it with Python's own json module.
2. Copy the good ones into PostgreSQL and join them there, in one statement.
3. Copy every output beside them, each with the identity of its event.
4. Let SQL subtract one multiset from the other, both ways; the same for `unmatched`.
   Dead letters are compared by bytes.

Nothing here shares code with the pipeline's decoder, cache, lookups or splice.
"""

from __future__ import annotations

import datetime as dt
import json
import re
import uuid
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import psycopg
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, TopicPartition
from psycopg import sql

from dovetail.errors import Unavailable
from dovetail.join.kinds import JoinKind
from dovetail.stream.topics import admin_of, ends

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from confluent_kafka import Message

    from dovetail.pipeline.spec import Pipeline
    from dovetail.settings import Settings
    from dovetail.topology import Topic, Topology

Identity = tuple[int, int]
"""Source partition and offset."""

Ends = dict[str, list[int]]
"""For each topic the offset at which each of its partitions ended."""

_SHOWN = 5
_DECIMAL = re.compile(r"-?\d+(\.\d+)?", re.ASCII)
_DATE = re.compile(r"\d{4}-\d\d-\d\d", re.ASCII)
_TIMESTAMP = re.compile(
    rf"({_DATE.pattern})[Tt ](\d\d:\d\d:\d\d)(\.\d+)?([Zz]|[+-]\d\d(:?\d\d)?)?", re.ASCII
)


@dataclass(slots=True)
class Verdict:
    events: int = 0
    expected: int = 0
    outputs: int = 0
    differences: list[str] = field(default_factory=list)

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

    With `begin`, only what came after those ends counts.
    """
    verdict = Verdict()
    reader = _Reader(settings, topology, begin or {})
    report("reading the source events")
    bad: dict[Identity, bytes | None] = {}
    with psycopg.connect(settings.database_url) as connection:
        _Tables(connection, pipeline).create()
        verdict.events = _load_events(connection, reader, pipeline, bad)
        report("reading the outputs")
        verdict.outputs = _load_outputs(connection, reader, topology.enriched, "actual")
        _load_outputs(connection, reader, topology.unmatched, "actual_unmatched")
        report("asking SQL")
        _compare(connection, pipeline, verdict)
        connection.rollback()
    _compare_dead(reader, bad, verdict)
    return verdict


class _Tables:
    def __init__(self, connection: psycopg.Connection, pipeline: Pipeline) -> None:
        self._connection = connection
        self._pipeline = pipeline

    def create(self) -> None:
        kinds = {"int": "bigint", "text": "text"}
        keys = ", ".join(
            f"k{i} {kinds[self._pipeline.source.fields[name].type]}"
            for i, name in enumerate(self._pipeline.key)
        )
        run = self._connection.execute
        run("SET TimeZone = 'UTC'")
        run("SET work_mem = '256MB'")
        run(f"CREATE TEMP TABLE sent (part int, off bigint, event text, {keys})")
        run("CREATE TEMP TABLE actual (part int, off bigint, value text)")
        run("CREATE TEMP TABLE actual_unmatched (part int, off bigint, value text)")


def _load_events(
    connection: psycopg.Connection,
    reader: _Reader,
    pipeline: Pipeline,
    bad: dict[Identity, bytes | None],
) -> int:
    count = 0
    with connection.cursor().copy("COPY sent FROM STDIN") as copy:
        for message in reader.source():
            count += 1
            value = message.value()
            key = judge(value, pipeline)
            if key is None or value is None:
                bad[message.partition(), message.offset()] = value
            else:
                text = value.strip(b" \t\r\n").decode()
                copy.write_row((message.partition(), message.offset(), text, *key))
    connection.execute("ANALYZE sent")
    return count


def _load_outputs(
    connection: psycopg.Connection, reader: _Reader, topic: Topic, table: str
) -> int:
    count = 0
    with connection.cursor().copy(f"COPY {table} FROM STDIN") as copy:
        for identity, message in reader.outputs(topic):
            count += 1
            copy.write_row((*identity, (message.value() or b"").decode()))
    return count


def _compare(connection: psycopg.Connection, pipeline: Pipeline, verdict: Verdict) -> None:
    connection.execute(
        sql.SQL("CREATE TEMP TABLE expected AS {}").format(expected_outputs(pipeline))
    )
    connection.execute(
        sql.SQL("CREATE TEMP TABLE expected_unmatched AS {}").format(expected_unmatched(pipeline))
    )
    [(verdict.expected,)] = connection.execute("SELECT count(*) FROM expected").fetchall()
    for name, wanted, got in (
        ("output", "expected", "actual"),
        ("unmatched", "expected_unmatched", "actual_unmatched"),
    ):
        for what, left, right in (
            (f"{name} missing", wanted, got),
            (f"{name} too much", got, wanted),
        ):
            rows = connection.execute(
                f"SELECT part, off, value FROM {left} EXCEPT ALL SELECT part, off, value FROM {right}"
            ).fetchall()
            if rows:
                shown = "; ".join(f"{part}/{off} {value}" for part, off, value in rows[:_SHOWN])
                verdict.differences.append(f"{what}: {len(rows):,}, such as {shown}")


def expected_outputs(pipeline: Pipeline) -> sql.Composed:
    """The join in SQL, with the output's text as a producer of text would build it."""
    table = sql.Identifier(*pipeline.master.table.split("."))
    on = _on(pipeline)
    if pipeline.join in (JoinKind.SEMI, JoinKind.ANTI):
        negation = sql.SQL("NOT " if pipeline.join is JoinKind.ANTI else "")
        return sql.SQL(
            "SELECT part, off, event AS value FROM sent s"
            " WHERE {}EXISTS (SELECT FROM {} r WHERE {})"
        ).format(negation, table, on)
    members = sql.SQL(", ").join(
        sql.SQL("r.{} AS {}").format(sql.Identifier(column), sql.Identifier(name))
        for column, name in pipeline.master.columns.items()
    )
    return sql.SQL(
        "SELECT part, off, left(event, -1) || ',' ||"
        " substr((SELECT row_to_json(x)::text FROM (SELECT {}) x), 2) AS value"
        " FROM sent s {} JOIN {} r ON {}"
    ).format(members, sql.SQL("LEFT" if pipeline.join is JoinKind.LEFT else ""), table, on)


def expected_unmatched(pipeline: Pipeline) -> sql.Composed:
    """The events that the join drops."""
    if pipeline.join is JoinKind.LEFT:
        return sql.SQL("SELECT part, off, event AS value FROM sent WHERE false").format()
    table = sql.Identifier(*pipeline.master.table.split("."))
    negation = sql.SQL("" if pipeline.join is JoinKind.ANTI else "NOT ")
    return sql.SQL(
        "SELECT part, off, event AS value FROM sent s WHERE {}EXISTS (SELECT FROM {} r WHERE {})"
    ).format(negation, table, _on(pipeline))


def _on(pipeline: Pipeline) -> sql.Composed:
    return sql.SQL(" AND ").join(
        sql.SQL("r.{} = s.{}").format(sql.Identifier(column), sql.Identifier(f"k{i}"))
        for i, column in enumerate(pipeline.master.key)
    )


def _compare_dead(
    reader: _Reader, bad: dict[Identity, bytes | None], verdict: Verdict
) -> None:
    missing = dict(bad)
    for identity, message in reader.outputs(reader.topology.dead_letter):
        if identity not in missing:
            verdict.differences.append(f"dead letter too much or twice: {identity}")
        elif missing.pop(identity) != message.value():
            verdict.differences.append(f"dead letter with other bytes than the event: {identity}")
    if missing:
        shown = "; ".join(f"{identity} {value!r}" for identity, value in list(missing.items())[:_SHOWN])
        verdict.differences.append(f"dead letters missing: {len(missing):,}, such as {shown}")


class _Reader:
    """Reads topics from where the comparison begins."""

    def __init__(self, settings: Settings, topology: Topology, begin: Ends) -> None:
        self._settings = settings
        self.topology = topology
        self._begin = begin

    def source(self) -> Iterator[Message]:
        return self._read(self.topology.source)

    def outputs(self, topic: Topic) -> Iterator[tuple[Identity, Message]]:
        """Messages with their event's identity, without those of events before the beginning."""
        first = self._begin.get(self.topology.source.name)
        for message in self._read(topic):
            partition, offset = origin_of(message)
            if first is None or offset >= first[partition]:
                yield (partition, offset), message

    def _read(self, topic: Topic) -> Iterator[Message]:
        return read_all(self._settings, topic, self._begin.get(topic.name))


def ends_of(settings: Settings, topology: Topology) -> Ends:
    """Where the topics that are compared end now."""
    admin = admin_of(settings)
    compared = (topology.source, topology.enriched, topology.unmatched, topology.dead_letter)
    return {topic.name: ends(admin, topic) for topic in compared}


def read_all(settings: Settings, topic: Topic, begin: list[int] | None = None) -> Iterator[Message]:
    """Every committed message of a topic, from its beginning or these offsets to its end now."""
    starts = begin or [OFFSET_BEGINNING] * topic.partitions
    consumer = Consumer(
        settings.client(
{
                "group.id": f"verify.{uuid.uuid4()}",
                "enable.auto.commit": False,
                "enable.partition.eof": True,
                "isolation.level": "read_committed",
            }
        )
    )
    try:
        consumer.assign(
            [TopicPartition(topic.name, number, start) for number, start in enumerate(starts)]
        )
        open_partitions = topic.partitions
        while open_partitions:
            for message in consumer.consume(10_000, 1.0):
                error = message.error()
                if error is None:
                    yield message
                elif error.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001 - its public name
                    open_partitions -= 1
                else:
                    raise Unavailable(f"{topic.name} cannot be read: {error.str()}")
    finally:
        consumer.close()


def origin_of(message: Message) -> Identity:
    headers = dict(message.headers() or [])
    _, partition, offset = headers["origin"].decode().rsplit("/", 2)
    return int(partition), int(offset)


def judge(value: bytes | None, pipeline: Pipeline) -> tuple[int | str, ...] | None:
    """Return the join key of a good event, None for a bad one: the contract, spelled out."""
    if value is None or len(value) > pipeline.source.max_event_bytes:
        return None
    try:
        pairs = json.loads(
            value.decode(), object_pairs_hook=_Members, parse_constant=_refuse, parse_float=_Number
        )
    except (ValueError, RecursionError):
        return None
    if not isinstance(pairs, _Members):
        return None
    fields = pipeline.source.fields
    for name, member in pairs:
        if name not in fields:
            return None
        if member is None:
            if not fields[name].optional:
                return None
        elif not _fits(member, fields[name].type):
            return None
    event = dict(pairs)
    if any(name not in event and not field.optional for name, field in fields.items()):
        return None
    key = tuple(event[name] for name in pipeline.key)
    composite = len(key) > 1
    for part in key:
        if isinstance(part, str) and ("\0" in part or (composite and "\x1f" in part)):
            return None
    return key


class _Members(list[tuple[str, Any]]):
    """An object's members in order, repeated names included."""


class _Number(str):
    """A number with a fraction or an exponent, as written."""

    __slots__ = ()


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is not JSON")


def _fits(member: object, kind: str) -> bool:  # noqa: PLR0911 - one line a type
    if isinstance(member, str) and not isinstance(member, _Number):
        return _text_fits(member, kind)
    if isinstance(member, bool):
        return kind == "boolean"
    if isinstance(member, int):
        if kind == "int":
            return -(2**63) <= member < 2**63
        return kind in ("float", "decimal") and _finite(str(member))
    if isinstance(member, _Number):
        return kind in ("float", "decimal") and _finite(member)
    return False


def _finite(text: str) -> bool:
    return abs(float(text)) != float("inf")


def _text_fits(text: str, kind: str) -> bool:
    try:
        text.encode()  # a lone surrogate is no text
        if kind == "text":
            return True
        if kind == "decimal":
            return _DECIMAL.fullmatch(text) is not None
        if kind == "date":
            return _DATE.fullmatch(text) is not None and bool(dt.date.fromisoformat(text))
        if kind == "timestamp":
            parts = _TIMESTAMP.fullmatch(text)
            return parts is not None and _moment(parts)
    except ValueError:
        return False
    return False


def _moment(parts: re.Match[str]) -> bool:
    dt.date.fromisoformat(parts[1])
    dt.time.fromisoformat(parts[2])
    offset = (parts[4] or "Z")[1:].replace(":", "")
    hours, minutes = int(offset[:2] or 0), int(offset[2:] or 0)
    return hours < 24 and minutes < 60  # noqa: PLR2004
