"""Transcodes a batch of Protobuf messages into JSON text, by following a program.

The fields of a message come in any order, more than once, or not at all, and JSON wants each once.
So a message is read twice: SCAN goes over its tags and notes for each field how often it occurs,
where it first does and where it last does; then the program's ops write the fields in the schema's
order. As the specification asks:

    a scalar that occurs twice      the last one counts
    a message that occurs twice     its pieces are merged, which is reading them as one
    a repeated field                its items are gathered between its first and last occurrence,
                                    packed or not
    members of a oneof              the last one counts, and clears the others
    an unknown field                is skipped, as is one of another wire type than its schema's

The work for an event is bounded by its bytes, times its repeated fields, at each of MOST_DEPTH
levels. Positions are machine addresses, as in json_kernel.
"""
# An interpreter is branches; comparisons are spelt out to leave Numba no tuple to compile.
# ruff: noqa: C901, PLR0911, PLR0912, PLR0915, PLR1714, SIM109

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from dovetail.kernels import kernel
from dovetail.stream.events.faults import MOST_DEPTH, Fault
from dovetail.stream.events.json_text import (
    NOT_TEXT,
    PADDING,
    write_base64,
    write_boolean,
    write_double,
    write_literal,
    write_moment,
    write_signed,
    write_single,
    write_text,
    write_unsigned,
)
from dovetail.stream.events.machine import inner, load_byte, load_word, store_byte, word_before
from dovetail.stream.events.program import CODE, TEXT_AT, TEXT_SIZE, A, B
from dovetail.stream.events.protobuf import ops as layout
from dovetail.stream.events.protobuf.ops import Kind, Op

if TYPE_CHECKING:
    from numpy.typing import NDArray

_END, _TEXT, _SCAN, _FIELD, _BARE, _KEY, _REPEATED, _MESSAGE, _BARE_MESSAGE = (
    int(op)
    for op in (
        *(Op.END, Op.TEXT, Op.SCAN, Op.FIELD, Op.BARE, Op.KEY),
        *(Op.REPEATED, Op.MESSAGE, Op.BARE_MESSAGE),
    )
)
_LOOP, _NEXT, _MOMENT, _RETURN = (int(op) for op in (Op.LOOP, Op.NEXT, Op.MOMENT, Op.RETURN))
_INT64, _INT32, _UINT64, _UINT32, _SINT64, _SINT32, _BOOL, _ENUM, _STRING, _BYTES = (
    int(kind)
    for kind in (
        *(Kind.INT64, Kind.INT32, Kind.UINT64, Kind.UINT32, Kind.SINT64, Kind.SINT32),
        *(Kind.BOOL, Kind.ENUM, Kind.STRING, Kind.BYTES),
    )
)
_DOUBLE, _FIXED64, _SFIXED64, _FLOAT, _FIXED32 = (
    int(kind) for kind in (Kind.DOUBLE, Kind.FIXED64, Kind.SFIXED64, Kind.FLOAT, Kind.FIXED32)
)
_VARINT, _EIGHT, _LENGTH, _FOUR = layout.VARINT, layout.EIGHT, layout.BYTES, layout.FOUR
_START_GROUP, _END_GROUP = layout.START_GROUP, layout.END_GROUP
_SLOTS, _DENSE, _SPARSE, _INFO, _HEAD = range(layout.HEAD + 1)
_WIRE, _PACKABLE, _ONEOF, _INFO_WIDTH = range(layout.INFO_WIDTH + 1)
_SLOT, _KIND, _NUMBER, _DEFAULT_AT, _DEFAULT_SIZE, _SYMBOLS, _SYMBOL_COUNT = range(7)
_FINE, _TRUNCATED, _LONG_VARINT, _NO_TEXT, _TOO_DEEP, _RANGE, _TOO_LONG, _TAG, _GROUP, _MERGED = (
    int(fault)
    for fault in (
        *(Fault.NONE, Fault.TRUNCATED, Fault.LONG_VARINT, Fault.NOT_TEXT, Fault.TOO_DEEP),
        *(Fault.RANGE, Fault.TOO_LONG, Fault.TAG, Fault.GROUP, Fault.MERGED),
    )
)
_COMMA, _COLON, _QUOTE, _OPEN, _BRACKET, _CLOSE_BRACKET = b',:"{[]'
_LOW = 0xFFFFFFFF

