"""One contract, two implementations without a line in common: the decoder and the judge.

Where they disagree, one of them is wrong; dovetail/stream/events/{reasons,schema}.py say which.
"""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dovetail.node.intake import schema_of
from dovetail.pipeline.spec import Pipeline
from dovetail.stream.events.decode import JsonDecoder
from dovetail.verify import Judge
from tests.property import test_events_decode as decoding


def pipeline(key, most_bytes=600, fields=decoding.FIELDS):
    fields = {
        name: f"{field.type}{'?' if field.optional else ''}" for name, field in fields.items()
    }
    return Pipeline.model_validate(
        {
            "name": "sales",
            "source": {"fields": fields, "max_event_bytes": most_bytes},
            "key": list(key),
            "master": {"table": "goods", "columns": ["name"]},
        }
    )


PIPELINES = [pipeline(key) for key in decoding.KEYS]
NESTED_PIPELINES = [pipeline(key, fields=decoding.NESTED_FIELDS) for key in decoding.NESTED_KEYS]


def judged(events, pipeline):
    judge = Judge(pipeline)
    return [judge.key_of(event) for event in events]


def decoded(events, pipeline):
    """The join keys that the decoder finds, as the judge would say them."""
    schema = schema_of(pipeline)
    found = JsonDecoder(schema).decode(*decoding.columns_of(events))
    return [_key(found, row, schema) if found.valid[row] else None for row in range(len(events))]


def _key(found, row, schema):
    if schema.int_key:
        return (int(found.keys[row]),)
    first, last = found.key_bounds[row : row + 2]
    text = found.key_data[first:last].tobytes().decode()
    parts = text.split("\x1f") if len(schema.key) > 1 else [text]
    return tuple(
        int(part) if name.endswith("id") else part
        for name, part in zip(schema.key, parts, strict=True)
    )


@settings(max_examples=150, deadline=None)
@given(decoding.BATCHES, st.sampled_from(PIPELINES))
def test_the_judge_and_the_decoder_agree_on_every_event_and_its_key(events, pipeline):
    assert judged(events, pipeline) == decoded(events, pipeline)


@settings(max_examples=150, deadline=None)
@given(decoding.NESTED_BATCHES, st.sampled_from(NESTED_PIPELINES))
def test_they_agree_on_objects_with_fields_in_them(events, pipeline):
    assert judged(events, pipeline) == decoded(events, pipeline)


@pytest.mark.parametrize("number", ["1" * 5_000, "-" + "9" * 399, "1e999", "[" * 64 + "]" * 64])
def test_they_agree_on_what_a_json_value_may_hold(number):
    roomy = pipeline(("order.id",), 65_536, decoding.NESTED_FIELDS)
    needed = '"order":{"id":1,"note":"","shop":{"größe":"s"}}'
    values = [number, f'{{"a":{number}}}', f'["\\ud800",{number}]', f'{{"\\udc00":{number}}}']
    events = [f'{{{needed},"any":{value}}}'.encode() for value in values]
    assert judged(events, roomy) == decoded(events, roomy)
    assert judged(events[:1], roomy) == [(1,)]


@pytest.mark.parametrize("pipeline", PIPELINES, ids=lambda pipeline: "+".join(pipeline.key))
def test_they_agree_that_a_repeated_key_part_is_checked_each_time(pipeline):
    part = '"größe":"%s"'
    repeated = [
        f'{{"id":0,{part % first},"id":0,{part % last}}}'.encode()
        for first, last in (("\\u001f", "1.50"), ("1.50", "\\u001f"), ("\\u0000", "1.50"))
    ]
    assert judged(repeated, pipeline) == decoded(repeated, pipeline)


@pytest.mark.parametrize("pipeline", PIPELINES, ids=lambda pipeline: "+".join(pipeline.key))
def test_they_agree_on_every_edge_of_every_type(pipeline):
    values = [
        *decoding.EDGES,
        *(decoding.quoted(text, style) for text in decoding.STRINGS for style in range(3)),
        *(f'"a{escape}b"' for escape in decoding.ESCAPES),
        *(f'"{time}"' for time in times()),
    ]
    written = [value.encode() for value in values]
    written += [b'"a%bb"' % sequence for sequence in decoding.SEQUENCES]
    events = [
        b'{"id":1,"gr\xc3\xb6\xc3\x9fe":"s","%b":%b}' % (name.encode(), value)
        for name in decoding.FIELDS
        for value in written
    ]
    ours, theirs = judged(events, pipeline), decoded(events, pipeline)
    different = [
        (event, our, their)
        for event, our, their in zip(events, ours, theirs, strict=True)
        if our != their
    ]
    assert different == []
    # Both sorts of events were there, or agreement would mean nothing.
    assert 0.1 < sum(key is not None for key in ours) / len(ours) < 0.9


def times():
    """Every place of a timestamp at its limits and beyond."""
    for hour in ("00", "23", "24", "3"):
        for minute in ("00", "59", "60"):
            for rest in (":00", ":59", ":60", "", ":00.", ":00.1", ":00,1", ":00Z", ":00+24"):
                yield f"2024-01-31T{hour}:{minute}{rest}"


@settings(max_examples=100, deadline=None)
@given(st.integers(0, 5_000))
def test_they_agree_on_numbers_of_any_length(digits):
    roomy = pipeline(("id",), most_bytes=65_536)
    events = [
        b'{"id":1,"gr\xc3\xb6\xc3\x9fe":"s","%b":%b}' % (name.encode(), number.encode())
        for name in ("quantity", "weight", "unit_price_in_euro")
        for number in ("1" + "0" * digits, "-" + "9" * (digits + 1), "0." + "0" * digits + "1")
    ]
    assert judged(events, roomy) == decoded(events, roomy)
