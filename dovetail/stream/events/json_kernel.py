"""The fast path: one strict pass over the bytes of each event.

    whitespace { "name" : value , … } whitespace
                   │        ├─ checked against the type of its field as it is read
                   │        └─ { of an object with fields in it: its members are read alike, up to
                   │           its }, where the table says in which object the event goes on
                   └─ compared with the field that followed the last one in the previous event;
                      only if that guess fails are the other names searched

The kernel decides nearly every event by itself, with RFC 8259's grammar and UTF-8 validated. It
leaves UNDECIDED, for json_slow, what is rare and cheaper to read in Python:

- a value nested deeper than MOST_NESTING;
- an escape in a member's name, or in a string whose content matters (key, date, timestamp,
  decimal);
- a float or decimal of 10^308 and more, which may round to infinity.

Both paths give the same reasons, offsets, spans and keys; a property test holds them to it.

Positions are machine addresses, which spares an addition and a wraparound check a byte; eight
bytes are loaded at once. No load goes beyond `limit`, the end of the batch's buffer: the caller
vouches for the bounds.
"""
# A grammar is branches and returns; comparisons are spelt out to leave Numba no tuple to compile.
# ruff: noqa: C901, PLR0911, PLR0912, PLR0915, PLR1714, SIM109

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from dovetail.kernels import kernel
from dovetail.stream.events.machine import each as _each
from dovetail.stream.events.machine import inner as _inner
from dovetail.stream.events.machine import little as _little
from dovetail.stream.events.machine import load_byte as _byte
from dovetail.stream.events.machine import lowest_bit as _lowest_bit
from dovetail.stream.events.machine import word_before as _word
from dovetail.stream.events.paths import split
from dovetail.stream.events.reasons import Reason
from dovetail.stream.events.schema import MOST_NESTING, NO_TIME, FieldType

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from dovetail.stream.events.schema import EventSchema

UNDECIDED = 255
"""In the place of a reason: ask json_slow."""

# Kinds of values: the field types, a text that is (part of) the key, an object with fields in it,
# anything, and the timestamp that is the event's time.
_INT, _FLOAT, _DECIMAL, _TEXT, _BOOLEAN, _DATE, _TIMESTAMP, _JSON = map(int, FieldType)
_KEY_TEXT = 8
_OBJECT = 9
_ANYTHING = 10
_EVENT_TIME = 11

# What reading a value, or a string, came to.
_FITS, _NULL, _MISFIT, _BROKEN, _UNSURE = range(5)
FITS, BROKEN, UNSURE = _FITS, _BROKEN, _UNSURE
_PLAIN, _ESCAPED = 0, 1
_BROKEN_NAME, _ESCAPED_NAME = -1, -2

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
_OPEN, _CLOSE, _BRACKET, _CLOSE_BRACKET = b"{}[]"
_NOUGHT = ord("0")
_LEAST = -(1 << 63)
_LOWER_E, _LOWER_T, _LOWER_U, _LOWER_Z, _SPACE = b"etuz "


_ONES, _HIGH, _SPACES = _each(0x01), _each(0x80), _each(0x20)
_QUOTES, _BACKSLASHES = _each(_QUOTE), _each(_BACKSLASH)


_TRUE_WORD, _FALSE_WORD, _NULL_WORD = _little(b"true"), _little(b"false"), _little(b"null")
_FOUR, _FIVE = _little(b"\xff" * 4), _little(b"\xff" * 5)

# A fixed pattern is checked in one word: XOR turns digits into 0..9 and separators into 0, and the
# addend lifts every byte beyond that to 0x80.
_YEAR_MONTH, _YEAR_MONTH_ADDEND = _little(b"0000-00-"), _little(b"vvvv\x7fvv\x7f")
_DAY, _DAY_ADDEND, _DAY_MASK = _little(b"00"), _little(b"vv"), _little(b"\xff\xff")
_TIME, _TIME_ADDEND = _little(b"00:00:00"), _little(b"vv\x7fvv\x7fvv")


