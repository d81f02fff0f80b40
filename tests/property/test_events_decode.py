"""Random, mangled events: the kernel, the slow path and Python's own json must agree."""

import json

import numpy as np
from hypothesis import example, given, settings
from hypothesis import strategies as st

from dovetail.join.keys import hash_text_many
from dovetail.stream.events.decode import JsonDecoder
from dovetail.stream.events.json_kernel import (
    UNDECIDED,
    decode_events,
    empty_columns,
    table_of,
)
from dovetail.stream.events.json_slow import classify
from dovetail.stream.events.paths import split
from dovetail.stream.events.reasons import Reason
from dovetail.stream.events.schema import EventSchema, Field, FieldType

FIELDS = {
    "id": Field(FieldType.INT),
    "quantity": Field(FieldType.INT, optional=True),
    "weight": Field(FieldType.FLOAT, optional=True),
    "unit_price_in_euro": Field(FieldType.DECIMAL, optional=True),
    "größe": Field(FieldType.TEXT),
    "note": Field(FieldType.TEXT, optional=True),
    "online": Field(FieldType.BOOLEAN, optional=True),
    "day": Field(FieldType.DATE, optional=True),
    "sold_at": Field(FieldType.TIMESTAMP, optional=True),
}
KEYS = [("id",), ("größe",), ("größe", "id"), ("id", "größe")]
SCHEMAS = [EventSchema(FIELDS, key, max_bytes=600) for key in KEYS]

# The same names in and around objects, and one that has a dot itself.
NESTED_FIELDS = {
    "id": Field(FieldType.INT, optional=True),
    "order.id": Field(FieldType.INT),
    "order.shop.größe": Field(FieldType.TEXT),
    "order.shop.note": Field(FieldType.TEXT, optional=True),
    "order.note": Field(FieldType.TEXT),
    "extra.quantity": Field(FieldType.INT, optional=True),
    "extra.order..id": Field(FieldType.BOOLEAN, optional=True),
    "any": Field(FieldType.JSON, optional=True),
}
NESTED_KEYS = [("order.id",), ("order.shop.größe",), ("order.shop.größe", "order.id")]
NESTED_SCHEMAS = [EventSchema(NESTED_FIELDS, key, max_bytes=600) for key in NESTED_KEYS]

# --- strategies

SPACE = st.sampled_from(["", "", "", "", " ", "\n\t", "\r ", "  "])
EDGES = [
    *("0", "-0", "00", "-", "5.0", "5e0", "1.", ".5", "1e", "1e+", "1E-3", "+1", "NaN", "Infinity"),
    *(str(edge + step) for edge in (2**63, -(2**63), 10**19) for step in (-1, 0, 1)),
    *(str(2**64 + 1), str(10**20), "1" * 18, "9" * 19, "-" + "9" * 19),
    *("1e308", "1e309", "-1.8e308", "1e999", "0e999", "1e-999", "9" * 308, "9" * 309, "1" * 330),
    *("true", "false", "null", "tru", "nul", "True", "[]", "{}", "[1,]", '{"a":1,"a":[null]}'),
    *("[" * 70 + "]" * 70, '{"a":' * 30 + "1" + "}" * 30, "[" * 500),
]
STRINGS = [
    *("1.50", "-0", "1e3", ".5", "5.", "+5", "007", "1_000", "٣", "-", "1.5.5"),
    *("2024-02-29", "2023-02-29", "1900-02-29", "2000-02-29", "0000-01-01", "9999-12-31"),
    *("2100-02-29", "2200-02-29", "2400-02-29", "2024-00-10", "2024-01-00", "2024-12-32"),
    *("2024-13-01", "2024-04-31", "2024-4-01", "20240401", "2024-W01-1", "2024-01-01\n"),
    *("2024-01-31T23:59:59Z", "2024-01-31t00:00:00.123456789z", "2024-01-31 10:00:00"),
    *("2024-01-31T10:00:00+02", "2024-01-31T10:00:00-0230", "2024-01-31T10:00:00+05:30"),
    *(f"2024-{month:02}-{day}" for month in range(1, 13) for day in (29, 30, 31)),
    *(
        f"2024-01-31T10:00:00{zone}"
        for zone in ("Z", "z", "+23:59", "-23:60", "+", "Z0", "+02:", "y")
    ),
    *("2024-01-31T10:60:00Z", "2024-01-31T10:00:00.5", "2024-01-31T10:00:00.Z", "2024/01/31"),
    *("2024-01-31T24:00:00Z", "2024-01-31T23:59:60Z", "2024-01-31T10:00Z", "2024-01-31T10:00:00."),
    *("2024-01-31T10:00:00+24:00", "2024-01-31T10:00:00+0:30", "2024-01-31T10:00:00+02:3"),
    *(
        "2024-01-31T10:00:00Z ",
        "2024-02-30T10:00:00Z",
        "2024-01-31X10:00:00Z",
        "2024-01-31T10-00:00",
    ),
    *("", "\0", "a\x1fb", "\x1e", "naïve", "日本", "😀", "a" * 40, '"', "\\", "/"),
]
ESCAPES = [
    r"\u0041",
    r"\ud83d\ude00",
    r"\ud800",
    r"\udc00",
    r"\ud800\u0041",
    r"\u12g4",
    r"\x",
    r"\n",
]


