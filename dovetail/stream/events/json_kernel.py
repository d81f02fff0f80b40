"""The fast path: one strict pass over the bytes of each event.

    whitespace { "name" : value , … } whitespace
                   │        └─ checked against the type of its field as it is read
                   └─ compared with the field that followed the last one in the previous event;
                      only if that guess fails are the other names searched

The kernel decides every flat event by itself, with RFC 8259's grammar and UTF-8 validated. It
leaves UNDECIDED, for json_slow, what is rare and cheaper to read in Python:

- a nested object or array;
- an escape in a member's name, or in a string whose content matters (key, date, timestamp,
  decimal);
- a float or decimal of 10^308 and more, which may round to infinity.

Both paths give the same reasons, offsets, spans and keys; a property test holds them to it.

Positions are machine addresses, which spares an addition and a wraparound check a byte; eight
bytes are loaded at once. No load goes beyond `limit`, the end of the batch's buffer: the caller
vouches for the bounds. All functions of the kernel stand in this file, because Numba's cache looks
at no other file to see whether it is stale.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.extending import intrinsic
from numpy import uint64

from dovetail.stream.events.reasons import Reason
from dovetail.stream.events.schema import FieldType

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from dovetail.stream.events.schema import EventSchema

UNDECIDED = 255
"""In the place of a reason: ask json_slow."""

# Kinds of values: the field types, a text that is (part of) the key, and anything.
_INT, _FLOAT, _DECIMAL, _TEXT, _BOOLEAN, _DATE, _TIMESTAMP = (int(kind) for kind in FieldType)
_KEY_TEXT = 7
_ANYTHING = 8

# What reading a value, or a string, came to.
_FITS, _NULL, _MISFIT, _BROKEN, _UNSURE = range(5)
_PLAIN, _ESCAPED = 0, 1

_GOOD = int(Reason.GOOD)
_TOMBSTONE = int(Reason.TOMBSTONE)
_OVERSIZED = int(Reason.OVERSIZED)
_EMPTY = int(Reason.EMPTY)
_INVALID_JSON = int(Reason.INVALID_JSON)
_NULL_KEY = int(Reason.NULL_KEY)
_NULL_FIELD = int(Reason.NULL_FIELD)
_WRONG_TYPE = int(Reason.WRONG_TYPE)
_UNKNOWN_FIELD = int(Reason.UNKNOWN_FIELD)
_MISSING_KEY = int(Reason.MISSING_KEY)
_MISSING_FIELD = int(Reason.MISSING_FIELD)

_QUOTE, _BACKSLASH, _COLON, _COMMA, _MINUS, _PLUS, _POINT = b'"\\:,-+.'
_OPEN, _CLOSE, _BRACKET = b"{}["
_NOUGHT = ord("0")
_LOWER_E, _LOWER_T, _LOWER_U, _LOWER_Z, _SPACE = b"etuz "


def _each(byte: int) -> uint64:
    """Repeat a byte in all eight of a word."""
    return uint64(byte * 0x0101010101010101)


_ONES, _HIGH, _SPACES = _each(0x01), _each(0x80), _each(0x20)
_QUOTES, _BACKSLASHES = _each(_QUOTE), _each(_BACKSLASH)


def _little(text: bytes) -> uint64:
    """Give the word that a load of these (at most eight) bytes gives."""
    return uint64(int.from_bytes(text, "little"))


_TRUE_WORD, _FALSE_WORD, _NULL_WORD = _little(b"true"), _little(b"false"), _little(b"null")
_FOUR, _FIVE = _little(b"\xff" * 4), _little(b"\xff" * 5)

# A fixed pattern is checked in one word: XOR turns digits into 0..9 and separators into 0, and the
# addend lifts every byte beyond that to 0x80.
_YEAR_MONTH, _YEAR_MONTH_ADDEND = _little(b"0000-00-"), _little(b"vvvv\x7fvv\x7f")
_DAY, _DAY_ADDEND, _DAY_MASK = _little(b"00"), _little(b"vv"), _little(b"\xff\xff")
_TIME, _TIME_ADDEND = _little(b"00:00:00"), _little(b"vv\x7fvv\x7fvv")


class Tables(NamedTuple):
    """A schema for the kernel: row f is field f, and a last row stands for an unknown one."""

    kinds: NDArray[np.int64]
    optional: NDArray[np.bool_]
    part: NDArray[np.int64]
    """Which part of the key a field is; -1 for none."""
    key_fields: NDArray[np.int64]
    head: NDArray[np.uint64]
    """The first eight bytes of the name with its closing quote, and the mask of those in use."""
    mask: NDArray[np.uint64]
    length: NDArray[np.int64]
    names: NDArray[np.uint8]
    name_at: NDArray[np.int64]
    required: int
    """How many fields are not optional."""
    max_bytes: int


class Columns(NamedTuple):
    """What the kernel finds; row i is event i."""

    reasons: NDArray[np.uint8]
    field: NDArray[np.int64]
    """The offending field; -1 where there is none in the schema."""
    offset: NDArray[np.int64]
    """Where the offence is, from the event's first byte; -1 where it is nowhere."""
    start: NDArray[np.int64]
    end: NDArray[np.int64]
    keys: NDArray[np.int64]
    part_start: NDArray[np.int64]
    """Where in the batch part p of a text or composite key stands; -1 unless the kernel knows."""
    part_end: NDArray[np.int64]


