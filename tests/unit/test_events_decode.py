import numpy as np
import pytest

from dovetail.errors import ConfigError
from dovetail.stream.events.decode import JsonDecoder
from dovetail.stream.events.reasons import Reason
from dovetail.stream.events.schema import EventSchema, Field, FieldType

FIELDS = {
    "product": Field(FieldType.INT),
    "store": Field(FieldType.TEXT),
    "price": Field(FieldType.DECIMAL, optional=True),
    "weight": Field(FieldType.FLOAT, optional=True),
    "online": Field(FieldType.BOOLEAN, optional=True),
    "day": Field(FieldType.DATE, optional=True),
    "sold_at": Field(FieldType.TIMESTAMP, optional=True),
}


def decode(*events, key=("product",), max_bytes=300, tombstones=None):
    encoded = [event if isinstance(event, bytes) else event.encode() for event in events]
    bounds = np.cumsum([0, *map(len, encoded)], dtype=np.int64)
    dead = np.zeros(len(events), np.bool_) if tombstones is None else np.array(tombstones)
    decoder = JsonDecoder(EventSchema(FIELDS, key, max_bytes))
    return decoder.decode(np.frombuffer(b"".join(encoded), np.uint8), bounds, dead)


def label(event, **options):
    return Reason(int(decode(event, **options).reasons[0])).label


def with_field(name, value):
    return f'{{"product":1,"store":"s","{name}":{value}}}'


def key_bytes(decoded, row=0):
    first, last = decoded.key_bounds[row : row + 2]
    return decoded.key_data[first:last].tobytes()


def test_a_good_event_is_trimmed_and_gives_its_key():
    decoded = decode(' \n{"store":"s","product":-42}\t', "x")
    assert decoded.valid.tolist() == [True, False]
    assert decoded.keys.tolist() == [-42, 0]
    assert (decoded.start[0], decoded.end[0]) == (2, 29)
    assert (decoded.start[1], decoded.end[1]) == (30, 31)
    assert decoded.key_data is None


def test_an_empty_batch_decodes_to_nothing():
    assert decode().valid.size == 0


@pytest.mark.parametrize(
    ("event", "reason"),
    [
        ("", "empty"),
        (" \r\n\t", "empty"),
        (" " * 301, "oversized"),
        ("[]", "invalid-json"),
        ("{} {}", "invalid-json"),
        ('{"product":1,"store":"s",}', "invalid-json"),
        ('{"product":NaN,"store":"s"}', "invalid-json"),
        ('{"product":01,"store":"s"}', "invalid-json"),
        (b'{"product":1,"store":"\xff"}', "invalid-json"),
        (b'{"product":1,"store":"\xed\xa0\x80"}', "invalid-json"),
        (r'{"product":1,"store":"\ud800"}', "invalid-json"),
        ('{"product":1,"store":"\n"}', "invalid-json"),
        ('{"store":"s"}', "missing-key"),
        ("{}", "missing-key"),
        ('{"product":1}', "missing-field"),
        ('{"product":null,"store":"s"}', "null-key"),
        ('{"product":1,"store":null}', "null-field"),
        ('{"product":5.0,"store":"s"}', "wrong-type"),
        ('{"product":5e0,"store":"s"}', "wrong-type"),
        ('{"product":true,"store":"s"}', "wrong-type"),
        ('{"product":"5","store":"s"}', "wrong-type"),
        ('{"product":9223372036854775808,"store":"s"}', "wrong-type"),
        ('{"product":1,"store":["s"]}', "wrong-type"),
        ('{"product":1,"store":"s","stores":1}', "unknown-field"),
        ('{"product":1,"store":"s","x":{"a":[]}}', "unknown-field"),
    ],
)
def test_a_bad_event_has_its_reason(event, reason):
    assert label(event) == reason


@pytest.mark.parametrize(
    ("event", "reason"),
    [
        ('{"x":1,"product":null,"store":1', "invalid-json"),
        ('{"x":1,"product":null}', "unknown-field"),
        ('{"product":null,"x":1}', "null-key"),
        ('{"store":1}', "wrong-type"),
        ('{"product":"a","store":"s","product":1}', "wrong-type"),
    ],
)
def test_of_several_reasons_syntax_comes_first_then_members_in_order_then_what_is_missing(
    event, reason
):
    assert label(event) == reason


