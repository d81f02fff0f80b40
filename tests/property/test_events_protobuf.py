"""Random Protobuf, whole, in pieces, mangled: the kernel and Protobuf's own library must agree."""

from __future__ import annotations

import json
from decimal import Decimal

import numpy as np
import pytest
from google.protobuf.message import DecodeError
from hypothesis import given, settings
from hypothesis import strategies as st

from dovetail.stream.events.protobuf.transcoder import ProtobufTranscoder, message_path
from dovetail.stream.events.reasons import Reason
from dovetail.stream.events.transcode import Binary
from dovetail.verify.protobuf import protobuf_text
from tests.property import protobuf_reference as protobuf

MOST_BYTES = 20_000
EVENT = protobuf.descriptor()
TRANSCODER = ProtobufTranscoder(EVENT, MOST_BYTES)
DICE = st.randoms(use_true_random=False)


def batch(events):
    bounds = np.cumsum([0, *map(len, events)], dtype=np.int64)
    data = np.frombuffer(b"".join(events) + bytes(8), np.uint8).copy()
    return Binary(data, bounds, np.ones(len(events), np.bool_))


def transcoded(events, transcoder=TRANSCODER):
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


def expected(event):
    message = protobuf.new(EVENT)
    try:
        message.ParseFromString(event)
        return protobuf.found(message)
    except (DecodeError, ValueError):
        return Reason.INVALID_PROTOBUF


@settings(max_examples=60, deadline=None)
@given(DICE)
def test_every_message_becomes_the_json_of_what_its_library_finds(dice):
    events = [protobuf.fill(protobuf.new(EVENT), dice).SerializeToString() for _ in range(5)]
    assert transcoded(events) == [expected(event) for event in events]


@settings(max_examples=60, deadline=None)
@given(DICE)
def test_the_judge_s_text_is_the_kernel_s_byte_for_byte(dice):
    events = [
        ordered(protobuf.fill(protobuf.new(EVENT), dice)).SerializeToString(deterministic=True)
        for _ in range(5)
    ]
    made = TRANSCODER.transcode(batch(events))
    for row, event in enumerate(events):
        text = made.data[made.bounds[row] : made.bounds[row + 1]].tobytes()
        assert text.decode() == protobuf_text(event, EVENT)


def ordered(message):
    """Leave out maps, whose entries the library gives in an order of its own."""
    for name in ("counts", "by_number", "flags"):
        message.ClearField(name)
    message.ClearField("child")
    return message


@settings(max_examples=60, deadline=None)
@given(DICE)
def test_pieces_behind_one_another_are_merged(dice):
    pieces = [protobuf.fill(protobuf.new(EVENT), dice).SerializeToString() for _ in range(4)]
    events = [b"".join(pieces[:end]) for end in range(5)]
    assert transcoded(events) == [expected(event) for event in events]


UNKNOWN = [
    b"\x93\x4e\x08\x01\x94\x4e",  # a group
    b"\x93\x4e\x0b\x0c\x94\x4e",  # a group in a group
    b"\x93\x4e\x0b\x94\x4e",  # a group that another one's tag ends
    b"\x98\x4e\x01",
    b"\x0a\x01\x31",  # bytes where an int64 is meant
    b"\xa2\x01\x03\x01\x96\x01",  # packed
    b"\xa0\x01\x05",  # the same field, not packed
    b"\x08" + b"\xff" * 9 + b"\x7f",
    b"\x08" + b"\xff" * 10 + b"\x01",
    b"\x00\x01",
]


@settings(max_examples=60, deadline=None)
@given(DICE)
def test_a_mangled_message_is_good_only_if_its_library_says_so(dice):
    whole = [protobuf.fill(protobuf.new(EVENT), dice).SerializeToString() for _ in range(3)]
    events = [mangled(dice, event) for event in whole for _ in range(4)]
    for event, found in zip(events, transcoded(events), strict=True):
        wanted = expected(event)
        if without_maps(found) != without_maps(wanted):
            # The library looks at a text even if a later one replaces it.
            assert wanted is Reason.INVALID_PROTOBUF, event.hex()
            assert has_the_wire_format(event), event.hex()