# Raw bytes at every border of what a string may hold (Unicode's table 3-7), and just beyond it.
SEQUENCES = [
    *(b"\x00", b"\n", b"\x1f", b"\x20"),
    *(b"\x7f", b"\x80", b"\xbf", b"\xc1\xbf", b"\xc2\x80", b"\xc2\x7f", b"\xc2\xc0", b"\xdf\xbf"),
    *(b"\xe0\x9f\xbf", b"\xe0\xa0\x80", b"\xe1\x80\x80", b"\xec\xbf\xbf", b"\xed\x9f\xbf"),
    *(b"\xed\xa0\x80", b"\xee\x80\x80", b"\xef\xbf\xbf", b"\xef\xbf", b"\xe1\x80\xc0"),
    *(b"\xf0\x8f\xbf\xbf", b"\xf0\x90\x80\x80", b"\xf4\x8f\xbf\xbf", b"\xf4\x90\x80\x80"),
    *(b"\xf5\x80\x80\x80", b"\xf1\x80\x80", b"\xf1\x80\x80\xc0", b"\xff", b"\xf1\x80\x7f\x80"),
]


def quoted(text: str, style: int) -> str:
    """Write a string with as few escapes as may be, with ASCII alone, or with escapes alone."""
    if style == 2:
        return '"' + "".join(f"\\u{unit:04x}" for unit in utf16(text)) + '"'
    return json.dumps(text, ensure_ascii=style == 1)


def utf16(text: str) -> list[int]:
    return np.frombuffer(text.encode("utf-16-le"), "<u2").tolist()


STYLE = st.sampled_from([0, 0, 0, 0, 1, 2])
TEXT = st.one_of(st.sampled_from(STRINGS), st.text(max_size=20))
STRING = st.one_of(
    st.builds(quoted, TEXT, STYLE),
    st.sampled_from(ESCAPES).map(lambda escape: f'"a{escape}b"'),
)
NUMBER = st.one_of(st.integers().map(str), st.floats(allow_nan=False).map(json.dumps))
NESTED = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=2), inner),
    max_leaves=6,
).map(json.dumps)
EDGE = st.one_of(st.sampled_from(EDGES), st.builds(quoted, st.sampled_from(STRINGS), STYLE))
VALUE = st.one_of(EDGE, NUMBER, STRING, STRING, NESTED)
DAYS = st.dates().map(str)
TIMES = st.datetimes().map(lambda time: time.isoformat())
FITTING = {
    FieldType.INT: st.integers(-(2**63), 2**63 - 1).map(str),
    FieldType.FLOAT: st.floats(allow_nan=False, allow_infinity=False).map(json.dumps),
    FieldType.DECIMAL: st.decimals(-(10**6), 10**6, places=2).map(lambda price: f'"{price}"'),
    FieldType.TEXT: st.builds(quoted, TEXT, STYLE),
    FieldType.BOOLEAN: st.sampled_from(["true", "false"]),
    FieldType.DATE: st.builds(quoted, DAYS, STYLE),
    FieldType.TIMESTAMP: st.builds(quoted, TIMES, STYLE),
}