def test_a_tombstone_is_one_whatever_its_bytes():
    decoded = decode('{"product":1,"store":"s"}', "", tombstones=[True, True])
    assert decoded.reasons.tolist() == [Reason.TOMBSTONE] * 2


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("product", "-9223372036854775808"),
        ("product", "9223372036854775807"),
        ("price", "1e300"),
        ("price", '"-12.50"'),
        ("price", r'"\u0031"'),
        ("price", "null"),
        ("weight", "1.7e308"),
        ("online", "false"),
        ("day", '"2024-02-29"'),
        ("sold_at", '"2024-02-29T23:59:59.123456789+02:00"'),
        ("sold_at", '"2024-02-29 23:59:59"'),
        ("sold_at", r'"2024-02-29\u005423:59:59Z"'),
    ],
)
def test_a_value_that_fits_its_field_is_good(name, value):
    assert label(with_field(name, value)) == "good"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("price", '"1e3"'),
        ("price", '""'),
        ("weight", "1.8e308"),
        ("weight", '"1"'),
        ("online", "0"),
        ("day", '"2023-02-29"'),
        ("day", '"1900-02-29"'),
        ("day", '"0000-01-01"'),
        ("day", '"2024-01-01T00:00:00Z"'),
        ("sold_at", '"2024-01-01"'),
        ("sold_at", '"2024-01-01T24:00:00Z"'),
        ("sold_at", '"2024-01-01T10:00:00+24:00"'),
        ("sold_at", "1704067200"),
    ],
)
def test_a_value_that_does_not_fit_its_field_is_of_the_wrong_type(name, value):
    assert label(with_field(name, value)) == "wrong-type"


def test_the_last_of_two_members_with_one_name_gives_the_key():
    assert decode('{"product":1,"store":"s","product":2}').keys[0] == 2


def test_a_text_key_is_the_decoded_string():
    decoded = decode(r'{"product":1,"store":"K\u00f6ln \ud83d\ude00"}', key=("store",))
    assert key_bytes(decoded) == "Köln 😀".encode()


def test_escaped_and_plain_spellings_of_a_key_hash_alike():
    plain, escaped = '{"product":1,"store":"Köln"}', r'{"product":1,"\u0073tore":"K\u00f6ln"}'
    decoded = decode(plain, escaped, key=("store",))
    assert decoded.valid.all()
    assert decoded.keys[0] == decoded.keys[1]


def test_a_composite_key_joins_its_parts_in_the_key_s_order():
    decoded = decode('{"product":-0,"store":"s"}', key=("store", "product"))
    assert key_bytes(decoded) == b"s\x1f0"


def test_a_key_that_postgresql_cannot_hold_is_invalid():
    nul, unit = r'{"product":1,"store":"a\u0000"}', r'{"product":1,"store":"a\u001f"}'
    assert label(nul, key=("store",)) == "invalid-key"
    assert label(unit, key=("store",)) == "good"
    assert label(unit, key=("store", "product")) == "invalid-key"
    assert label(nul) == "good"


@pytest.mark.parametrize("opening", ["[", '{"a":', '[{"a":'])
def test_deep_nesting_is_read_to_its_end(opening):
    closing = "".join({"[": "]", "{": "}"}.get(char, "") for char in reversed(opening))
    depth = 50_000
    whole = with_field("store", opening * depth + "1" + closing * depth)
    assert label(whole, max_bytes=10**6) == "wrong-type"
    assert label(with_field("store", opening * depth), max_bytes=10**6) == "invalid-json"


def test_details_name_the_field_what_is_wrong_and_where():
    decoded = decode(
        '{"product":5.0,"store":"s"}',
        '{"product":1}',
        '{"product":1,"store":"s","shop":2}',
        '{"product":1;',
        '{"product":1',
        '{"product":1,"store":"s"}',
    )
    assert decoded.details == {
        0: 'key field "product" at byte 11: expected int, found 5.0',
        1: 'field "store" is missing',
        2: 'unknown field "shop" at byte 25',
        3: "not a JSON object: ';' is wrong at byte 12",
        4: "not a JSON object: it breaks off after 12 bytes",
    }


def test_bounds_beyond_the_data_are_refused_before_memory_is_read():
    decoder = JsonDecoder(EventSchema(FIELDS, ("product",), 300))
    with pytest.raises(ValueError, match="bounds"):
        decoder.decode(np.zeros(8, np.uint8), np.array([0, 9]), np.array([False]))
    with pytest.raises(ValueError, match="bounds"):
        decoder.decode(np.zeros(8, np.uint8), np.array([0, 8]), np.array([False, False]))


@pytest.mark.parametrize(
    ("fields", "key", "message"),
    [
        ({"a": Field(FieldType.INT)}, (), "key is empty"),
        ({"a": Field(FieldType.INT)}, ("b",), "not among"),
        ({"a": Field(FieldType.INT)}, ("a", "a"), "twice"),
        ({"a": Field(FieldType.INT, optional=True)}, ("a",), "optional"),
        ({"a": Field(FieldType.FLOAT)}, ("a",), "int or text"),
        ({"a": Field(FieldType.INT), 'b"': Field(FieldType.INT)}, ("a",), "rename"),
    ],
)
def test_a_schema_that_cannot_work_is_refused(fields, key, message):
    with pytest.raises(ConfigError, match=message):
        EventSchema(fields, key, 100)