# What SCAN notes in a slot: how often the field occurs, where the first tag stands, and where the
# last occurrence's value starts and ends.
_COUNT, _FIRST, _AT, _PAST, _SLOT_WIDTH = range(5)
# A frame: the op to go on at, with so many slots from a base on; or a loop's next and last place.
_GO_ON, _BASE, _HELD, _READABLE, _FRAME_WIDTH = range(5)
_NEXT_AT, _LAST_AT = 0, 1


# --- the wire format


@inner
def _varint(at: int, end: int) -> tuple[int, int, int]:
    """Read a number; gives the next position, the number and the fault."""
    number, shift = 0, 0
    while at < end:
        byte = load_byte(at)
        at += 1
        number |= (byte & 0x7F) << shift  # bits beyond 64 are dropped, as every reader does
        if byte < 0x80:
            return at, number, _FINE
        if shift == 63:
            return at, 0, _LONG_VARINT
        shift += 7
    return at, 0, _TRUNCATED


@inner
def _tag(at: int, end: int) -> tuple[int, int, int, int]:
    """Read a tag; gives the next position, the field's number, the wire type and the fault."""
    if at < end and 8 <= load_byte(at) < 0x80:
        byte = load_byte(at)
        return at + 1, byte >> 3, byte & 7, _FINE
    at, tag, fault = _varint(at, end)
    if fault == _FINE and not 8 <= tag <= _LOW:
        fault = _TAG
    return at, tag >> 3, tag & 7, fault


@inner
def _value(at: int, end: int, wire: int) -> tuple[int, int, int]:
    """Find a value that is no group: gives its start, the position behind it and the fault."""
    if wire == _VARINT:
        past, _, fault = _varint(at, end)
        return at, past, fault
    if wire == _LENGTH:
        at, size, fault = _varint(at, end)
        if fault == _FINE and not 0 <= size <= end - at:
            fault = _TRUNCATED
        return at, at + size, fault
    if wire == _EIGHT or wire == _FOUR:
        past = at + (8 if wire == _EIGHT else 4)
        return at, past, _FINE if past <= end else _TRUNCATED
    return at, at, _TAG


@inner
def _group(at: int, end: int, number: int, open_: NDArray[np.int64]) -> tuple[int, int]:
    """Step over a group, from behind its first tag; gives the next position and the fault."""
    open_[0], depth = number, 1
    while depth > 0:
        at, number, wire, fault = _tag(at, end)
        if fault == _FINE and wire == _START_GROUP:
            if depth == open_.size:
                return at, _TOO_DEEP
            open_[depth] = number
            depth += 1
        elif fault == _FINE and wire == _END_GROUP:
            depth -= 1
            if open_[depth] != number:
                return at, _GROUP
        elif fault == _FINE:
            _, at, fault = _value(at, end, wire)
        if fault != _FINE:
            return at, fault
    return at, _FINE


@inner
def _slot_of(number: int, message: int, table: NDArray[np.int64]) -> int:
    dense = table[message + _DENSE]
    if number < dense:
        return int(table[message + _HEAD + number])
    sparse = message + _HEAD + dense
    for at in range(sparse, sparse + 2 * table[message + _SPARSE], 2):
        if table[at] == number:
            return int(table[at + 1])
    return -1


