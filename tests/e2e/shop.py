"""Events and master rows of every kind, for each type of join key."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import psycopg
from psycopg import sql

from dovetail.stream.events.reasons import Reason

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

Key = tuple[int | str, ...]

MOST_BYTES = 20_000

OTHER_FIELDS = {
    "sale": "int",
    "amount": "decimal",
    "note": "text?",
    "weight": "float?",
    "online": "boolean?",
    "day": "date?",
    "sold_at": "timestamp?",
}

# Every type that a master column may have, under names that JSON has to carry as they are.
COLUMNS = {
    "c_small": "small",
    "c_big": "big",
    "c_real": "real",
    "c_double": "double",
    "c_numeric": "numeric",
    "c_text": "größe & maß",
    "c_flag": "flag",
    "c_day": "listed_on",
    "c_time": "local time",
    "c_instant": "instant",
    "c_uuid": "uuid",
}
_TABLE = """
CREATE TABLE goods (
    id bigint, sku text, shop int, code varchar(9000),
    c_small smallint, c_big bigint, c_real real, c_double float8, c_numeric numeric,
    c_text text, c_flag boolean, c_day date, c_time timestamp, c_instant timestamptz, c_uuid uuid
)
"""
_NOTHING: tuple[Any, ...] = (None,) * len(COLUMNS)
_VALUES: list[tuple[Any, ...]] = [
    (1, 2**62, 1.5, 0.1, "1.50", "plain", True, "2024-02-29", "2024-02-29 23:59:59.123456",
     "2024-07-01 12:00:00+05:30", "0b0e7b6a-5a7e-4f5c-9d51-0d8f2c1f9a11"),
    (-32768, -(2**63), "NaN", "NaN", "NaN", 'quotes " and \\ and \n\r\t and \x01 and /', False,
     "0001-01-01", "0001-01-01 00:00:00", "1970-01-01 00:00:00+00", None),
    (0, 0, "Infinity", "-Infinity", "-0.000", "crème 日本 😀 \u2028 </script>", None,
     "9999-12-31", "infinity", "-infinity", None),
    (None, None, 3.4e38, 5e-324, "1" + "0" * 100 + ".5", "", None, None, None,
     "2024-10-27 02:30:00+02", None),
    _NOTHING,
]  # fmt: skip


@dataclass(frozen=True)
class Shape:
    """A type of join key: the event's fields, the table's columns, and keys worth trying."""

    fields: dict[str, str]
    columns: tuple[str, ...]
    rows: dict[Key, int]
    """Keys that have master rows, and how many."""
    strangers: tuple[Key, ...]
    """Keys that have none."""
    bad: dict[Reason, Sequence[Callable[[Shape, Key], bytes]]]

    @property
    def keys(self) -> list[Key]:
        return [*self.rows, *self.strangers]

    def spec(self, join: str) -> dict[str, Any]:
        columns = {"columns": COLUMNS} if join in ("inner", "left") else {}
        return {
            "source": {
                "partitions": 3,
                "max_event_bytes": MOST_BYTES,
                "fields": {**self.fields, **OTHER_FIELDS},
            },
            "key": list(self.fields),
            "master": {"table": "goods", "key": list(self.columns), **columns},
            "join": join,
            "memory": "16MiB",
            "nodes": 2,
            "slots": 4,
        }

    def event(self, key: Key, **others: Any) -> dict[str, Any]:
        return {**dict(zip(self.fields, key, strict=True)), "sale": 1, "amount": 9.5, **others}

    def fill(self, database_url: str) -> None:
        """Make the table: the keys' rows, and rows whose key is NULL, in part or altogether."""
        names = sql.SQL(", ").join(map(sql.Identifier, (*self.columns, *COLUMNS)))
        marks = sql.SQL(", ").join([sql.Placeholder()] * (len(self.columns) + len(COLUMNS)))
        with psycopg.connect(database_url) as connection:
            connection.execute(_TABLE)
            connection.cursor().executemany(
                sql.SQL("INSERT INTO goods ({}) VALUES ({})").format(names, marks),
                list(self._master_rows()),
            )

    def _master_rows(self) -> Iterator[tuple[Any, ...]]:
        nulls = (None,) * (len(self.columns) - 1)
        first = next(iter(self.rows))
        yield (None, *nulls, *_VALUES[0])
        yield (*first[:-1], None, *_VALUES[0])
        for number, (key, count) in enumerate(self.rows.items()):
            for row in range(count):
                # Two rows in a row are alike: a multiset, not a set.
                yield (*key, *_VALUES[(number + row // 2) % len(_VALUES)])

    def good_events(self) -> list[bytes]:
        """Every key in every way to write an event."""
        return [
            write(self, key, number).encode()
            for key in self.keys
            for number, write in enumerate(_WAYS)
        ]

    def bad_events(self) -> list[bytes | None]:
        key = next(iter(self.rows))
        made = [make(self, key) for makers in self.bad.values() for make in makers]
        return [None, *made]

    @property
    def bad_reasons(self) -> set[str]:
        return {Reason.TOMBSTONE.label, *(reason.label for reason in self.bad)}


# --- ways to write a good event


def compact(event: dict[str, Any]) -> str:
    return json.dumps(event, ensure_ascii=False, separators=(",", ":"))


def _escaped(text: str) -> str:
    units = text.encode("utf-16-be")
    pairs = (units[at : at + 2].hex() for at in range(0, len(units), 2))
    return '"' + "".join(f"\\u{pair}" for pair in pairs) + '"'


def _plain(shape: Shape, key: Key, number: int) -> str:
    return compact(shape.event(key, sale=number))


def _with_all_fields(shape: Shape, key: Key, number: int) -> str:
    return compact(
        shape.event(
            key,
            sale=-(2**63),
            amount="-12.50",
            note='"quoted" \\ back\nslash \x00 \x1f 😀',
            weight=-1.5e-300,
            online=False,
            day="2024-02-29",
            sold_at="2024-02-29t23:59:59.123456789+05:30",
        )
    )


def _with_nulls(shape: Shape, key: Key, number: int) -> str:
    return compact(shape.event(key, note=None, weight=None, online=None, day=None, sold_at=None))


def _in_ascii(shape: Shape, key: Key, number: int) -> str:
    return json.dumps(shape.event(key, note="größe 😀"), ensure_ascii=True)


def _all_escaped(shape: Shape, key: Key, number: int) -> str:
    """Names and texts in \\u escapes alone."""
    members = (
        f"{_escaped(name)}:{_escaped(value) if isinstance(value, str) else json.dumps(value)}"
        for name, value in shape.event(key).items()
    )
    return "{" + ",".join(members) + "}"


def _spaced(shape: Shape, key: Key, number: int) -> str:
    return "\r\n\t " + json.dumps(shape.event(key), indent="\t", separators=(" ,", " : ")) + " \n"


def _reversed(shape: Shape, key: Key, number: int) -> str:
    return compact(dict(reversed(shape.event(key, amount=1e3).items())))


def _said_twice(shape: Shape, key: Key, number: int) -> str:
    """Every key field first with another key's value: the last one counts."""
    other = shape.keys[0] if key != shape.keys[0] else shape.keys[1]
    return compact(shape.event(other))[:-1] + "," + compact(shape.event(key))[1:]


_WAYS = (
    *(_plain, _plain, _with_all_fields, _with_nulls, _in_ascii),
    *(_all_escaped, _spaced, _reversed, _said_twice),
)


# --- bad events


def _changed(**changes: Any) -> Callable[[Shape, Key], bytes]:
    return lambda shape, key: compact({**shape.event(key), **changes}).encode()


def _without(name: str) -> Callable[[Shape, Key], bytes]:
    def make(shape: Shape, key: Key) -> bytes:
        event = shape.event(key)
        del event[name]
        return compact(event).encode()

    return make


def _broken(old: str, new: str) -> Callable[[Shape, Key], bytes]:
    return lambda shape, key: compact(shape.event(key)).replace(old, new).encode()


def _raw(value: bytes) -> Callable[[Shape, Key], bytes]:
    return lambda shape, key: value


def _bad(key_field: str, other_type: Any) -> dict[Reason, list[Callable[[Shape, Key], bytes]]]:
    return {
        Reason.OVERSIZED: [_changed(note="x" * MOST_BYTES)],
        Reason.EMPTY: [_raw(b""), _raw(b" \n")],
        Reason.INVALID_JSON: [
            *(_raw(b"{"), _raw(b"[]"), _raw(b"null"), _raw(b"\xff\xfe"), _raw(b"\xef\xbb\xbf{}")),
            *(_broken("}", ""), _broken("}", "}}"), _broken('"sale":1', '"sale":01')),
            *(_broken("9.5", "NaN"), _broken('"sale"', "sale"), _broken("}", ',"note":"\\ud800"}')),
            lambda shape, key: compact(shape.event(key)).encode("utf-16"),
        ],
        Reason.NULL_KEY: [_changed(**{key_field: None})],
        Reason.NULL_FIELD: [_changed(amount=None)],
        Reason.WRONG_TYPE: [
            *(_changed(**{key_field: other_type}), _changed(sale=1.0), _changed(sale=2**63)),
            *(_changed(amount="1e3"), _changed(day="2023-02-29"), _changed(sold_at="2024-01-01")),
            *(_changed(online="true"), _changed(note=["a"]), _broken("9.5", "1e999")),
        ],
        Reason.UNKNOWN_FIELD: [_changed(extra=1), _changed(**{"größe & maß": "x"})],
        Reason.MISSING_KEY: [_without(key_field)],
        Reason.MISSING_FIELD: [_without("amount")],
    }


# --- the shapes

_TEXTS = (
    *("plain", "", " ", "ä", "a\u0308", "A", "a", "日本語", "😀", 'qu"ote', "back\\slash", "it's"),
    *("tab\tline\n", "NULL", "{a,b}", "%s $1", "0", "\x7f", "\u2028", "x" * 3_000, "é" * 2_000),
)

INT = Shape(
    fields={"product": "int"},
    columns=("id",),
    rows={
        **{(key,): 1 for key in (0, -1, 1, 7, 2**31, -(2**63), 2**63 - 1)},
        **{(key,): 2 for key in range(100, 110)},
        (42,): 50,
    },
    strangers=((2,), (-2,), (10**18,)),
    bad=_bad("product", "7"),
)
TEXT = Shape(
    fields={"article": "text"},
    columns=("sku",),
    rows={**{(text,): 1 + number % 3 for number, text in enumerate(_TEXTS)}, ("many",): 50},
    strangers=(("nobody",), ("plain ",), ("Ä",), ("x" * 2_999,), ("a\x1fb",)),
    bad={**_bad("article", 7), Reason.INVALID_KEY: [_changed(article="nul\0")]},
)
COMPOSITE = Shape(
    fields={"shop": "int", "article": "text"},
    columns=("shop", "code"),
    rows={
        **{(number % 3, text): 1 + number % 2 for number, text in enumerate(_TEXTS)},
        (-(2**31), "many"): 50,
        (1, "11"): 1,
        (11, "1"): 2,
    },
    strangers=((5, "plain"), (2**40, "plain"), (-1, ""), (1, "1")),
    bad={
        **_bad("shop", "1"),
        Reason.INVALID_KEY: [_changed(article="a\x1fb"), _changed(article="\0")],
    },
)