MAPS = ("counts", "by_number", "flags")


def without_maps(found):
    """Leave maps out: the library drops an entry that has a field which it does not know."""
    if not isinstance(found, dict):
        return found
    return {name: value for name, value in found.items() if name not in MAPS}


def test_an_entry_of_a_map_is_kept_also_if_it_has_an_unknown_field():
    (found,) = transcoded([bytes.fromhex("ca0106080012001a00")])
    assert list(found["by_number"]) == ["0"]


WITHOUT_TEXT = protobuf.descriptor(
    protobuf.EVENT.replace("map<string", "map<int32").replace("string", "bytes")
)


def has_the_wire_format(event):
    """Tell whether nothing but its texts can be wrong with an event."""
    try:
        protobuf.new(WITHOUT_TEXT).ParseFromString(event)
    except DecodeError:
        return False
    return True


def mangled(dice, event):
    event = bytearray(event)
    for _ in range(dice.randint(1, 2)):
        at = dice.randint(0, len(event))
        match dice.randint(0, 4):
            case 0:
                event[at : at + 1] = bytes([dice.choice([0, 1, 2, 0x7F, 0x80, 0xFF])])
            case 1:
                del event[at:]
            case 2:
                event[at:at] = dice.randbytes(dice.randint(1, 3))
            case 3:
                event += dice.choice(UNKNOWN)
            case 4:
                event[:0] = dice.choice(UNKNOWN)
    return bytes(event)


@pytest.mark.parametrize("extra", UNKNOWN)
def test_unknown_fields_and_odd_encodings_are_read_as_the_library_reads_them(extra):
    assert transcoded([extra, extra * 2]) == [expected(extra), expected(extra * 2)]


@settings(max_examples=60, deadline=None)
@given(st.lists(st.binary(max_size=40), min_size=1, max_size=5))
def test_any_bytes_come_to_an_end(events):
    for event, found in zip(events, transcoded(events), strict=True):
        if found != expected(event):
            assert expected(event) is Reason.INVALID_PROTOBUF, event.hex()
            assert has_the_wire_format(event), event.hex()


def nested(levels):
    event = b""
    for _ in range(levels):
        size = len(event)
        prefix = bytes([size]) if size < 128 else bytes([size & 0x7F | 0x80, size >> 7])
        event = b"\x82\xe2\x09" + prefix + event
    return event


def test_messages_nest_only_so_deep():
    shallow, deep = transcoded([nested(64), nested(66)])
    assert shallow == expected(nested(64))
    assert deep is Reason.INVALID_PROTOBUF


def test_a_framed_message_must_be_the_pipeline_s():
    framed = ProtobufTranscoder(EVENT, MOST_BYTES, framed=True)
    assert message_path(EVENT) == b"\x02\x02"
    good = b"\0\0\0\0\x07\x02\x02\x08\x05"
    other, plain = b"\0\0\0\0\x07\x00\x08\x05", b"\x08\x05"
    found = transcoded([good, other, plain, b"\0\0\0\0\x07", b""], framed)
    assert found[0]["i64"] == 5
    assert found[1:] == [Reason.UNKNOWN_SCHEMA, *[Reason.INVALID_PROTOBUF] * 3]


def test_a_lone_nought_stands_for_the_first_message_and_a_path_for_one_within():
    first = ProtobufTranscoder(protobuf.descriptor(name="shop.Other"), MOST_BYTES, framed=True)
    assert transcoded([b"\0\0\0\0\x07\x00\x08\x05", b"\0\0\0\0\x07\x02\x00\x08\x05"], first) == [
        {"x": 5},
        {"x": 5},
    ]
    assert message_path(protobuf.descriptor(name="shop.Event.Line")) == b"\x04\x02\x06"