def test_field_types_are_found_by_name():
    assert FieldType.named("timestamp") is FieldType.TIMESTAMP
    with pytest.raises(ConfigError, match="use one of int, float"):
        FieldType.named("blob")


# --- paths into objects

ORDER = {
    "order.id": Field(FieldType.INT),
    "order.shop.code": Field(FieldType.TEXT),
    "order.note": Field(FieldType.TEXT, optional=True),
    "net..price": Field(FieldType.DECIMAL, optional=True),
    "extra.tag": Field(FieldType.TEXT, optional=True),
    "lines": Field(FieldType.JSON, optional=True),
}
SHOP = '"shop":{"code":"s"}'


def decode_order(*events, key=("order.id",)):
    bounds = np.cumsum([0, *map(len, events)], dtype=np.int64)
    data = np.frombuffer("".join(events).encode(), np.uint8)
    schema = EventSchema(ORDER, key, 100_000)
    return JsonDecoder(schema).decode(data, bounds, np.zeros(len(events), np.bool_))


def test_a_key_is_taken_from_within_objects():
    event = f'{{"net.price":9.5,"order":{{{SHOP},"id":42}},"lines":[{{"a":[1]}}]}}'
    assert decode_order(event).keys[0] == 42
    decoded = decode_order(event, event, key=("order.shop.code", "order.id"))
    assert key_bytes(decoded, 1) == b"s\x1f42"


@pytest.mark.parametrize(
    ("event", "reason", "detail"),
    [
        ("{}", "missing-key", 'key field "order.id" is missing'),
        ('{"order":{}}', "missing-key", 'key field "order.id" is missing'),
        ('{"order":{"id":1}}', "missing-field", 'field "order.shop.code" is missing'),
        ('{"order":null}', "null-key", 'key field "order" is null at byte 9'),
        (
            f'{{"order":{{{SHOP},"id":null}}}}',
            "null-key",
            'key field "order.id" is null at byte 35',
        ),
        ('{"order":{"id":1,"shop":null}}', "null-field", 'field "order.shop" is null at byte 24'),
        ('{"order":[]}', "wrong-type", 'key field "order" at byte 9: expected an object, found ['),
        (f'{{"order":{{"id":"1",{SHOP}}}}}', "wrong-type", None),
        (f'{{"order":{{"id":1,{SHOP},"x":2}}}}', "unknown-field", 'unknown field "x" at byte 37'),
        (f'{{"order":{{"id":1,{SHOP}}},"net":{{"price":1}}}}', "unknown-field", None),
        (f'{{"order":{{"id":1,{SHOP}}},"order.id":1}}', "unknown-field", None),
        (f'{{"order":{{"id":1,{SHOP}}}', "invalid-json", None),
        (f'{{"order":{{"id":1,{SHOP}}},"lines":null}}', "good", None),
        (f'{{"order":{{"id":1,{SHOP}}},"extra":null}}', "good", None),
        (f'{{"order":{{"id":1,{SHOP}}},"extra":{{}}}}', "good", None),
    ],
)
def test_what_is_wrong_within_objects_has_the_same_reasons(event, reason, detail):
    decoded = decode_order(event)
    assert Reason(int(decoded.reasons[0])).label == reason
    if detail:
        assert decoded.details[0] == detail


def test_every_occurrence_of_an_object_is_judged_and_the_last_gives_the_key():
    first, last = f'"order":{{"id":1,{SHOP}}}', f'"order":{{{SHOP},"id":2}}'
    decoded = decode_order(
        f"{{{first},{last}}}", f'{{"order":{{{SHOP}}},{last}}}', f'{{{first},"order":{{{SHOP}}}}}'
    )
    assert decoded.reasons.tolist() == [Reason.GOOD, Reason.MISSING_KEY, Reason.MISSING_KEY]
    assert decoded.keys[0] == 2


@pytest.mark.parametrize(("depth", "reason"), [(64, "good"), (65, "wrong-type")])
def test_a_json_value_is_nested_only_so_deep(depth, reason):
    lines = "[" * (depth - 1) + '{"a":"}"}' + "]" * (depth - 1)
    decoded = decode_order(f'{{"order":{{"id":1,{SHOP}}},"lines":{lines}}}')
    assert Reason(int(decoded.reasons[0])).label == reason


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        (("a.b", "a"), "is a field and has fields in it"),
        (("a.",), "is empty"),
        ((".a",), "is empty"),
        (("a" + ".a" * 16,), "too deep"),
    ],
)
def test_paths_that_cannot_work_are_refused(fields, message):
    with pytest.raises(ConfigError, match=message):
        EventSchema(dict.fromkeys(fields, Field(FieldType.INT)), fields[:1], 100)
