"""Transcodes a batch of Avro data into JSON text, by following a program.

    for each event:  pc = its program's first op
                     repeat: write the op's text; read what the op says; write that as JSON
                     until END, the end of the bytes, or a fault

The only state beside three positions (the op, the next byte in, the next byte out) is a stack with
a frame for each record, array and map under way. Every turn of the loop reads a byte, writes one,
or moves on in the program without going back; only NEXT goes back, and the items of an event are
counted. So the work for an event is bounded by its size and the program's.

Positions are machine addresses, as in json_kernel.
"""
# An interpreter is branches; comparisons are spelt out to leave Numba no tuple to compile.
# ruff: noqa: C901, PLR0912, PLR0915, PLR1714, SIM109

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from dovetail.kernels import kernel
from dovetail.stream.events.avro.ops import IS_MAP, IS_SKIPPED, Op
from dovetail.stream.events.faults import MOST_DEPTH, Fault
from dovetail.stream.events.json_text import (
    NOT_TEXT,
    OUT_OF_RANGE,
    PADDING,
    write_base64,
    write_boolean,
    write_date,
    write_decimal,
    write_double,
    write_literal,
    write_null,
    write_signed,
    write_single,
    write_text,
    write_time,
    write_timestamp,
)
from dovetail.stream.events.machine import (
    double_of_int,
    double_of_single,
    inner,
    load_byte,
    load_word,
    single_of_int,
    store_byte,
    word_before,
)
from dovetail.stream.events.program import CODE, TEXT_AT, TEXT_SIZE, A, B

if TYPE_CHECKING:
    from numpy.typing import NDArray

_END, _TEXT, _LONG, _INT, _STRING, _DOUBLE = (
    int(op) for op in (Op.END, Op.TEXT, Op.LONG, Op.INT, Op.STRING, Op.DOUBLE)
)
_BOOLEAN, _UNION, _JUMP, _TIMESTAMP, _DECIMAL, _ENUM = (
    int(op) for op in (Op.BOOLEAN, Op.UNION, Op.JUMP, Op.TIMESTAMP, Op.DECIMAL, Op.ENUM)
)
_CALL, _RETURN, _LOOP, _NEXT, _NULL, _FLOAT, _BYTES, _FIXED, _DATE, _TIME = (
    int(op)
    for op in (
        *(Op.CALL, Op.RETURN, Op.LOOP, Op.NEXT, Op.NULL),
        *(Op.FLOAT, Op.BYTES, Op.FIXED, Op.DATE, Op.TIME),
    )
)
_FLOAT_AS_DOUBLE, _LONG_AS_DOUBLE, _LONG_AS_FLOAT = (
    int(op) for op in (Op.FLOAT_AS_DOUBLE, Op.LONG_AS_DOUBLE, Op.LONG_AS_FLOAT)
)
_SKIP_LONG, _SKIP_BYTES, _SKIP_FIXED = (
    int(op) for op in (Op.SKIP_LONG, Op.SKIP_BYTES, Op.SKIP_FIXED)
)
_FINE, _TRUNCATED, _TRAILING, _LONG_VARINT, _INT_RANGE, _NO_BOOLEAN, _LENGTH, _NO_TEXT = (
    int(fault)
    for fault in (
        *(Fault.NONE, Fault.TRUNCATED, Fault.TRAILING, Fault.LONG_VARINT),
        *(Fault.INT_RANGE, Fault.BOOLEAN, Fault.LENGTH, Fault.NOT_TEXT),
    )
)
_NO_SYMBOL, _NO_BRANCH, _TOO_DEEP, _TOO_MANY, _RANGE, _MISMATCH, _TOO_LONG = (
    int(fault)
    for fault in (
        *(Fault.SYMBOL, Fault.BRANCH, Fault.TOO_DEEP, Fault.ITEMS),
        *(Fault.RANGE, Fault.MISMATCH, Fault.TOO_LONG),
    )
)
_COMMA, _COLON = b",:"
_LEAST = -(1 << 63)
_FOUR_BYTES = 0xFFFFFFFF

# A frame: where a record goes on, or how many items of a block are left and whether one came.
_GO_ON, _LEFT, _BEGUN = range(3)


@inner
def _varint(at: int, end: int) -> tuple[int, int, int]:
    """Read an unsigned number; gives the next position, the number and the fault."""
    number, shift = 0, 0
    while at < end:
        byte = load_byte(at)
        at += 1
        if shift == 63 and byte > 1:
            return at, 0, _LONG_VARINT
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return at, number, _FINE
        shift += 7
    return at, 0, _TRUNCATED