def tables_of(schema: EventSchema) -> Tables:
    names = [name.encode() + b'"' for name in schema.fields]
    fields = list(schema.fields.items())
    parts = [schema.key.index(name) if name in schema.key else -1 for name in schema.fields]
    kinds = [
        _KEY_TEXT if part >= 0 and field.type is FieldType.TEXT else int(field.type)
        for part, (_, field) in zip(parts, fields, strict=True)
    ]
    return Tables(
        kinds=np.array([*kinds, _ANYTHING], np.int64),
        optional=np.array([*(field.optional for _, field in fields), True], np.bool_),
        part=np.array([*parts, -1], np.int64),
        key_fields=np.array([list(schema.fields).index(name) for name in schema.key], np.int64),
        head=np.array([_little(name[:8]) for name in names], np.uint64),
        mask=np.array([_little(b"\xff" * len(name[:8])) for name in names], np.uint64),
        length=np.array([len(name) for name in names], np.int64),
        names=np.frombuffer(bytearray().join(names), np.uint8).copy(),
        name_at=np.cumsum([0, *map(len, names[:-1])], dtype=np.int64),
        required=sum(not field.optional for _, field in fields),
        max_bytes=schema.max_bytes,
    )


def empty_columns(events: int, schema: EventSchema) -> Columns:
    parts = 0 if schema.int_key else len(schema.key)
    return Columns(
        reasons=np.empty(events, np.uint8),
        field=np.empty(events, np.int64),
        offset=np.empty(events, np.int64),
        start=np.empty(events, np.int64),
        end=np.empty(events, np.int64),
        keys=np.zeros(events, np.int64),
        part_start=np.full((events, parts), -1, np.int64),
        part_end=np.full((events, parts), -1, np.int64),
    )


@intrinsic
def _byte(_context: Any, address: Any) -> Any:
    def generate(_target: Any, builder: Any, _signature: Any, args: Any) -> Any:
        pointer = builder.inttoptr(args[0], ir.IntType(8).as_pointer())
        return builder.zext(builder.load(pointer), ir.IntType(64))

    return types.int64(address), generate


@intrinsic
def _load(_context: Any, address: Any) -> Any:
    def generate(_target: Any, builder: Any, _signature: Any, args: Any) -> Any:
        pointer = builder.inttoptr(args[0], ir.IntType(64).as_pointer())
        return builder.load(pointer, align=1)

    return types.uint64(address), generate


