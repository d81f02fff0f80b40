"""An event's time is the moment that Python reads in its timestamp, on both paths."""

import json
from datetime import UTC, datetime, timedelta, timezone

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from dovetail.stream.events.decode import JsonDecoder
from dovetail.stream.events.json_slow import classify
from dovetail.stream.events.reasons import Reason
from dovetail.stream.events.schema import NO_TIME, EventSchema, Field, FieldType

FIELDS = {
    "id": Field(FieldType.INT),
    "sold_at": Field(FieldType.TIMESTAMP, optional=True),
    "order.at": Field(FieldType.TIMESTAMP, optional=True),
}
SCHEMAS = {
    name: EventSchema(FIELDS, ("id",), max_bytes=400, event_time=name)
    for name in ("sold_at", "order.at")
}
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MINUTE = timedelta(minutes=1)

ZONES = st.one_of(
    st.just(("", timedelta())),
    st.sampled_from([("Z", timedelta()), ("z", timedelta())]),
    st.builds(
        lambda sign, hours, minutes, style: (
            f"{'+' if sign > 0 else '-'}{hours:02}"
            + ("", f"{minutes:02}", f":{minutes:02}")[style],
            sign * timedelta(hours=hours, minutes=minutes if style else 0),
        ),
        st.sampled_from([1, -1]),
        st.integers(0, 23),
        st.integers(0, 59),
        st.integers(0, 2),
    ),
)


@st.composite
def moments(draw):
    """Give a timestamp and its moment in whole ms, by Python's own calendar."""
    second = draw(st.datetimes(datetime(1, 1, 1), datetime(9999, 12, 31, 23, 59, 59)))  # noqa: DTZ001
    second = second.replace(microsecond=0)
    fraction = draw(st.text("0123456789", max_size=12))
    zone, ahead = draw(ZONES)
    text = second.isoformat(sep=draw(st.sampled_from("Tt ")))
    since = second.replace(tzinfo=UTC) - EPOCH - ahead
    milliseconds = since // timedelta(milliseconds=1) + int(fraction[:3].ljust(3, "0"))
    return text + (f".{fraction}" if fraction else "") + zone, milliseconds


def escaped(text):
    return '"' + "".join(f"\\u{ord(letter):04x}" for letter in text) + '"'


def event(name, value):
    return (
        f'{{"id":1,"{name}":{value}}}'
        if name == "sold_at"
        else f'{{"order":{{"at":{value}}},"id":1}}'
    )


def decoded(events, schema):
    bounds = np.cumsum([0, *map(len, events)], dtype=np.int64)
    data = np.frombuffer(b"".join(events), np.uint8)
    return JsonDecoder(schema).decode(data, bounds, np.zeros(len(events), np.bool_))


@settings(max_examples=150, deadline=None)
@given(st.lists(moments(), min_size=1, max_size=5), st.sampled_from(list(SCHEMAS)))
def test_the_time_is_the_moment_of_the_timestamp(cases, name):
    texts = [event(name, json.dumps(text)).encode() for text, _ in cases]
    # A string with escapes is left to the slow path.
    texts += [event(name, escaped(text)).encode() for text, _ in cases]
    found = decoded(texts, SCHEMAS[name])
    expected = [moment for _, moment in cases]
    assert found.times.tolist() == expected * 2
    assert [classify(text, SCHEMAS[name]).time for text in texts] == expected * 2


@settings(max_examples=150, deadline=None)
@given(st.datetimes(timezones=st.just(UTC)), st.integers(-23 * 60, 23 * 60))
def test_what_datetime_writes_is_read_as_the_same_moment(moment, minutes):
    local = moment.replace(year=max(2, min(moment.year, 9998))).astimezone(
        timezone(minutes * MINUTE)
    )
    text = event("sold_at", json.dumps(local.isoformat())).encode()
    (time,) = decoded([text], SCHEMAS["sold_at"]).times.tolist()
    assert time == (datetime.fromisoformat(local.isoformat()) - EPOCH) // timedelta(milliseconds=1)


@settings(max_examples=200, deadline=None)
@given(moments(), moments())
def test_of_two_the_last_counts_and_of_none_or_null_there_is_no_time(first, last):
    one, other = json.dumps(first[0]), json.dumps(last[0])
    texts = [
        f'{{"sold_at":{one},"id":1,"sold_at":{other}}}',
        f'{{"sold_at":{one},"id":1,"sold_at":null}}',
        f'{{"id":1,"order":{{"at":{one}}}}}',
        '{"id":1}',
        f'{{"sold_at":{one},"id":"x"}}',
        f'{{"sold_at":{one}}}',
    ]
    events = [text.encode() for text in texts]
    found = decoded(events, SCHEMAS["sold_at"])
    assert found.times.tolist() == [last[1], *[NO_TIME] * 5]
    assert [classify(text, SCHEMAS["sold_at"]).time for text in events] == found.times.tolist()
    assert found.reasons.tolist() == [0, 0, 0, 0, Reason.WRONG_TYPE, Reason.MISSING_KEY]