@inner
def _long(at: int, end: int) -> tuple[int, int, int]:
    """Read a signed number, which is stored in zigzag."""
    if at < end and load_byte(at) < 0x80:
        byte = load_byte(at)
        return at + 1, (byte >> 1) ^ -(byte & 1), _FINE
    at, number, fault = _varint(at, end)
    half = int(np.int64(np.uint64(number) >> np.uint64(1)))
    return at, half ^ -(number & 1), fault


@inner
def _span(at: int, end: int) -> tuple[int, int, int]:
    """Read a length; gives the first position of what it measures, the one behind, the fault."""
    at, size, fault = _long(at, end)
    if fault != _FINE:
        return at, at, fault
    if size < 0:
        return at, at, _LENGTH
    return (at, at, _TRUNCATED) if size > end - at else (at, at + size, _FINE)


@inner
def _block(at: int, end: int) -> tuple[int, int, int]:
    """Read how many items a block has; a negative count has the block's bytes behind it."""
    at, count, fault = _long(at, end)
    if fault == _FINE and count < 0:
        at, size, fault = _long(at, end)
        if fault == _FINE and (size < 0 or count == _LEAST):
            return at, 0, _LENGTH
        count = -count
    return at, count, fault


@inner
def _written(to: int) -> int:
    """Name the fault that a writer gives in the place of an address."""
    if to == 0:
        return _TOO_LONG
    return _NO_TEXT if to == NOT_TEXT else _RANGE if to == OUT_OF_RANGE else _FINE