@st.composite
def members(draw):
    name = draw(st.sampled_from([*FIELDS, *FIELDS, "idx", "i", "", "größen", "unit_price_in_eur"]))
    fits = name in FIELDS and draw(st.integers(0, 5)) > 0
    value = draw(FITTING[FIELDS[name].type] if fits else VALUE)
    pieces = [quoted(name, draw(STYLE)), ":", value]
    return "".join(draw(SPACE) + piece for piece in pieces) + draw(SPACE)


@st.composite
def whole_events(draw):
    """An event that is likely to be good, or one offence away from it."""
    needed = [f'"id":{draw(FITTING[FieldType.INT])}', f'"größe":{draw(FITTING[FieldType.TEXT])}']
    extra = draw(st.lists(members(), max_size=4))
    body = ",".join(draw(st.permutations(needed + extra)))
    return f"{draw(SPACE)}{{{body}}}{draw(SPACE)}".encode("utf-8", "surrogatepass")


@st.composite
def mangled_events(draw):
    event = bytearray(draw(whole_events()))
    for _ in range(draw(st.integers(1, 3))):
        at = draw(st.integers(0, max(len(event) - 1, 0)))
        kind = draw(st.integers(0, 3))
        some = draw(st.sampled_from(b'{}[],:"\\/u0-.eE \n\x00\x1f\x7f\x80\xbf\xc2\xed\xf4\xff'))
        if kind == 0 and event:
            event[at] ^= 1 << draw(st.integers(0, 7))
        elif kind == 1:
            del event[at:]
        elif kind == 2:
            event.insert(at, some)
        else:
            del event[at : at + 1]
    return bytes(event)


def tree(paths):
    """Turn paths into nested names; a field's place holds its type."""
    made = {}
    for path in paths:
        *outer, last = split(path)
        inner = made
        for name in outer:
            inner = inner.setdefault(name, {})
        inner[last] = NESTED_FIELDS[path]
    return made


TREE = tree(NESTED_FIELDS)


@st.composite
def objects(draw, names=TREE):
    """An object of the tree, likely whole: a member may be missing, doubled, odd or unknown."""
    members = []
    for name in draw(st.permutations(list(names))):
        copies = draw(st.sampled_from([1] * 12 + [0, 2]))
        members += [(name, draw(st.sampled_from([True] * 15 + [False]))) for _ in range(copies)]
    if draw(st.integers(0, 30)) == 0:
        members.append((draw(st.sampled_from(["id", "order.id", "größe", "x"])), False))
    written = []
    for name, fits in members:
        within = names.get(name)
        if not fits or within is None:
            value = draw(VALUE)
        elif isinstance(within, dict):
            value = draw(objects(within))
        else:
            value = draw(NESTED if within.type is FieldType.JSON else FITTING[within.type])
        style = draw(st.sampled_from([0] * 20 + [1, 2]))
        written.append(f"{quoted(name, style)}{draw(SPACE)}:{draw(SPACE)}{value}{draw(SPACE)}")
    return "{" + draw(SPACE) + ",".join(written) + "}"


@st.composite
def nested_events(draw):
    event = bytearray(draw(objects()).encode("utf-8", "surrogatepass"))
    if draw(st.integers(0, 9)) == 0:
        at = draw(st.integers(0, len(event) - 1))
        event[at : at + draw(st.integers(0, 2))] = draw(st.sampled_from([b"}", b"{", b",", b"]"]))
    return bytes(event)