@intrinsic
def _lowest_bit(_context: Any, word: Any) -> Any:
    """Count the zeros below the lowest one; the word must not be 0."""

    def generate(_target: Any, builder: Any, _signature: Any, args: Any) -> Any:
        return builder.cttz(args[0], ir.Constant(ir.IntType(1), 1))

    return types.int64(word), generate


@njit(nogil=True)
def _word(at: int, limit: int) -> uint64:
    """Load eight bytes, zeros beyond the limit."""
    if at + 8 <= limit:
        return _load(at)
    word = uint64(0)
    for nth in range(limit - at):
        word |= uint64(_byte(at + nth)) << uint64(8 * nth)
    return word


@njit(nogil=True)
def _skip(at: int, end: int) -> int:
    """Give the first position at or after this one that holds no whitespace."""
    while at < end:
        byte = _byte(at)
        if byte > 0x20 or (byte != 0x20 and byte != 0x0A and byte != 0x0D and byte != 0x09):
            break
        at += 1
    return at


@njit(nogil=True)
def _is_digit(at: int, end: int) -> bool:
    return at < end and 0 <= _byte(at) - _NOUGHT <= 9


@njit(nogil=True)
def _past_digits(at: int, end: int) -> int:
    while _is_digit(at, end):
        at += 1
    return at


# --- strings


@njit(nogil=True)
def _string(at: int, end: int, limit: int) -> tuple[int, int]:
    """Read a string from behind its opening quote.

    Gives the position of its closing quote with PLAIN or ESCAPED, or that of the first wrong byte
    with BROKEN.
    """
    status = _PLAIN
    while at < end:
        word = _word(at, limit)
        quotes, slashes = word ^ _QUOTES, word ^ _BACKSLASHES
        # The high bit of each byte that is a quote, a backslash, a control character or not ASCII.
        # Borrows can only mark a byte above one that is rightly marked: the lowest is exact.
        special = ((quotes - _ONES) & ~quotes) | ((slashes - _ONES) & ~slashes)
        special = (special | ((word - _SPACES) & ~word) | word) & _HIGH
        if special == uint64(0):
            at += 8
            continue
        at += _lowest_bit(special) >> 3
        if at >= end:
            break
        byte = _byte(at)
        if byte == _QUOTE:
            return at, status
        if byte == _BACKSLASH:
            status = _ESCAPED
            taken = _escape_length(at, end)
        else:
            taken = _sequence_length(byte, at, end)
        if taken == 0:
            return at, _BROKEN
        at += taken
    return end, _BROKEN


@njit(nogil=True)
def _escape_length(at: int, end: int) -> int:
    """Measure an escape, a surrogate pair being one; 0 if it is none."""
    if at + 1 >= end:
        return 0
    letter = _byte(at + 1)
    if letter != _LOWER_U:
        for known in b'"\\/bfnrt':
            if letter == known:
                return 2
        return 0
    unit = _hex(at + 2, end)
    if unit < 0 or 0xDC00 <= unit <= 0xDFFF:
        return 0
    if not 0xD800 <= unit <= 0xDBFF:
        return 6
    if at + 7 < end and _byte(at + 6) == _BACKSLASH and _byte(at + 7) == _LOWER_U:
        if 0xDC00 <= _hex(at + 8, end) <= 0xDFFF:
            return 12
    return 0


@njit(nogil=True)
def _hex(at: int, end: int) -> int:
    """Read four hexadecimal digits; -1 if they are not there."""
    if at + 4 > end:
        return -1
    unit = 0
    for nth in range(4):
        byte = _byte(at + nth)
        letter = (byte | 0x20) - 97
        if 0 <= byte - _NOUGHT <= 9:
            unit = unit * 16 + byte - _NOUGHT
        elif 0 <= letter <= 5:
            unit = unit * 16 + 10 + letter
        else:
            return -1
    return unit