# The columns of a schema's table. Row n is the schema's node n, so that row f is the field of rank
# f. A last row stands for the event itself, and for an unknown field.
_KIND, _NEED, _PARENT, _REPORTED, _FIRST, _FOLLOWER, _SEEN, _STAMP, _LENGTH, _NAME = range(10)
"""
_NEED      0 for optional, 1 for needed, 2 for needed as, or on the way to, a part of the key
_PARENT    the object in which it stands
_REPORTED  the field to report where it is missing
_FIRST     of an object: the node that stood first in it the last time
_FOLLOWER  the node that stood behind this one the last time
_SEEN      the stamp of the last object with this node
_STAMP     of an object: the number of its latest occurrence, counted through the batch
_LENGTH    of the name and its closing quote
_NAME      from here on: the first eight bytes of both, the mask of those in use, the next eight, …
"""
_IS_KEY = 2


class Columns(NamedTuple):
    """What the kernel finds; row i is event i."""

    reasons: NDArray[np.uint8]
    field: NDArray[np.int64]
    """The offending node; -1 where there is none in the schema."""
    offset: NDArray[np.int64]
    """Where the offence is, from the event's first byte; -1 where it is nowhere."""
    start: NDArray[np.int64]
    end: NDArray[np.int64]
    keys: NDArray[np.int64]
    parts: NDArray[np.int64]
    """Start and end of every part of a text or composite key in the batch, or -1: not known."""
    times: NDArray[np.int64]
    """The event's time in ms since 1970, or NO_TIME; of no length where the schema names none."""