NESTED_BATCHES = st.lists(nested_events(), min_size=1, max_size=8)


EVENTS = st.one_of(
    whole_events(),
    mangled_events(),
    st.lists(members(), max_size=3).map(lambda some: f"{{{','.join(some)}}}".encode()),
    st.sampled_from([b"", b" ", b"[]", b"{}", b"{} {}", b"\xef\xbb\xbf{}", b" " * 601, b"null"]),
    st.binary(max_size=30),
)
BATCHES = st.lists(EVENTS, min_size=1, max_size=12)


# --- what each path makes of a batch


def columns_of(events):
    bounds = np.cumsum([0, *map(len, events)], dtype=np.int64)
    return np.frombuffer(b"".join(events), np.uint8), bounds, np.zeros(len(events), np.bool_)


def by_kernel(events, schema):
    data, bounds, tombstones = columns_of(events)
    data = np.concatenate([data, np.zeros(8, np.uint8)])[: max(data.size, 8)]
    out = empty_columns(len(events), schema)
    decode_events(
        *(data.ctypes.data, data.size, bounds, tombstones),
        *(schema.max_bytes, len(schema.key), table_of(schema), out),
    )
    return out


def is_json_object(event: bytes) -> bool:
    """Ask Python's own parser, made strict."""

    def refuse(_constant):
        raise ValueError

    strict = json.JSONDecoder(
        parse_constant=refuse,
        # Numbers stay text, their size being no matter of syntax; members stay pairs, since a dict
        # would forget the first of two with one name.
        parse_int=str,
        parse_float=str,
        object_pairs_hook=lambda pairs: {"members": pairs},
    )
    try:
        value = strict.decode(event.decode())
        json.dumps(value, ensure_ascii=False).encode()
    except ValueError:
        return False
    return isinstance(value, dict)


# --- properties


def assert_paths_agree(events, schema):
    out = by_kernel(events, schema)
    _, bounds, _ = columns_of(events)
    for row, event in enumerate(events):
        if out.reasons[row] == UNDECIDED:
            continue
        verdict = classify(event, schema)
        found = (out.reasons[row], out.field[row], out.offset[row])
        assert found == (verdict.reason, verdict.field, verdict.offset), event
        assert out.start[row] - bounds[row] == verdict.start, event
        assert out.end[row] - bounds[row] == verdict.end, event
        if schema.int_key:
            assert out.keys[row] == verdict.key, event
    return out


def test_the_paths_agree_on_every_edge_of_every_type():
    values = [
        *EDGES,
        *(quoted(text, 0) for text in STRINGS),
        *(f'"{escape}"' for escape in ESCAPES),
    ]
    written = [value.encode() for value in values]
    written += [b'"%b%b%b"' % (b"a" * pad, some, b"b") for some in SEQUENCES for pad in (0, 5, 7)]
    needed = '"id":1,"größe":"s",'.encode()
    events = [b'{%b"%b":%b}' % (needed, name.encode(), some) for name in FIELDS for some in written]
    for schema in SCHEMAS:
        out = assert_paths_agree(events, schema)
        # A kernel that decides nothing would agree, too.
        assert np.mean(out.reasons == UNDECIDED) < 0.15


def test_the_paths_agree_on_every_end_of_an_event_and_of_the_buffer():
    whole = r'{"id":-12,"größe":"é\u00e9\ud83d\ude00","weight":-1.5e+3,"online":true}'.encode()
    for schema in SCHEMAS:
        for end in range(len(whole) + 1):
            assert_paths_agree([whole[:end]], schema)
            # Neighbours that would go on where the event breaks off.
            assert_paths_agree([whole[:end], b"0000"], schema)
            assert_paths_agree([whole[:end], whole[end:]], schema)


@settings(max_examples=100, deadline=None)
@given(BATCHES, st.sampled_from(SCHEMAS))
@example([b'{"id":-0,"gr\xc3\xb6\xc3\x9fe":"x"}', b'{"id":7}'], SCHEMAS[3])
def test_the_kernel_and_the_slow_path_agree(events, schema):
    assert_paths_agree(events, schema)