@njit(nogil=True)
def _sequence_length(lead: int, at: int, end: int) -> int:
    """Measure a UTF-8 sequence of several bytes; 0 if it is none (Unicode, table 3-7)."""
    low, high = 0x80, 0xBF
    if 0xC2 <= lead <= 0xDF:
        length = 2
    elif 0xE0 <= lead <= 0xEF:
        length = 3
        if lead == 0xE0:
            low = 0xA0
        elif lead == 0xED:
            high = 0x9F
    elif 0xF0 <= lead <= 0xF4:
        length = 4
        if lead == 0xF0:
            low = 0x90
        elif lead == 0xF4:
            high = 0x8F
    else:
        return 0
    if at + length > end or not low <= _byte(at + 1) <= high:
        return 0
    for nth in range(2, length):
        if not 0x80 <= _byte(at + nth) <= 0xBF:
            return 0
    return length


# --- the content of a string without escapes


@njit(nogil=True)
def _is_decimal(at: int, end: int) -> bool:
    if at < end and _byte(at) == _MINUS:
        at += 1
    if not _is_digit(at, end):
        return False
    at = _past_digits(at, end)
    if at < end and _byte(at) == _POINT and _is_digit(at + 1, end):
        at = _past_digits(at + 1, end)
    return at == end


@njit(nogil=True)
def _two(digits: uint64, nth: int) -> int:
    """Give the number that the digits at byte nth and its next make."""
    pair = (digits >> uint64(8 * nth)) & uint64(0x0F0F)
    return np.int64(pair & uint64(0x0F)) * 10 + np.int64(pair >> uint64(8))


@njit(nogil=True)
def _is_day(at: int, limit: int) -> bool:
    """Say whether ten bytes, which must be within the string, are a day of the calendar."""
    digits = _word(at, limit) ^ _YEAR_MONTH
    last = (_word(at + 8, limit) & _DAY_MASK) ^ _DAY
    wrong = (digits + _YEAR_MONTH_ADDEND) | digits | (last + _DAY_ADDEND) | last
    if wrong & _HIGH != uint64(0):
        return False
    year, month, day = _two(digits, 0) * 100 + _two(digits, 2), _two(digits, 5), _two(last, 0)
    if year == 0 or not 1 <= month <= 12 or day == 0:
        return False
    if month == 2:
        return day <= (29 if year % 4 == 0 and (year % 100 != 0 or year % 400 == 0) else 28)
    return day <= 30 + ((month + (month >> 3)) & 1)


@njit(nogil=True)
def _is_date(at: int, end: int, limit: int) -> bool:
    return end - at == 10 and _is_day(at, limit)


@njit(nogil=True)
def _is_timestamp(at: int, end: int, limit: int) -> bool:
    if end - at < 19 or not _is_day(at, limit):
        return False
    between = _byte(at + 10)
    if between != _SPACE and (between | 0x20) != _LOWER_T:
        return False
    digits = _word(at + 11, limit) ^ _TIME
    if ((digits + _TIME_ADDEND) | digits) & _HIGH != uint64(0):
        return False
    if _two(digits, 0) > 23 or _two(digits, 3) > 59 or _two(digits, 6) > 59:
        return False
    at += 19
    if at < end and _byte(at) == _POINT and _is_digit(at + 1, end):
        at = _past_digits(at + 1, end)
    return at == end or _is_zone(at, end)


@njit(nogil=True)
def _is_zone(at: int, end: int) -> bool:
    sign = _byte(at)
    if (sign | 0x20) == _LOWER_Z:
        return at + 1 == end
    if (sign != _PLUS and sign != _MINUS) or not _is_pair(at + 1, end, 23):
        return False
    at += 3
    if at == end:
        return True
    if _byte(at) == _COLON:
        at += 1
    return at + 2 == end and _is_pair(at, end, 59)