@inner
def _datum(
    pc: int,
    at: int,
    end: int,
    readable: int,
    to: int,
    limit: int,
    most_items: int,
    ops: NDArray[np.int64],
    table: NDArray[np.int64],
    text: int,
    stack: NDArray[np.int64],
) -> tuple[int, int, int]:
    """Transcode one datum; gives where its bytes and its text end, and the fault."""
    depth, items = 0, 0
    while True:
        code, a, b = ops[pc, CODE], ops[pc, A], ops[pc, B]
        size = ops[pc, TEXT_SIZE]
        if size > 0:
            to = write_literal(to, limit, text + ops[pc, TEXT_AT], size)
            if to == 0:
                return at, 0, _TOO_LONG
        pc += 1
        fault = _FINE
        if code == _LONG:
            at, number, fault = _long(at, end)
            to = write_signed(to, limit, number)
        elif code == _STRING:
            at, past, fault = _span(at, end)
            to = write_text(to, limit, at, past, readable)
            at = past
        elif code == _INT:
            at, number, fault = _long(at, end)
            if fault == _FINE and not -(1 << 31) <= number < 1 << 31:
                fault = _INT_RANGE
            to = write_signed(to, limit, number)
        elif code == _UNION:
            at, number, fault = _long(at, end)
            if fault == _FINE and not 0 <= number < b:
                fault = _NO_BRANCH
            elif fault == _FINE:
                pc = table[a + number]
        elif code == _JUMP:
            pc = a
        elif code == _TEXT:
            pass
        elif code == _DOUBLE:
            if end - at < 8:
                fault = _TRUNCATED
            else:
                to = write_double(to, limit, load_word(at))
                at += 8
        elif code == _BOOLEAN:
            if at >= end:
                fault = _TRUNCATED
            elif load_byte(at) > 1:
                fault = _NO_BOOLEAN
            else:
                to = write_boolean(to, limit, load_byte(at))
                at += 1
        elif code == _CALL:
            if depth > MOST_DEPTH:
                fault = _TOO_DEEP
            else:
                stack[depth, _GO_ON] = pc
                depth += 1
                pc = a
        elif code == _RETURN:
            depth -= 1
            pc = stack[depth, _GO_ON]
        elif code == _LOOP:
            if depth > MOST_DEPTH:
                fault = _TOO_DEEP
            else:
                stack[depth, _LEFT] = stack[depth, _BEGUN] = 0
                depth += 1
        elif code == _NEXT:
            top = depth - 1
            if stack[top, _LEFT] == 0:
                at, count, fault = _block(at, end)
                if fault == _FINE and count > most_items - items:
                    fault = _TOO_MANY
                items += count
                stack[top, _LEFT] = count
            if fault != _FINE:
                pass
            elif stack[top, _LEFT] == 0:
                depth = top
                pc = a
            else:
                stack[top, _LEFT] -= 1
                if b & IS_SKIPPED == 0 and stack[top, _BEGUN] != 0:
                    if to >= limit:
                        return at, 0, _TOO_LONG
                    to = store_byte(to, _COMMA)
                stack[top, _BEGUN] = 1
                if b & IS_MAP:
                    at, past, fault = _span(at, end)
                    if b & IS_SKIPPED == 0:
                        to = write_text(to, limit - 1, at, past, readable)
                        if to > 0:
                            to = store_byte(to, _COLON)
                    at = past
        elif code == _TIMESTAMP:
            at, number, fault = _long(at, end)
            to = write_timestamp(to, limit, number, a, b)
        elif code == _DECIMAL:
            past = at + b
            if b < 0:
                at, past, fault = _span(at, end)
            elif past > end:
                past, fault = at, _TRUNCATED
            to = write_decimal(to, limit, at, past, a)
            at = past
        elif code == _ENUM:
            at, number, fault = _long(at, end)
            if fault == _FINE:
                if not 0 <= number < b or table[a + 2 * number] < 0:
                    fault = _NO_SYMBOL
                else:
                    symbol = a + 2 * number
                    to = write_literal(to, limit, text + table[symbol], table[symbol + 1])
        elif code == _NULL:
            to = write_null(to, limit)
        elif code == _FLOAT or code == _FLOAT_AS_DOUBLE:
            if end - at < 4:
                fault = _TRUNCATED
            else:
                bits = word_before(at, readable) & _FOUR_BYTES
                if code == _FLOAT:
                    to = write_single(to, limit, bits)
                else:
                    to = write_double(to, limit, double_of_single(bits))
                at += 4
        elif code == _BYTES:
            at, past, fault = _span(at, end)
            to = write_base64(to, limit, at, past)
            at = past
        elif code == _FIXED:
            if a > end - at:
                fault = _TRUNCATED
            else:
                to = write_base64(to, limit, at, at + a)
                at += a
        elif code == _DATE:
            at, number, fault = _long(at, end)
            to = write_date(to, limit, number)
        elif code == _TIME:
            at, number, fault = _long(at, end)
            to = write_time(to, limit, number, a)
        elif code == _LONG_AS_DOUBLE:
            at, number, fault = _long(at, end)
            to = write_double(to, limit, double_of_int(number))
        elif code == _LONG_AS_FLOAT:
            at, number, fault = _long(at, end)
            to = write_single(to, limit, single_of_int(number))
        elif code == _SKIP_LONG:
            at, number, fault = _long(at, end)
        elif code == _SKIP_BYTES:
            _, at, fault = _span(at, end)
        elif code == _SKIP_FIXED:
            if a > end - at:
                fault = _TRUNCATED
            else:
                at += a
        elif code == _END:
            return at, to, _FINE if at == end else _TRAILING
        else:
            fault = _MISMATCH
        if fault == _FINE and to <= 0:
            fault = _written(to)
        if fault != _FINE:
            return at, 0, fault


@kernel(error_model="numpy")
def transcode_avro(
    first: int,
    base: int,
    readable: int,
    bounds: NDArray[np.int64],
    header: int,
    starts: NDArray[np.int64],
    most_bytes: int,
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

    Event i starts `header` bytes behind bounds[i] and is read by the program that begins at op
    starts[i]; it is left out if that is negative. The output at address `out` has PADDING bytes
    more than its capacity.
    """
    stack = np.zeros((MOST_DEPTH + 1, 3), np.int64)
    # Numba takes an address for unsigned, which beside a signed number becomes a float.
    texts = int(np.int64(text.ctypes.data))
    room = most_bytes + PADDING
    to = out + out_bounds[first]
    row = first
    while row < bounds.size - 1:
        if starts[row] >= 0:
            if out + capacity - to < room:
                break
            at, end = base + bounds[row] + header, base + bounds[row + 1]
            at, tail, fault = _datum(
                starts[row],
                at,
                end,
                readable,
                to,
                to + room,
                most_bytes,
                ops,
                table,
                texts,
                stack,
            )
            faults[row] = fault
            offsets[row] = at - base - bounds[row]
            if fault == _FINE:
                to = tail
        row += 1
        out_bounds[row] = to - out
    return row