@inner
def _scan(
    at: int,
    end: int,
    message: int,
    base: int,
    table: NDArray[np.int64],
    slots: NDArray[np.int64],
    open_: NDArray[np.int64],
) -> tuple[int, int]:
    """Note where a message's fields are; gives the position it came to and the fault."""
    count = table[message + _SLOTS]
    for slot in range(base, base + count):
        slots[slot, _COUNT] = 0
    while at < end:
        tag_at = at
        at, number, wire, fault = _tag(at, end)
        if fault != _FINE:
            return at, fault
        if wire == _START_GROUP:
            at, fault = _group(at, end, number, open_)
            if fault != _FINE:
                return at, fault
            continue
        if wire == _END_GROUP:
            return at, _GROUP
        at, past, fault = _value(at, end, wire)
        if fault != _FINE:
            return at, fault
        slot = _slot_of(number, message, table)
        if slot >= 0:
            info = table[message + _INFO] + _INFO_WIDTH * slot
            if wire == table[info + _WIRE] or (wire == _LENGTH and table[info + _PACKABLE] != 0):
                slot += base
                if slots[slot, _COUNT] == 0:
                    slots[slot, _FIRST] = tag_at
                    if table[info + _ONEOF] != 0:
                        _clear(table[info + _ONEOF], message, base, table, slots)
                slots[slot, _COUNT] += 1
                slots[slot, _AT], slots[slot, _PAST] = at, past
        at = past
    return at, _FINE


@inner
def _clear(
    oneof: int, message: int, base: int, table: NDArray[np.int64], slots: NDArray[np.int64]
) -> None:
    """Forget the members of a oneof that came before."""
    for slot in range(table[message + _SLOTS]):
        if table[table[message + _INFO] + _INFO_WIDTH * slot + _ONEOF] == oneof:
            slots[base + slot, _COUNT] = 0


@inner
def _find(at: int, last: int, wanted: int, packable: bool, wire: int) -> tuple[int, int, int, int]:
    """Find a field's next occurrence: its value, the position behind it, its wire type.

    All has been scanned before, so that nothing can be wrong. The first number given is 0 where
    there is none; the last is the wire type.
    """
    while at < last:
        at, number, found, _ = _tag(at, last)
        if found == _START_GROUP:
            at = _past_known_group(at, last)
            continue
        at, past, _ = _value(at, last, found)
        if number == wanted and (found == wire or (packable and found == _LENGTH)):
            return 1, at, past, found
        at = past
    return 0, at, at, 0


@inner
def _past_known_group(at: int, end: int) -> int:
    depth = 1
    while depth > 0:
        at, _, wire, _ = _tag(at, end)
        if wire == _START_GROUP:
            depth += 1
        elif wire == _END_GROUP:
            depth -= 1
        else:
            _, at, _ = _value(at, end, wire)
    return at


# --- values


@inner
def _signed(low: int) -> int:
    """Read the lower 32 bits as a signed number."""
    return ((low & _LOW) ^ 0x80000000) - 0x80000000


@inner
def _scalar(
    to: int,
    limit: int,
    at: int,
    past: int,
    readable: int,
    field: int,
    table: NDArray[np.int64],
    text: int,
) -> int:
    kind = table[field + _KIND]
    if kind == _STRING:
        return write_text(to, limit, at, past, readable)
    if kind == _BYTES:
        return write_base64(to, limit, at, past)
    if kind == _DOUBLE:
        return write_double(to, limit, load_word(at))
    if kind == _FIXED64:
        return write_unsigned(to, limit, load_word(at))
    if kind == _SFIXED64:
        return write_signed(to, limit, load_word(at))
    if kind > _SFIXED64:
        low = word_before(at, readable) & _LOW
        if kind == _FLOAT:
            return write_single(to, limit, low)
        return (
            write_unsigned(to, limit, low)
            if kind == _FIXED32
            else write_signed(to, limit, _signed(low))
        )
    _, number, _ = _varint(at, past)
    if kind == _INT64:
        return write_signed(to, limit, number)
    if kind == _INT32:
        return write_signed(to, limit, _signed(number))
    if kind == _UINT64:
        return write_unsigned(to, limit, number)
    if kind == _UINT32:
        return write_unsigned(to, limit, number & _LOW)
    if kind == _SINT64:
        half = int(np.int64(np.uint64(number) >> np.uint64(1)))
        return write_signed(to, limit, half ^ -(number & 1))
    if kind == _SINT32:
        return write_signed(to, limit, _signed(((number & _LOW) >> 1) ^ -(number & 1)))
    if kind == _BOOL:
        return write_boolean(to, limit, 1 if number != 0 else 0)
    symbol = table[field + _SYMBOLS]
    value = _signed(number)
    for _ in range(table[field + _SYMBOL_COUNT]):
        if table[symbol] == value:
            return write_literal(to, limit, text + table[symbol + 1], table[symbol + 2])
        symbol += 3
    return write_signed(to, limit, value)