@njit(nogil=True)
def _is_pair(at: int, end: int, most: int) -> bool:
    if not (_is_digit(at, end) and _is_digit(at + 1, end)):
        return False
    return (_byte(at) - _NOUGHT) * 10 + _byte(at + 1) - _NOUGHT <= most


# --- values: each reader gives the next position, what it came to, and the number if it is an int


@njit(nogil=True)
def _text_value(at: int, end: int, limit: int, kind: int) -> tuple[int, int, int]:
    close, status = _string(at + 1, end, limit)
    if status == _BROKEN:
        return close, _BROKEN, 0
    if kind == _TEXT or kind == _ANYTHING:
        return close + 1, _FITS, 0
    if kind == _INT or kind == _FLOAT or kind == _BOOLEAN:
        return close + 1, _MISFIT, 0
    if status == _ESCAPED:
        return close + 1, _UNSURE, 0
    fits = (
        kind == _KEY_TEXT
        or (kind == _TIMESTAMP and _is_timestamp(at + 1, close, limit))
        or (kind == _DATE and _is_date(at + 1, close, limit))
        or (kind == _DECIMAL and _is_decimal(at + 1, close))
    )
    return close + 1, _FITS if fits else _MISFIT, 0


@njit(nogil=True)
def _number_value(at: int, end: int, kind: int) -> tuple[int, int, int]:
    negative = _byte(at) == _MINUS
    first = at + 1 if negative else at
    if not _is_digit(first, end):
        return at, _BROKEN, 0
    at = first
    magnitude = uint64(0)
    if _byte(at) == _NOUGHT:
        at += 1
    else:
        while _is_digit(at, end):
            magnitude = magnitude * uint64(10) + uint64(_byte(at) - _NOUGHT)
            at += 1
    digits = at - first
    tail, exponent = _fraction_and_exponent(at, end)
    if kind == _INT:
        # 19 digits cannot overflow 64 bits unsigned.
        most = uint64(1 << 63) if negative else uint64((1 << 63) - 1)
        fits = tail == at and digits <= 19 and magnitude <= most
        number = np.int64(uint64(0) - magnitude if negative else magnitude)
        return tail, _FITS if fits else _MISFIT, number if fits else 0
    if kind == _FLOAT or kind == _DECIMAL:
        return tail, _FITS if digits + exponent <= 308 else _UNSURE, 0
    return tail, _FITS if kind == _ANYTHING else _MISFIT, 0


@njit(nogil=True)
def _fraction_and_exponent(at: int, end: int) -> tuple[int, int]:
    """Give the end of the number and its exponent; what does not belong to it is left standing."""
    if at < end and _byte(at) == _POINT and _is_digit(at + 1, end):
        at = _past_digits(at + 1, end)
    if at >= end or (_byte(at) | 0x20) != _LOWER_E:
        return at, 0
    first = at + 1
    negative = first < end and _byte(first) == _MINUS
    if negative or (first < end and _byte(first) == _PLUS):
        first += 1
    if not _is_digit(first, end):
        return at, 0
    exponent = 0
    at = first
    while _is_digit(at, end):
        # Beyond any number of digits that fits into an event, its exact size does not matter.
        exponent = min(exponent * 10 + _byte(at) - _NOUGHT, 1 << 50)
        at += 1
    return at, -exponent if negative else exponent


@njit(nogil=True)
def _word_value(at: int, end: int, limit: int, kind: int) -> tuple[int, int, int]:
    word = _word(at, limit)
    is_boolean = kind == _BOOLEAN or kind == _ANYTHING
    if at + 4 <= end and word & _FOUR == _NULL_WORD:
        return at + 4, _NULL, 0
    if at + 4 <= end and word & _FOUR == _TRUE_WORD:
        return at + 4, _FITS if is_boolean else _MISFIT, 0
    if at + 5 <= end and word & _FIVE == _FALSE_WORD:
        return at + 5, _FITS if is_boolean else _MISFIT, 0
    return at, _BROKEN, 0