@settings(max_examples=100, deadline=None)
@given(BATCHES, st.sampled_from(SCHEMAS))
def test_decoded_columns_say_what_the_slow_path_says_of_each_event(events, schema):
    decoded = JsonDecoder(schema).decode(*columns_of(events))
    _, bounds, _ = columns_of(events)
    for row, event in enumerate(events):
        verdict = classify(event, schema)
        assert decoded.reasons[row] == verdict.reason, event
        assert decoded.valid[row] == (verdict.reason is Reason.GOOD)
        assert (row in decoded.details) == (not decoded.valid[row])
        assert decoded.start[row] == bounds[row] + verdict.start
        assert decoded.end[row] == bounds[row] + verdict.end
        if schema.int_key:
            assert decoded.keys[row] == verdict.key
            continue
        first, last = decoded.key_bounds[row : row + 2]
        expected = verdict.key if decoded.valid[row] else b""
        assert decoded.key_data[first:last].tobytes() == expected, event
        hashed = hash_text_many(np.frombuffer(expected, np.uint8), np.array([0, len(expected)]))
        assert decoded.keys[row] == (hashed[0] if decoded.valid[row] else 0)


@settings(max_examples=100, deadline=None)
@given(NESTED_BATCHES, st.sampled_from(NESTED_SCHEMAS))
@example([b'{"order":{},"order":{"id":1}}', b'{"order":null}'], NESTED_SCHEMAS[0])
def test_the_paths_agree_on_objects_with_fields_in_them(events, schema):
    test_decoded_columns_say_what_the_slow_path_says_of_each_event.hypothesis.inner_test(
        events, schema
    )
    assert_paths_agree(events, schema)


def test_the_paths_agree_on_every_end_of_an_event_with_objects_in_it():
    whole = (
        '{"any":[1,{"a":[]},[[]]],"order":{"shop":{"größe":"g","note":null},"note":"n","id":7},'
        '"extra":{"order.id":true} , "any":{"x":{"y":"\\n"}}}'
    ).encode()
    for schema in NESTED_SCHEMAS:
        assert classify(whole, schema).reason is Reason.GOOD
        for end in range(len(whole) + 1):
            out = assert_paths_agree([whole[:end], whole[end:]], schema)
            assert out.reasons[0] != UNDECIDED


@settings(max_examples=100, deadline=None)
@given(EVENTS)
def test_what_is_json_is_what_python_calls_json(event):
    reason = classify(event, SCHEMAS[0]).reason
    if reason not in {Reason.OVERSIZED, Reason.EMPTY}:
        assert (reason is not Reason.INVALID_JSON) == is_json_object(event)


@settings(max_examples=100, deadline=None)
@given(whole_events(), st.sampled_from(SCHEMAS))
def test_a_good_event_s_key_is_what_python_reads_in_it(event, schema):
    verdict = classify(event, schema)
    if verdict.reason is not Reason.GOOD:
        return
    value = json.loads(event)
    parts = [value[name] for name in schema.key]
    expected = parts[0] if schema.int_key else "\x1f".join(map(str, parts)).encode()
    assert verdict.key == expected
    span = event[verdict.start : verdict.end]
    assert span[:1] + span[-1:] == b"{}"
    assert json.loads(span) == value


@settings(max_examples=100, deadline=None)
@given(BATCHES, st.sampled_from(SCHEMAS))
def test_an_event_s_verdict_does_not_depend_on_its_neighbours(events, schema):
    together = JsonDecoder(schema).decode(*columns_of(events))
    for row, event in enumerate(events):
        alone = JsonDecoder(schema).decode(*columns_of([event]))
        assert alone.reasons[0] == together.reasons[row]
        assert alone.keys[0] == together.keys[row]
        assert alone.details.get(0) == together.details.get(row)