@inner
def _overridden(
    to: int,
    limit: int,
    readable: int,
    field: int,
    slot: int,
    table: NDArray[np.int64],
    slots: NDArray[np.int64],
    text: int,
) -> int:
    """Give `to` if all occurrences of a string but the last, the one that counts, are text."""
    at, last = slots[slot, _FIRST], slots[slot, _AT]
    while True:
        _, at, past, _ = _find(at, slots[slot, _PAST], table[field + _NUMBER], False, _LENGTH)
        if at == last:
            return to
        # Written where the one that counts will be written over it.
        written = _scalar(to, limit, at, past, readable, field, table, text)
        if written <= 0:
            return written
        at = past


@inner
def _packed(
    to: int,
    limit: int,
    at: int,
    end: int,
    readable: int,
    field: int,
    wire: int,
    table: NDArray[np.int64],
    text: int,
) -> tuple[int, int]:
    """Write the items of one packed occurrence; gives the next address and the fault."""
    while at < end:
        at, past, fault = _value(at, end, wire)
        if fault != _FINE:
            return to, fault
        if load_byte(to - 1) != _BRACKET:
            to = store_byte(to, _COMMA)
        to = _scalar(to, limit, at, past, readable, field, table, text)
        if to <= 0:
            return to, _FINE
        at = past
    return to, _FINE


@inner
def _items(
    to: int,
    limit: int,
    readable: int,
    field: int,
    slot: int,
    wire: int,
    table: NDArray[np.int64],
    slots: NDArray[np.int64],
    text: int,
) -> tuple[int, int]:
    """Write all items of a repeated scalar, without the brackets."""
    if slots[slot, _COUNT] == 0:
        return to, _FINE
    packable = wire != _LENGTH
    at, last = slots[slot, _FIRST], slots[slot, _PAST]
    while True:
        found, at, past, how = _find(at, last, table[field + _NUMBER], packable, wire)
        if found == 0:
            return to, _FINE
        if packable and how == _LENGTH:
            to, fault = _packed(to, limit, at, past, readable, field, wire, table, text)
            if fault != _FINE:
                return to, fault
        else:
            if load_byte(to - 1) != _BRACKET:
                to = store_byte(to, _COMMA)
            to = _scalar(to, limit, at, past, readable, field, table, text)
        if to <= 0:
            return to, _FINE
        at = past


@inner
def _comma(to: int) -> int:
    """Write the comma before an item, unless it is the first."""
    last = load_byte(to - 1)
    return to if last == _OPEN or last == _BRACKET else store_byte(to, _COMMA)


@inner
def _merged(
    slot: int,
    field: int,
    scratch: int,
    room: int,
    table: NDArray[np.int64],
    slots: NDArray[np.int64],
) -> int:
    """Put the pieces of a message behind one another; gives the end, or 0 if there is no room."""
    at, last = slots[slot, _FIRST], slots[slot, _PAST]
    to = scratch
    while True:
        found, at, past, _ = _find(at, last, table[field + _NUMBER], False, _LENGTH)
        if found == 0:
            return to
        if past - at > scratch + room - to:
            return 0
        for byte in range(past - at):
            store_byte(to + byte, load_byte(at + byte))
        to += past - at
        at = past