@njit(nogil=True)
def _value(at: int, end: int, limit: int, kind: int) -> tuple[int, int, int]:
    if at >= end:
        return end, _BROKEN, 0
    first = _byte(at)
    if first == _QUOTE:
        return _text_value(at, end, limit, kind)
    if first == _MINUS or 0 <= first - _NOUGHT <= 9:
        return _number_value(at, end, kind)
    if first == _OPEN or first == _BRACKET:
        return at, _UNSURE, 0
    return _word_value(at, end, limit, kind)


# --- the event


@njit(nogil=True)
def _is_name(at: int, end: int, limit: int, tables: Tables, field: int) -> bool:
    """Say whether this field's name, with its closing quote, stands here."""
    length = tables.length[field]
    if at + length > end or _word(at, limit) & tables.mask[field] != tables.head[field]:
        return False
    for nth in range(8, length):
        if _byte(at + nth) != tables.names[tables.name_at[field] + nth]:
            return False
    return True


@njit(nogil=True)
def _offence(verdict: int, tables: Tables, field: int) -> int:
    """Name what is wrong with a member that was read whole, if anything is."""
    if tables.kinds[field] == _ANYTHING:
        return _UNKNOWN_FIELD
    if verdict == _MISFIT:
        return _WRONG_TYPE
    if verdict == _NULL and not tables.optional[field]:
        return _NULL_KEY if tables.part[field] >= 0 else _NULL_FIELD
    return _GOOD


@njit(nogil=True)
def _keep_key(row: int, part: int, at: int, tail: int, number: int, base: int, out: Columns) -> None:
    if out.part_start.shape[1] == 0:
        out.keys[row] = number
        return
    if _byte(at) == _QUOTE:
        at, tail = at + 1, tail - 1
    elif _byte(at) == _MINUS and number == 0:
        at += 1  # the canonical form of -0 is 0
    out.part_start[row, part] = at - base
    out.part_end[row, part] = tail - base


@njit(nogil=True)
def _missing(row: int, tables: Tables, seen: NDArray[np.int64]) -> tuple[int, int]:
    for field in tables.key_fields:
        if seen[field] != row:
            return _MISSING_KEY, field
    for field in range(tables.length.size):
        if seen[field] != row and not tables.optional[field]:
            return _MISSING_FIELD, field
    return _GOOD, -1


@njit(nogil=True)
def _event(
    row: int,
    at: int,
    end: int,
    base: int,
    limit: int,
    tables: Tables,
    follower: NDArray[np.int64],
    seen: NDArray[np.int64],
    out: Columns,
) -> tuple[int, int, int, int]:
    """Read an event from behind its opening brace.

    Gives the reason, the offending field, the offence's position (0 for nowhere) and the position
    behind the closing brace.
    """
    reason, culprit, place = _GOOD, -1, 0
    unknown = tables.length.size
    previous = unknown
    required = 0
    at = _skip(at, end)
    more = not (at < end and _byte(at) == _CLOSE)
    if not more:
        at += 1
    while more:
        if at >= end or _byte(at) != _QUOTE:
            return _INVALID_JSON, -1, at, 0
        name_at = at
        field = follower[previous]
        if _is_name(at + 1, end, limit, tables, field):
            at += 1 + tables.length[field]
        else:
            close, status = _string(at + 1, end, limit)
            if status == _BROKEN:
                return _INVALID_JSON, -1, close, 0
            if status == _ESCAPED:
                return UNDECIDED, -1, 0, 0
            field = 0
            while field < unknown and not _is_name(at + 1, end, limit, tables, field):
                field += 1
            at = close + 1
            if field < unknown:
                follower[previous] = field
        at = _skip(at, end)
        if at >= end or _byte(at) != _COLON:
            return _INVALID_JSON, -1, at, 0
        value_at = _skip(at + 1, end)
        at, verdict, number = _value(value_at, end, limit, tables.kinds[field])
        if verdict == _BROKEN:
            return _INVALID_JSON, -1, at, 0
        if verdict == _UNSURE:
            return UNDECIDED, -1, 0, 0
        offence = _offence(verdict, tables, field)
        if offence != _GOOD and reason == _GOOD:
            reason = offence
            culprit = field if field < unknown else -1
            place = value_at if field < unknown else name_at
        if offence == _GOOD and tables.part[field] >= 0:
            _keep_key(row, tables.part[field], value_at, at, number, base, out)
        if field < unknown:
            if seen[field] != row and not tables.optional[field]:
                required += 1
            seen[field] = row
            previous = field
        at = _skip(at, end)
        if at >= end:
            return _INVALID_JSON, -1, at, 0
        byte = _byte(at)
        if byte != _COMMA and byte != _CLOSE:
            return _INVALID_JSON, -1, at, 0
        at += 1
        more = byte == _COMMA
        if more:
            at = _skip(at, end)
    tail = at
    at = _skip(at, end)
    if at != end:
        return _INVALID_JSON, -1, at, 0
    if reason == _GOOD and required < tables.required:
        reason, culprit = _missing(row, tables, seen)
    return reason, culprit, place, tail