def table_of(schema: EventSchema) -> NDArray[np.int64]:
    """Write a schema down for the kernel; a batch needs a copy of its own, being noted in it."""
    nodes = schema.nodes
    rows = {**schema.rows, (): len(nodes)}
    names = [node.path[-1].encode() + b'"' for node in nodes]
    words = max(-(-len(name) // 8) for name in names)
    table = np.zeros((len(nodes) + 1, _NAME + 2 * words), np.int64)
    table[:, _SEEN] = -1
    table[-1, _KIND] = _ANYTHING
    for row, (node, name) in enumerate(zip(nodes, names, strict=True)):
        table[row, _KIND] = _kind(schema, row)
        table[row, _NEED] = node.need
        table[row, _PARENT] = rows[node.path[:-1]]
        table[row, _REPORTED] = node.first
        table[row, _LENGTH] = len(name)
        for at in range(0, len(name), 8):
            used = name[at : at + 8]
            table[row, _NAME + at // 4 :][:2] = _little(used), _little(b"\xff" * len(used))
    for parent in rows.values():
        _guess_an_order(table, parent)
    return table


def _kind(schema: EventSchema, row: int) -> int:
    field = schema.nodes[row].field
    if field is None:
        return _OBJECT
    if schema.event_time is not None and schema.nodes[row].path == split(schema.event_time):
        return _EVENT_TIME
    return _KEY_TEXT if row < len(schema.key) and field.type is FieldType.TEXT else field.type


def _guess_an_order(table: NDArray[np.int64], parent: int) -> None:
    """Let the members of an object follow one another; the kernel corrects it as it reads."""
    members = [row for row in range(len(table) - 1) if table[row, _PARENT] == parent]
    if members:
        table[parent, _FIRST] = members[0]
        table[members, _FOLLOWER] = [*members[1:], members[0]]


def empty_columns(events: int, schema: EventSchema) -> Columns:
    parts = 0 if schema.int_key else len(schema.key)
    return Columns(
        reasons=np.empty(events, np.uint8),
        field=np.empty(events, np.int64),
        offset=np.empty(events, np.int64),
        start=np.empty(events, np.int64),
        end=np.empty(events, np.int64),
        keys=np.zeros(events, np.int64),
        parts=np.full((events, 2 * parts), -1, np.int64),
        times=np.full(0 if schema.event_time is None else events, NO_TIME, np.int64),
    )


@_inner
def skip(at: int, end: int) -> int:
    """Give the first position at or after this one that holds no whitespace."""
    while at < end:
        byte = _byte(at)
        if byte > 0x20 or (byte != 0x20 and byte != 0x0A and byte != 0x0D and byte != 0x09):
            break
        at += 1
    return at


@_inner
def _is_digit(at: int, end: int) -> bool:
    return at < end and 0 <= _byte(at) - _NOUGHT <= 9


@_inner
def _past_digits(at: int, end: int) -> int:
    while _is_digit(at, end):
        at += 1
    return at


# --- strings


@_inner
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
        if special == 0:
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


@_inner
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
    paired = at + 7 < end and _byte(at + 6) == _BACKSLASH and _byte(at + 7) == _LOWER_U
    return 12 if paired and 0xDC00 <= _hex(at + 8, end) <= 0xDFFF else 0


@_inner
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


@_inner
def _sequence_length(lead: int, at: int, end: int) -> int:
    """Measure a UTF-8 sequence of several bytes; 0 if it is none (Unicode, table 3-7)."""
    if not 0xC2 <= lead <= 0xF4:
        return 0
    length = 2 + (lead >= 0xE0) + (lead >= 0xF0)
    low = 0xA0 if lead == 0xE0 else 0x90 if lead == 0xF0 else 0x80
    high = 0x9F if lead == 0xED else 0x8F if lead == 0xF4 else 0xBF
    if at + length > end or not low <= _byte(at + 1) <= high:
        return 0
    for nth in range(2, length):
        if not 0x80 <= _byte(at + nth) <= 0xBF:
            return 0
    return length


# --- the content of a string without escapes


@_inner
def _is_decimal(at: int, end: int) -> bool:
    if at < end and _byte(at) == _MINUS:
        at += 1
    if not _is_digit(at, end):
        return False
    at = _past_digits(at, end)
    if at < end and _byte(at) == _POINT and _is_digit(at + 1, end):
        at = _past_digits(at + 1, end)
    return at == end


@_inner
def _two(digits: int, nth: int) -> int:
    """Give the number that the digits at byte nth and its next make."""
    pair = digits >> (8 * nth)
    return (pair & 0x0F) * 10 + ((pair >> 8) & 0x0F)


@_inner
def _is_day(at: int, limit: int) -> bool:
    """Say whether ten bytes, which must be within the string, are a day of the calendar."""
    digits = _word(at, limit) ^ _YEAR_MONTH
    last = (_word(at + 8, limit) & _DAY_MASK) ^ _DAY
    wrong = (digits + _YEAR_MONTH_ADDEND) | digits | (last + _DAY_ADDEND) | last
    if wrong & _HIGH != 0:
        return False
    year, month, day = _two(digits, 0) * 100 + _two(digits, 2), _two(digits, 5), _two(last, 0)
    if year == 0 or not 1 <= month <= 12 or day == 0:
        return False
    if month == 2:
        return day <= (29 if year % 4 == 0 and (year % 100 != 0 or year % 400 == 0) else 28)
    return day <= 30 + ((month + (month >> 3)) & 1)


@_inner
def _is_date(at: int, end: int, limit: int) -> bool:
    return end - at == 10 and _is_day(at, limit)


@_inner
def _is_timestamp(at: int, end: int, limit: int) -> bool:
    if end - at < 19 or not _is_day(at, limit):
        return False
    between = _byte(at + 10)
    if between != _SPACE and (between | 0x20) != _LOWER_T:
        return False
    digits = _word(at + 11, limit) ^ _TIME
    if ((digits + _TIME_ADDEND) | digits) & _HIGH != 0:
        return False
    if _two(digits, 0) > 23 or _two(digits, 3) > 59 or _two(digits, 6) > 59:
        return False
    at += 19
    if at < end and _byte(at) == _POINT and _is_digit(at + 1, end):
        at = _past_digits(at + 1, end)
    return at == end or _is_zone(at, end)


@_inner
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


@_inner
def _is_pair(at: int, end: int, most: int) -> bool:
    if not (_is_digit(at, end) and _is_digit(at + 1, end)):
        return False
    return (_byte(at) - _NOUGHT) * 10 + _byte(at + 1) - _NOUGHT <= most


@_inner
def _pair(at: int) -> int:
    return (_byte(at) - _NOUGHT) * 10 + _byte(at + 1) - _NOUGHT


@_inner
def _days(year: int, month: int, day: int) -> int:
    """Count the days since 1970 (H. Hinnant, "chrono-compatible date algorithms")."""
    year -= month <= 2
    era = year // 400
    of_era = year - era * 400
    of_year = (153 * (month - 3 if month > 2 else month + 9) + 2) // 5 + day - 1
    return era * 146_097 + of_era * 365 + of_era // 4 - of_era // 100 + of_year - 719_468


@_inner
def _milliseconds(at: int, end: int, limit: int) -> int:
    """Give the moment of what is a timestamp, in whole ms since 1970; without offset it is UTC."""
    date, time = _word(at, limit) ^ _YEAR_MONTH, _word(at + 11, limit) ^ _TIME
    days = _days(_two(date, 0) * 100 + _two(date, 2), _two(date, 5), _pair(at + 8))
    minutes = days * 1440 + _two(time, 0) * 60 + _two(time, 3)
    milliseconds = _two(time, 6) * 1000
    at += 19
    if at < end and _byte(at) == _POINT:
        place = 100
        at += 1
        while _is_digit(at, end):
            milliseconds += (_byte(at) - _NOUGHT) * place
            place //= 10
            at += 1
    if at < end and (_byte(at) == _PLUS or _byte(at) == _MINUS):
        ahead = _pair(at + 1) * 60 + (_pair(end - 2) if end - at > 3 else 0)
        minutes -= ahead if _byte(at) == _PLUS else -ahead
    return minutes * 60_000 + milliseconds


# --- values: each reader gives the next position, what it came to, and the number if it is an int
# or the event's time


@_inner
def _takes_any(kind: int) -> bool:
    return kind == _JSON or kind == _ANYTHING


@_inner
def _text_value(at: int, end: int, limit: int, kind: int) -> tuple[int, int, int]:
    close, status = _string(at + 1, end, limit)
    if status == _BROKEN:
        return close, _BROKEN, 0
    if kind == _TEXT or _takes_any(kind):
        return close + 1, _FITS, 0
    if kind == _INT or kind == _FLOAT or kind == _BOOLEAN or kind == _OBJECT:
        return close + 1, _MISFIT, 0
    if status == _ESCAPED:
        return close + 1, _UNSURE, 0
    if kind == _EVENT_TIME and _is_timestamp(at + 1, close, limit):
        return close + 1, _FITS, _milliseconds(at + 1, close, limit)
    fits = (
        kind == _KEY_TEXT
        or (kind == _TIMESTAMP and _is_timestamp(at + 1, close, limit))
        or (kind == _DATE and _is_date(at + 1, close, limit))
        or (kind == _DECIMAL and _is_decimal(at + 1, close))
    )
    return close + 1, _FITS if fits else _MISFIT, 0


@_inner
def _number_value(at: int, end: int, kind: int) -> tuple[int, int, int]:
    negative = _byte(at) == _MINUS
    first = at + 1 if negative else at
    if not _is_digit(first, end):
        return at, _BROKEN, 0
    at = first
    number = 0
    if _byte(at) == _NOUGHT:
        at += 1
    else:
        while _is_digit(at, end):
            number = number * 10 + _byte(at) - _NOUGHT
            at += 1
    digits = at - first
    tail, exponent = _fraction_and_exponent(at, end)
    if kind == _INT:
        # Up to 19 digits are below 2^64: what int64 cannot hold has wrapped to below zero.
        holds = number >= 0 or (negative and number == _LEAST)
        if tail == at and digits <= 19 and holds:
            return tail, _FITS, -number if negative else number
        return tail, _MISFIT, 0
    if kind == _FLOAT or kind == _DECIMAL:
        return tail, _FITS if digits + exponent <= 308 else _UNSURE, 0
    return tail, _FITS if _takes_any(kind) else _MISFIT, 0


@_inner
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


@_inner
def _word_value(at: int, end: int, limit: int, kind: int) -> tuple[int, int, int]:
    word = _word(at, limit)
    is_boolean = kind == _BOOLEAN or _takes_any(kind)
    if at + 4 <= end and word & _FOUR == _NULL_WORD:
        return at + 4, _NULL, 0
    if at + 4 <= end and word & _FOUR == _TRUE_WORD:
        return at + 4, _FITS if is_boolean else _MISFIT, 0
    if at + 5 <= end and word & _FIVE == _FALSE_WORD:
        return at + 5, _FITS if is_boolean else _MISFIT, 0
    return at, _BROKEN, 0


@_inner
def _scalar(at: int, end: int, limit: int, kind: int) -> tuple[int, int, int]:
    first = _byte(at)
    if first == _QUOTE:
        return _text_value(at, end, limit, kind)
    if first == _MINUS or 0 <= first - _NOUGHT <= 9:
        return _number_value(at, end, kind)
    return _word_value(at, end, limit, kind)


@_inner
def _label(at: int, end: int, limit: int) -> tuple[int, int]:
    """Step over the name and the colon that stand before a value in an object."""
    if at >= end or _byte(at) != _QUOTE:
        return at, _BROKEN
    close, status = _string(at + 1, end, limit)
    if status == _BROKEN:
        return close, _BROKEN
    at = skip(close + 1, end)
    if at >= end or _byte(at) != _COLON:
        return at, _BROKEN
    return skip(at + 1, end), _FITS


@_inner
def _nested(at: int, end: int, limit: int) -> tuple[int, int]:
    """Step over an object or an array with all that is in it.

    The lowest bit of `objects` says whether the innermost of what is open is an object.
    """
    depth, objects = 0, 0
    while True:
        # Step 1: a value is due; opening one that is not empty makes its first value due.
        if at >= end:
            return end, _BROKEN
        first = _byte(at)
        if first == _OPEN or first == _BRACKET:
            if depth == MOST_NESTING:
                return at, _UNSURE
            at = skip(at + 1, end)
            if at >= end or _byte(at) != (_CLOSE if first == _OPEN else _CLOSE_BRACKET):
                depth, objects = depth + 1, (objects << 1) | (first == _OPEN)
                if first == _OPEN:
                    at, status = _label(at, end, limit)
                    if status == _BROKEN:
                        return at, _BROKEN
                continue
            at += 1
        else:
            at, status, _ = _scalar(at, end, limit, _ANYTHING)
            if status == _BROKEN:
                return at, _BROKEN
        # Step 2: a value is done; close what it was the last of.
        while depth > 0:
            at = skip(at, end)
            if at >= end or _byte(at) != (_CLOSE if objects & 1 else _CLOSE_BRACKET):
                break
            depth, objects, at = depth - 1, objects >> 1, at + 1
        if depth == 0:
            return at, _FITS
        # Step 3: a comma makes the next value due.
        if at >= end or _byte(at) != _COMMA:
            return at, _BROKEN
        at = skip(at + 1, end)
        if objects & 1:
            at, status = _label(at, end, limit)
            if status == _BROKEN:
                return at, _BROKEN


@_inner
def past_object(at: int, end: int, limit: int) -> tuple[int, int]:
    """Step over an object: gives the next position, or the first wrong one, and what it came to.

    That is FITS, BROKEN, or UNSURE where it is nested deeper than MOST_NESTING.
    """
    if at >= end or _byte(at) != _OPEN:
        return at, _BROKEN
    return _nested(at, end, limit)


@_inner
def _value(at: int, end: int, limit: int, kind: int) -> tuple[int, int, int]:
    if at >= end:
        return end, _BROKEN, 0
    first = _byte(at)
    if first != _OPEN and first != _BRACKET:
        return _scalar(at, end, limit, kind)
    tail, status = _nested(at, end, limit)
    return tail, _MISFIT if status == _FITS and not _takes_any(kind) else status, 0


# --- the event


@_inner
def _is_name(at: int, end: int, limit: int, table: NDArray[np.int64], node: int) -> bool:
    """Say whether this node's name, with its closing quote, stands here."""
    tail = at + table[node, _LENGTH]
    if tail > end:
        return False
    column = _NAME
    while at < tail:
        if _word(at, limit) & table[node, column + 1] != table[node, column]:
            return False
        at += 8
        column += 2
    return True


@_inner
def _find(at: int, end: int, limit: int, parent: int, table: NDArray[np.int64]) -> int:
    """Give the node of this name in an object, or the row for an unknown one."""
    unknown: int = table.shape[0] - 1
    for node in range(unknown):
        if table[node, _PARENT] == parent and _is_name(at, end, limit, table, node):
            return node
    return unknown


@_inner
def _name(
    at: int, end: int, limit: int, parent: int, previous: int, table: NDArray[np.int64]
) -> tuple[int, int]:
    """Read a member's name: gives the next position, or the first wrong one, and the node.

    `previous` is the node before it in the same object, or -1.
    """
    if at >= end or _byte(at) != _QUOTE:
        return at, _BROKEN_NAME
    guess = table[parent, _FIRST] if previous < 0 else table[previous, _FOLLOWER]
    if _is_name(at + 1, end, limit, table, guess):
        return at + 1 + table[guess, _LENGTH], guess
    close, status = _string(at + 1, end, limit)
    if status == _BROKEN:
        return close, _BROKEN_NAME
    if status == _ESCAPED:
        return close, _ESCAPED_NAME
    node = _find(at + 1, close + 1, limit, parent, table)
    if node < table.shape[0] - 1:
        if previous < 0:
            table[parent, _FIRST] = node
        else:
            table[previous, _FOLLOWER] = node
    return close + 1, node


@_inner
def _offence(verdict: int, kind: int, need: int) -> int:
    """Name what is wrong with a member that was read whole, if anything is."""
    if kind == _ANYTHING:
        return _UNKNOWN_FIELD
    if verdict == _MISFIT:
        return _WRONG_TYPE
    if verdict == _NULL and need:
        return _NULL_KEY if need == _IS_KEY else _NULL_FIELD
    return _GOOD


@_inner
def _keep_part(at: int, tail: int, number: int, base: int, parts: NDArray[np.int64]) -> None:
    if _byte(at) == _QUOTE:
        at, tail = at + 1, tail - 1
    elif _byte(at) == _MINUS and number == 0:
        at += 1  # the canonical form of -0 is 0
    parts[0], parts[1] = at - base, tail - base


@_inner
def _missing(parent: int, known: int, table: NDArray[np.int64]) -> int:
    """Give the first field, in the order of rank, that an object or one before it lacks."""
    stamp = table[parent, _STAMP]
    for node in range(table.shape[0] - 1):
        if (
            table[node, _SEEN] != stamp
            and table[node, _NEED]
            and table[node, _PARENT] == parent
            and table[node, _REPORTED] < known
        ):
            known = table[node, _REPORTED]
    return known


@_inner
def _enter(node: int, stamp: int, at: int, end: int, table: NDArray[np.int64]) -> tuple[int, bool]:
    """Go on behind an object's opening brace; an empty one is closed at once."""
    table[node, _STAMP] = stamp
    at = skip(at, end)
    closed = at < end and _byte(at) == _CLOSE
    return at + closed, closed


@_inner
def _event(
    stamp: int,
    row: int,
    at: int,
    end: int,
    base: int,
    limit: int,
    key_parts: int,
    table: NDArray[np.int64],
    keys: NDArray[np.int64],
    parts: NDArray[np.int64],
    times: NDArray[np.int64],
) -> tuple[int, int, int, int, int]:
    """Read an event from behind its opening brace; the stamp is the last one used.

    Gives the reason, the offending node, the offence's position (0 for nowhere), the position
    behind the closing brace and the last stamp used.
    """
    reason, culprit, place = _GOOD, -1, 0
    root = table.shape[0] - 1
    missing = root
    parent, previous = root, -1
    stamp += 1
    at, closed = _enter(root, stamp, at, end, table)
    while True:
        if closed:
            missing = _missing(parent, missing, table)
            if parent == root:
                break
            previous, parent = parent, table[parent, _PARENT]
        else:
            name_at = at
            at, node = _name(at, end, limit, parent, previous, table)
            if node == _BROKEN_NAME:
                return _INVALID_JSON, -1, at, 0, stamp
            if node == _ESCAPED_NAME:
                return UNDECIDED, -1, 0, 0, stamp
            at = skip(at, end)
            if at >= end or _byte(at) != _COLON:
                return _INVALID_JSON, -1, at, 0, stamp
            value_at = skip(at + 1, end)
            kind = table[node, _KIND]
            if kind == _OBJECT and value_at < end and _byte(value_at) == _OPEN:
                table[node, _SEEN] = table[parent, _STAMP]
                stamp += 1
                parent, previous = node, -1
                at, closed = _enter(node, stamp, value_at + 1, end, table)
                continue
            at, verdict, number = _value(value_at, end, limit, kind)
            if verdict == _BROKEN:
                return _INVALID_JSON, -1, at, 0, stamp
            if verdict == _UNSURE:
                return UNDECIDED, -1, 0, 0, stamp
            offence = _offence(verdict, kind, table[node, _NEED])
            if offence == _GOOD:
                if node < key_parts:
                    if parts.size == 0:
                        keys[row] = number
                    else:
                        _keep_part(value_at, at, number, base, parts[row, 2 * node :])
                elif kind == _EVENT_TIME:
                    times[row] = number if verdict == _FITS else NO_TIME
            elif reason == _GOOD:
                reason = offence
                culprit, place = (node, value_at) if node < root else (-1, name_at)
            previous = -1
            if node < root:
                table[node, _SEEN] = table[parent, _STAMP]
                previous = node
        at = skip(at, end)
        if at >= end or (_byte(at) != _COMMA and _byte(at) != _CLOSE):
            return _INVALID_JSON, -1, at, 0, stamp
        closed = _byte(at) == _CLOSE
        at += 1
        if not closed:
            at = skip(at, end)
    if skip(at, end) != end:
        return _INVALID_JSON, -1, skip(at, end), 0, stamp
    if reason == _GOOD and missing < root:
        reason = _MISSING_KEY if missing < key_parts else _MISSING_FIELD
        culprit = missing
    return reason, culprit, place, at, stamp


@kernel(error_model="numpy")
def decode_events(
    base: int,
    size: int,
    bounds: NDArray[np.int64],
    tombstones: NDArray[np.bool_],
    max_bytes: int,
    key_parts: int,
    table: NDArray[np.int64],
    out: Columns,
) -> None:
    """Decide what can be decided of every event between the bounds.

    The data starts at address base and has at least eight bytes. A bad or undecided event keeps its
    whole span, whitespace included, and has neither key nor time.
    """
    reasons, fields, offsets, starts, ends, keys, parts, times = out
    stamp = 0
    for row in range(bounds.size - 1):
        start, end = base + bounds[row], base + bounds[row + 1]
        first, tail = start, end
        culprit, place = -1, 0
        if tombstones[row]:
            reason = _TOMBSTONE
        elif end - start > max_bytes:
            reason = _OVERSIZED
        else:
            first = skip(start, end)
            if first == end:
                reason = _EMPTY
            elif _byte(first) != _OPEN:
                reason, place = _INVALID_JSON, first
            else:
                reason, culprit, place, tail, stamp = _event(
                    stamp,
                    row,
                    first + 1,
                    end,
                    base,
                    base + size,
                    key_parts,
                    table,
                    keys,
                    parts,
                    times,
                )
        if reason != _GOOD:
            first, tail = start, end
            keys[row] = 0
            for column in range(parts.shape[1]):
                parts[row, column] = -1
            if times.size > 0:
                times[row] = NO_TIME
        reasons[row] = reason
        fields[row] = culprit
        offsets[row] = place - start if place > 0 else -1
        starts[row] = first - base
        ends[row] = tail - base


@kernel
def key_lengths(parts: NDArray[np.int64]) -> NDArray[np.int64]:
    """Measure the canonical keys; 0 where the kernel knows none."""
    lengths = np.zeros(parts.shape[0], np.int64)
    for row in range(lengths.size):
        if parts[row, 0] >= 0:
            lengths[row] = parts.shape[1] // 2 - 1
            for column in range(0, parts.shape[1], 2):
                lengths[row] += parts[row, column + 1] - parts[row, column]
    return lengths


@kernel
def copy_keys(
    base: int,
    parts: NDArray[np.int64],
    separator: int,
    key_bounds: NDArray[np.int64],
    key_data: NDArray[np.uint8],
) -> None:
    """Join the parts of every key that the kernel knows, each at its bounds."""
    for row in range(parts.shape[0]):
        if parts[row, 0] < 0:
            continue
        to = key_bounds[row]
        for column in range(0, parts.shape[1], 2):
            if column > 0:
                key_data[to] = separator
                to += 1
            for at in range(parts[row, column], parts[row, column + 1]):
                key_data[to] = _byte(base + at)
                to += 1