@inner
def _message(
    pc: int,
    at: int,
    end: int,
    readable: int,
    to: int,
    limit: int,
    ops: NDArray[np.int64],
    table: NDArray[np.int64],
    text: int,
    stack: NDArray[np.int64],
    slots: NDArray[np.int64],
    open_: NDArray[np.int64],
    scratch: int,
    scratch_end: int,
) -> tuple[int, int, int]:
    """Transcode one message; gives the position of a fault, the end of its text, and the fault."""
    depth, base, count = 0, 0, 0
    merged = scratch
    while True:
        code, a, b = ops[pc, CODE], ops[pc, A], ops[pc, B]
        text_at, text_size = text + ops[pc, TEXT_AT], ops[pc, TEXT_SIZE]
        pc += 1
        fault = _FINE
        if code == _FIELD or code == _BARE:
            slot = base + table[a + _SLOT]
            there = slots[slot, _COUNT] > 0
            if there or table[a + _DEFAULT_SIZE] >= 0:
                if code == _FIELD:
                    to = write_literal(_comma(to), limit, text_at, text_size)
                if to > 0 and there:
                    value_at, past = slots[slot, _AT], slots[slot, _PAST]
                    if slots[slot, _COUNT] > 1 and table[a + _KIND] == _STRING:
                        to = _overridden(to, limit, readable, a, slot, table, slots, text)
                    if to > 0:
                        to = _scalar(to, limit, value_at, past, readable, a, table, text)
                elif to > 0:
                    default = text + table[a + _DEFAULT_AT]
                    to = write_literal(to, limit, default, table[a + _DEFAULT_SIZE])
        elif code == _SCAN:
            count = table[a + _SLOTS]
            if base + count > slots.shape[0]:
                return at, 0, _TOO_DEEP
            at, fault = _scan(at, end, a, base, table, slots, open_)
            to = write_literal(to, limit, text_at, text_size)
        elif code == _MESSAGE or code == _BARE_MESSAGE or code == _NEXT:
            slot = base + table[a + _SLOT]
            if code == _NEXT:
                top = depth - 1
                found, at, end, _ = _find(
                    stack[top, _NEXT_AT], stack[top, _LAST_AT], table[a + _NUMBER], False, _LENGTH
                )
                if found == 0:
                    depth = top
                    continue
                stack[top, _NEXT_AT] = end
                to = _comma(to)
            elif slots[slot, _COUNT] == 0:
                if code == _BARE_MESSAGE:
                    default = text + table[a + _DEFAULT_AT]
                    to = write_literal(to, limit, default, table[a + _DEFAULT_SIZE])
                    if to == 0:
                        return at, 0, _TOO_LONG
                continue
            else:
                at, end = slots[slot, _AT], slots[slot, _PAST]
                if slots[slot, _COUNT] > 1:
                    end = _merged(slot, a, scratch, scratch_end - scratch, table, slots)
                    if end == 0:
                        return at, 0, _MERGED
                    at, scratch = scratch, end
                if code == _MESSAGE:
                    to = write_literal(_comma(to), limit, text_at, text_size)
            if depth > MOST_DEPTH:
                fault = _TOO_DEEP
            else:
                stack[depth, _GO_ON] = pc - 1 if code == _NEXT else pc
                stack[depth, _BASE], stack[depth, _HELD] = base, count
                stack[depth, _READABLE] = readable
                depth += 1
                if scratch != merged:
                    readable, merged = scratch_end + 8, scratch
                # The slots of this message stay in use while messages in it are read.
                base += count
                pc = b
        elif code == _RETURN:
            depth -= 1
            pc, base, count = stack[depth, _GO_ON], stack[depth, _BASE], stack[depth, _HELD]
            readable = stack[depth, _READABLE]
            to = write_literal(to, limit, text_at, text_size)
        elif code == _TEXT:
            to = write_literal(to, limit, text_at, text_size)
        elif code == _REPEATED:
            to = write_literal(_comma(to), limit, text_at, text_size)
            if to > 0:
                slot = base + table[a + _SLOT]
                to, fault = _items(to, limit, readable, a, slot, b, table, slots, text)
            if to > 0 and to >= limit:
                to = 0
            if to > 0:
                to = store_byte(to, _CLOSE_BRACKET)
        elif code == _LOOP:
            slot = base + table[a + _SLOT]
            to = write_literal(_comma(to), limit, text_at, text_size)
            if depth > MOST_DEPTH:
                fault = _TOO_DEEP
            else:
                there = slots[slot, _COUNT] > 0
                stack[depth, _NEXT_AT] = slots[slot, _FIRST] if there else 0
                stack[depth, _LAST_AT] = slots[slot, _PAST] if there else 0
                depth += 1
        elif code == _KEY:
            slot = base + table[a + _SLOT]
            quoted = table[a + _KIND] != _STRING
            if to + 2 > limit:
                return at, 0, _TOO_LONG
            if quoted:
                to = store_byte(to, _QUOTE)
            if slots[slot, _COUNT] > 0:
                value_at, past = slots[slot, _AT], slots[slot, _PAST]
                to = _scalar(to, limit, value_at, past, readable, a, table, text)
            else:
                default = text + table[a + _DEFAULT_AT]
                to = write_literal(to, limit, default, table[a + _DEFAULT_SIZE])
            if to > 0 and quoted:
                to = store_byte(to, _QUOTE)
            if to > 0:
                to = store_byte(to, _COLON)
        elif code == _MOMENT:
            seconds, nanos = 0, 0
            if slots[base, _COUNT] > 0:
                _, seconds, _ = _varint(slots[base, _AT], slots[base, _PAST])
            if slots[base + 1, _COUNT] > 0:
                _, nanos, _ = _varint(slots[base + 1, _AT], slots[base + 1, _PAST])
                nanos = _signed(nanos)
            if not 0 <= nanos < 1_000_000_000:
                fault = _RANGE
            to = write_moment(to, limit, seconds, nanos, 1)
        else:
            return at, to, _FINE
        if fault == _FINE and to <= 0:
            fault = _TOO_LONG if to == 0 else _NO_TEXT if to == NOT_TEXT else _RANGE
        if fault != _FINE:
            return at, 0, fault