@njit(cache=True, nogil=True)
def decode_events(
    base: int,
    size: int,
    bounds: NDArray[np.int64],
    tombstones: NDArray[np.bool_],
    tables: Tables,
    out: Columns,
) -> None:
    """Decide what can be decided of every event between the bounds.

    A bad or undecided event keeps its whole span, whitespace included, and key 0.
    """
    fields = tables.length.size
    # Which field stood behind which in the last event; the last row is for the first member.
    follower = np.minimum(np.arange(1, fields + 2), fields - 1)
    follower[fields] = 0
    seen = np.full(fields, -1, np.int64)
    limit = base + size
    for row in range(bounds.size - 1):
        start, end = base + bounds[row], base + bounds[row + 1]
        culprit, place, tail = -1, 0, end
        first = start
        if tombstones[row]:
            reason = _TOMBSTONE
        elif end - start > tables.max_bytes:
            reason = _OVERSIZED
        else:
            first = _skip(start, end)
            if first == end:
                reason = _EMPTY
            elif _byte(first) != _OPEN:
                reason, place = _INVALID_JSON, first
            else:
                reason, culprit, place, tail = _event(
                    row, first + 1, end, base, limit, tables, follower, seen, out
                )
        good = reason == _GOOD
        if not good:
            out.keys[row] = 0
            out.part_start[row, :] = -1
        out.reasons[row] = reason
        out.field[row] = culprit
        out.offset[row] = place - start if place > 0 else -1
        out.start[row] = (first if good else start) - base
        out.end[row] = (tail if good else end) - base


@njit(cache=True, nogil=True)
def key_lengths(out: Columns) -> NDArray[np.int64]:
    """Measure the canonical keys; 0 where the kernel knows none."""
    events, parts = out.part_start.shape
    lengths = np.zeros(events, np.int64)
    for row in range(events):
        if out.part_start[row, 0] >= 0:
            lengths[row] = parts - 1
            for part in range(parts):
                lengths[row] += out.part_end[row, part] - out.part_start[row, part]
    return lengths


@njit(cache=True, nogil=True)
def copy_keys(
    base: int,
    out: Columns,
    separator: int,
    key_bounds: NDArray[np.int64],
    key_data: NDArray[np.uint8],
) -> None:
    """Join the parts of every key that the kernel knows, each at its bounds."""
    events, parts = out.part_start.shape
    for row in range(events):
        if out.part_start[row, 0] < 0:
            continue
        to = key_bounds[row]
        for part in range(parts):
            if part > 0:
                key_data[to] = separator
                to += 1
            for at in range(out.part_start[row, part], out.part_end[row, part]):
                key_data[to] = _byte(base + at)
                to += 1
