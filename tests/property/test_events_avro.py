"""Random Avro, whole and mangled: the kernel and a slow reader of the specification must agree."""

from __future__ import annotations

import json
import random
from decimal import Decimal

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from dovetail.stream.events.avro.schema import parse
from dovetail.stream.events.avro.transcoder import AvroTranscoder
from dovetail.stream.events.reasons import Reason
from dovetail.stream.events.transcode import Binary
from dovetail.verify.avro import BadEventError, avro_text
from tests.property import avro_reference as avro

MOST_BYTES = 4096


class Files:
    """The writers' schemas by id, from memory."""

    def __init__(self, *schemas):
        self._schemas = schemas

    def schema(self, number):
        return json.dumps(self._schemas[number]) if number < len(self._schemas) else None


def batch(events):
    bounds = np.cumsum([0, *map(len, events)], dtype=np.int64)
    data = np.frombuffer(b"".join(events) + bytes(8), np.uint8).copy()
    return Binary(data, bounds, np.ones(len(events), np.bool_))


def transcoded(events, transcoder):
    """Give for each event what JSON's reader finds, or its reason."""
    made = transcoder.transcode(batch(events))
    found = []
    for row in range(len(events)):
        if made.reasons[row]:
            assert made.details[row]
            assert made.bounds[row] == made.bounds[row + 1]
            found.append(Reason(int(made.reasons[row])))
        else:
            text = made.data[made.bounds[row] : made.bounds[row + 1]].tobytes()
            found.append(json.loads(text, parse_float=Decimal))
    return found


def expected(schema, event):
    try:
        return avro.decode(schema, event, MOST_BYTES)
    except avro.BadError:
        return Reason.INVALID_AVRO


def assert_agree(schema, events):
    found = transcoded(events, AvroTranscoder(parse(json.dumps(schema)), MOST_BYTES))
    for event, value in zip(events, found, strict=True):
        if value is Reason.OVERSIZED:
            continue
        assert value == expected(schema, event), event.hex()


@settings(max_examples=100, deadline=None)
@given(avro.data())
def test_every_datum_becomes_the_json_that_the_specification_makes_of_it(made):
    schema, events = made
    found = transcoded(events, AvroTranscoder(parse(json.dumps(schema)), MOST_BYTES))
    assert found == [avro.decode(schema, event) for event in events]


@settings(max_examples=100, deadline=None)
@given(avro.data(), st.randoms(use_true_random=False))
def test_a_mangled_datum_is_good_only_if_the_specification_says_so(made, dice):
    schema, events = made
    assert_agree(schema, [mangled(dice, event) for event in events for _ in range(4)])


def mangled(dice, event):
    event = bytearray(event)
    for _ in range(dice.randint(1, 3)):
        at = dice.randint(0, len(event))
        match dice.randint(0, 4):
            case 0:
                event[at : at + 1] = bytes([dice.choice([0, 1, 2, 0x7F, 0x80, 0xFF])])
            case 1:
                del event[at:]
            case 2:
                event[at:at] = dice.randbytes(dice.randint(1, 3))
            case 3:
                event[at:at] = avro.varint(dice.choice([2**62, -(2**63), 2**31, -3]))
            case 4:
                event += dice.randbytes(1)
    return bytes(event)


LIST = {
    "type": "record",
    "name": "link",
    "fields": [{"name": "next", "type": ["null", "link"]}, {"name": "n", "type": "int"}],
}
NULLS = {
    "type": "record",
    "name": "event",
    "fields": [{"name": "nulls", "type": {"type": "array", "items": "null"}}],
}


@settings(max_examples=100, deadline=None)
@given(st.lists(st.binary(max_size=40), min_size=1, max_size=5), st.sampled_from([LIST, NULLS]))
@example([avro.varint(4000) + b"\0", avro.varint(2**62) + b"\0"], NULLS)
@example([b"\x02" * 64 + b"\0" + bytes(65), b"\x02" * 65 + b"\0" + bytes(66)], LIST)
def test_any_bytes_come_to_an_end(events, schema):
    assert_agree(schema, events)


def test_a_skipped_array_of_nothing_does_not_count_to_infinity():
    reader = {**NULLS, "fields": [{"name": "x", "type": "int", "default": 7}]}
    event = bytes(5) + avro.varint(2**62) + b"\0"
    transcoder = AvroTranscoder(parse(json.dumps(reader)), MOST_BYTES, Files(NULLS))
    assert transcoded([event, bytes(6)], transcoder) == [Reason.INVALID_AVRO, {"x": 7}]


@settings(max_examples=100, deadline=None)
@given(avro.data(), st.randoms(use_true_random=False))
def test_the_judge_s_text_is_the_kernel_s_byte_for_byte(made, dice):
    writer, events = made
    reader = avro.evolved(dice, writer)
    framed = [bytes(5) + event for event in [*events, *(mangled(dice, e) for e in events)]]
    transcoder = AvroTranscoder(parse(json.dumps(reader)), MOST_BYTES, Files(writer))
    found = transcoder.transcode(batch(framed))
    for row, event in enumerate(framed):
        text = found.data[found.bounds[row] : found.bounds[row + 1]].tobytes().decode()
        if found.reasons[row] == Reason.INVALID_AVRO:
            with pytest.raises(BadEventError):
                avro_text(event[5:], writer, reader, MOST_BYTES)
        elif not found.reasons[row]:
            assert text == avro_text(event[5:], writer, reader, MOST_BYTES), event.hex()


@settings(max_examples=100, deadline=None)
@given(avro.data(), st.integers())
def test_a_reader_finds_its_own_fields_in_what_a_writer_wrote(made, seed):
    writer, events = made
    reader = avro.evolved(random.Random(seed), writer)
    framed = [bytes(5) + event for event in events]
    transcoder = AvroTranscoder(parse(json.dumps(reader)), MOST_BYTES, Files(writer))
    assert transcoded(framed, transcoder) == [
        avro.resolved(avro.decode(writer, event), writer, reader) for event in events
    ]