@kernel(error_model="numpy")
def transcode_protobuf(
    first: int,
    base: int,
    readable: int,
    bounds: NDArray[np.int64],
    headers: NDArray[np.int64],
    most_bytes: int,
    most_slots: int,
    ops: NDArray[np.int64],
    table: NDArray[np.int64],
    text: NDArray[np.uint8],
    out: int,
    capacity: int,
    out_bounds: NDArray[np.int64],
    faults: NDArray[np.uint8],
    offsets: NDArray[np.int64],
) -> int:
    """Transcode events from the first one on; gives the row where the output is full, or the end.

    Event i starts headers[i] bytes behind bounds[i]; it is left out if that is negative. No message
    has more than `most_slots` fields. The output at address `out` has PADDING bytes more than its
    capacity.
    """
    stack = np.zeros((MOST_DEPTH + 1, _FRAME_WIDTH), np.int64)
    slots = np.zeros(((MOST_DEPTH + 2) * most_slots, _SLOT_WIDTH), np.int64)
    open_ = np.zeros(MOST_DEPTH, np.int64)
    # Behind the pieces of merged messages, too, eight bytes are loaded at once.
    scratch = np.zeros(2 * most_bytes + 8, np.uint8)
    # Numba takes an address for unsigned, which beside a signed number becomes a float.
    pieces = int(np.int64(scratch.ctypes.data))
    texts = int(np.int64(text.ctypes.data))
    room = most_bytes + PADDING
    to = out + out_bounds[first]
    row = first
    while row < bounds.size - 1:
        if headers[row] >= 0:
            if out + capacity - to < room:
                break
            at, end = base + bounds[row] + headers[row], base + bounds[row + 1]
            at, tail, fault = _message(
                0,
                at,
                end,
                readable,
                to,
                to + room,
                ops,
                table,
                texts,
                stack,
                slots,
                open_,
                pieces,
                pieces + 2 * most_bytes,
            )
            faults[row] = fault
            inside = base + bounds[row] <= at <= base + bounds[row + 1]
            offsets[row] = at - base - bounds[row] if inside else -1
            if fault == _FINE:
                to = tail
        row += 1
        out_bounds[row] = to - out
    return row
