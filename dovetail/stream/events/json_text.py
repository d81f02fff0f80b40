"""Writes values as JSON text, for the kernels that transcode binary events.

Each writer is given the address to write to and that behind the last byte it may fill, and gives
the next address, or 0 where the text would not fit. Up to PADDING bytes beyond may be overwritten
for speed: an output buffer has that much room to spare.

A float is written with the fewest digits that read back as the same one (R. Giulietti, "The
Schubfach way to render doubles", 2021), in the notation of Python's repr.
"""
# Comparisons are spelt out to leave Numba no tuple to compile.
# ruff: noqa: PLR1714, SIM109

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from dovetail.stream.events.machine import (
    copy_bytes,
    each,
    inner,
    little,
    load_byte,
    lowest_bit,
    round_to_odd,
    store_byte,
    store_word,
    word_before,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

PADDING = 64

NOT_TEXT = -1
"""In the place of an address: the bytes are not UTF-8."""
OUT_OF_RANGE = -2
"""In the place of an address: no such date, or too long a number."""

_QUOTE, _BACKSLASH, _MINUS, _PLUS, _POINT, _COLON = b'"\\-+.:'
_NOUGHT, _E, _T, _Z, _U = b"0eTZu"
_ONES, _HIGH, _SPACES = each(0x01), each(0x80), each(0x20)
_QUOTES, _BACKSLASHES = each(_QUOTE), each(_BACKSLASH)
_TRUE, _FALSE, _NULL = little(b"true"), little(b"false"), little(b"null")
_NAN, _INFINITY, _MINUS_INFINITY = b'"NaN"', b'"Infinity"', b'"-Infinity"'
_ESCAPE = little(b"\\u0000")

_FIRST_DAY, _LAST_DAY = -719_162, 2_932_896
"""0001-01-01 and 9999-12-31, in days since 1970."""
_DAY_S = 86_400


def _short_escapes() -> NDArray[np.int64]:
    """Give for each control character the letter behind the backslash; 0 where there is none."""
    letters = np.zeros(32, np.int64)
    letters[[8, 9, 10, 12, 13]] = list(b"btnfr")
    return letters


_SHORT_ESCAPES = _short_escapes()
_HEX = np.frombuffer(b"0123456789abcdef", np.uint8).astype(np.int64)
_BASE64 = np.frombuffer(
    b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/", np.uint8
).astype(np.int64)


@inner
def write_null(to: int, limit: int) -> int:
    if to + 4 > limit:
        return 0
    store_word(to, _NULL)
    return to + 4


@inner
def write_boolean(to: int, limit: int, value: int) -> int:
    if to + 5 > limit:
        return 0
    if value != 0:
        store_word(to, _TRUE)
        return to + 4
    store_word(to, _FALSE)
    return store_byte(to + 4, ord("e"))


# --- whole numbers


@inner
def _count_digits(value: np.uint64) -> int:
    digits = 1
    while value >= np.uint64(10_000):
        value //= np.uint64(10_000)
        digits += 4
    while value >= np.uint64(10):
        value //= np.uint64(10)
        digits += 1
    return digits


@inner
def _put_digits(to: int, value: np.uint64, digits: int) -> int:
    """Write the last digits of a number, noughts before them."""
    for place in range(digits - 1, -1, -1):
        rest = value // np.uint64(10)
        store_byte(to + place, np.int64(value - rest * np.uint64(10)) + _NOUGHT)
        value = rest
    return to + digits


@inner
def write_unsigned(to: int, limit: int, value: int) -> int:
    """Write the 64 bits of a word as a number from 0 on."""
    if to + 20 > limit:
        return 0
    number = np.uint64(value)
    return _put_digits(to, number, _count_digits(number))


@inner
def write_signed(to: int, limit: int, value: int) -> int:
    if to + 21 > limit:
        return 0
    if value < 0:
        to = store_byte(to, _MINUS)
        value = -value  # of the least number, itself: as unsigned the right one
    return write_unsigned(to, limit, value)


# --- texts and bytes


@inner
def sequence_length(lead: int, at: int, end: int) -> int:
    """Measure a UTF-8 sequence of several bytes; 0 if it is none (Unicode, table 3-7)."""
    if not 0xC2 <= lead <= 0xF4:
        return 0
    length = 2 + (lead >= 0xE0) + (lead >= 0xF0)
    low = 0xA0 if lead == 0xE0 else 0x90 if lead == 0xF0 else 0x80
    high = 0x9F if lead == 0xED else 0x8F if lead == 0xF4 else 0xBF
    if at + length > end or not low <= load_byte(at + 1) <= high:
        return 0
    for nth in range(2, length):
        if not 0x80 <= load_byte(at + nth) <= 0xBF:
            return 0
    return length


@inner
def _write_escape(to: int, byte: int) -> int:
    if byte == _QUOTE or byte == _BACKSLASH:
        return store_byte(store_byte(to, _BACKSLASH), byte)
    letter = _SHORT_ESCAPES[byte]
    if letter != 0:
        return store_byte(store_byte(to, _BACKSLASH), letter)
    store_word(to, _ESCAPE)
    store_byte(to + 4, _HEX[byte >> 4])
    return store_byte(to + 5, _HEX[byte & 15])


@inner
def write_text(to: int, limit: int, at: int, end: int, readable: int) -> int:
    """Write UTF-8 as a string; `readable` is the end of the memory that may be loaded."""
    if to + (end - at) + 2 > limit:
        return 0
    to = store_byte(to, _QUOTE)
    while at < end:
        word = word_before(at, readable)
        quotes, slashes = word ^ _QUOTES, word ^ _BACKSLASHES
        # As in json_kernel: the high bit of each byte that cannot be copied as it is.
        special = ((quotes - _ONES) & ~quotes) | ((slashes - _ONES) & ~slashes)
        special = (special | ((word - _SPACES) & ~word) | word) & _HIGH
        plain = min(8 if special == 0 else lowest_bit(special) >> 3, end - at)
        store_word(to, word)
        at, to = at + plain, to + plain
        if special == 0 or at >= end:
            continue
        byte = load_byte(at)
        if byte >= 0x80:
            taken = sequence_length(byte, at, end)
            if taken == 0:
                return NOT_TEXT
            store_word(to, word_before(at, readable))
            at, to = at + taken, to + taken
        else:
            # Everything that is left takes at least a byte each, and the closing quote one.
            if to + 6 + (end - at) > limit:
                return 0
            at, to = at + 1, _write_escape(to, byte)
    return store_byte(to, _QUOTE)


@inner
def write_base64(to: int, limit: int, at: int, end: int) -> int:
    if to + 4 * ((end - at + 2) // 3) + 2 > limit:
        return 0
    to = store_byte(to, _QUOTE)
    while at < end:
        left = end - at
        group = load_byte(at) << 16
        if left > 1:
            group |= load_byte(at + 1) << 8
        if left > 2:
            group |= load_byte(at + 2)
        to = store_byte(to, _BASE64[group >> 18])
        to = store_byte(to, _BASE64[(group >> 12) & 63])
        to = store_byte(to, _BASE64[(group >> 6) & 63] if left > 1 else ord("="))
        to = store_byte(to, _BASE64[group & 63] if left > 2 else ord("="))
        at += 3
    return store_byte(to, _QUOTE)


# --- floats


_LEAST_POWER, _MOST_POWER = -292, 324


def _powers_of_ten() -> NDArray[np.int64]:
    """Give every power of ten in reach as 128 bits, the highest set, rounded up."""
    rows = []
    for power in range(_LEAST_POWER, _MOST_POWER + 1):
        above, below = 10 ** max(power, 0), 10 ** max(-power, 0)
        shift = ((power * 1_741_647) >> 19) - 127
        above, below = above << max(-shift, 0), below << max(shift, 0)
        rounded = -(-above // below)
        rows.append([rounded >> 64, rounded & (1 << 64) - 1])
    return np.array(rows, np.uint64).view(np.int64)


_POWERS = _powers_of_ten()


@inner
def _shortest(significand: int, exponent: int, closer: bool) -> tuple[int, int]:
    """Give the digits and the power of ten for significand × 2^exponent.

    `closer` says that the next smaller float is only half as far away as the next larger one.
    """
    if -53 < exponent <= 0 and significand & ((1 << -exponent) - 1) == 0:
        return significand >> -exponent, 0
    odd = significand & 1
    power = (exponent * 1_262_611 - (524_031 if closer else 0)) >> 22
    shift = exponent + ((-power * 1_741_647) >> 19) + 1
    high, low = _POWERS[-power - _LEAST_POWER, 0], _POWERS[-power - _LEAST_POWER, 1]
    lower = round_to_odd(high, low, (4 * significand - 2 + closer) << shift) + odd
    value = round_to_odd(high, low, (4 * significand) << shift)
    upper = round_to_odd(high, low, (4 * significand + 2) << shift) - odd
    digits = value >> 2
    if digits >= 10:
        tens = digits // 10
        down, up = lower <= 40 * tens, 40 * tens + 40 <= upper
        if down != up:
            return tens + up, power + 1
    down, up = lower <= 4 * digits, 4 * digits + 4 <= upper
    if down != up:
        return digits + up, power
    middle = 4 * digits + 2
    return digits + (value > middle or (value == middle and digits & 1 == 1)), power


@inner
def _put_float(to: int, digits: int, power: int) -> int:
    while digits % 10 == 0:
        digits, power = digits // 10, power + 1
    count = _count_digits(np.uint64(digits))
    point = count + power
    if -4 < point <= 0:
        to = store_byte(store_byte(to, _NOUGHT), _POINT)
        to = _put_digits(to, np.uint64(0), -point)
        return _put_digits(to, np.uint64(digits), count)
    if count <= point <= 16:
        to = _put_digits(to, np.uint64(digits), count)
        to = _put_digits(to, np.uint64(0), point - count)
        return store_byte(store_byte(to, _POINT), _NOUGHT)
    whole = point if 0 < point <= 16 else 1
    _put_digits(to + 1, np.uint64(digits), count)
    for nth in range(whole):
        store_byte(to + nth, load_byte(to + 1 + nth))
    if count > whole:
        store_byte(to + whole, _POINT)
        to += count + 1
    else:
        to += count
    if 0 < point <= 16:
        return to
    to = store_byte(store_byte(to, _E), _MINUS if point < 1 else _PLUS)
    size = abs(point - 1)
    return _put_digits(to, np.uint64(size), 3 if size > 99 else 2)


@inner
def _put_constant(to: int, text: bytes) -> int:
    for byte in text:
        to = store_byte(to, byte)
    return to


@inner
def _write_float(to: int, limit: int, bits: int, width: int, bias: int) -> int:
    """Write a float whose lowest `width` bits are its fraction."""
    if to + 32 > limit:
        return 0
    fraction = bits & ((1 << width) - 1)
    exponent = (bits >> width) & (2 * bias + 1)
    negative = (bits >> width) & (2 * bias + 2) != 0
    if exponent == 2 * bias + 1:
        if fraction != 0:
            return _put_constant(to, _NAN)
        return _put_constant(to, _MINUS_INFINITY if negative else _INFINITY)
    if negative:
        to = store_byte(to, _MINUS)
    if exponent == 0 and fraction == 0:
        return store_byte(store_byte(store_byte(to, _NOUGHT), _POINT), _NOUGHT)
    significand = fraction if exponent == 0 else fraction | (1 << width)
    digits, power = _shortest(
        significand, max(exponent, 1) - bias - width, fraction == 0 and exponent > 1
    )
    return _put_float(to, digits, power)


@inner
def write_double(to: int, limit: int, bits: int) -> int:
    return _write_float(to, limit, bits, 52, 1023)


@inner
def write_single(to: int, limit: int, bits: int) -> int:
    return _write_float(to, limit, bits, 23, 127)


# --- days and times


@inner
def _put_day(to: int, days: int) -> int:
    """Write a day of the years 0001 to 9999 (H. Hinnant, "chrono-compatible date algorithms")."""
    days += 719_468
    era = days // 146_097
    of_era = days - era * 146_097
    year = (of_era - of_era // 1_460 + of_era // 36_524 - of_era // 146_096) // 365
    of_year = of_era - (365 * year + year // 4 - year // 100)
    month = (5 * of_year + 2) // 153
    day = of_year - (153 * month + 2) // 5 + 1
    month = month + 3 if month < 10 else month - 9
    year += era * 400 + (month <= 2)
    to = store_byte(_put_digits(to, np.uint64(year), 4), _MINUS)
    to = store_byte(_put_digits(to, np.uint64(month), 2), _MINUS)
    return _put_digits(to, np.uint64(day), 2)


@inner
def _put_time(to: int, second: int, nanos: int) -> int:
    """Write a time of day, with as many groups of three digits for its fraction as it needs."""
    to = store_byte(_put_digits(to, np.uint64(second // 3600), 2), _COLON)
    to = store_byte(_put_digits(to, np.uint64(second // 60 % 60), 2), _COLON)
    to = _put_digits(to, np.uint64(second % 60), 2)
    if nanos == 0:
        return to
    to = store_byte(to, _POINT)
    if nanos % 1_000_000 == 0:
        return _put_digits(to, np.uint64(nanos // 1_000_000), 3)
    if nanos % 1_000 == 0:
        return _put_digits(to, np.uint64(nanos // 1_000), 6)
    return _put_digits(to, np.uint64(nanos), 9)


@inner
def write_date(to: int, limit: int, days: int) -> int:
    if not _FIRST_DAY <= days <= _LAST_DAY:
        return OUT_OF_RANGE
    if to + 12 > limit:
        return 0
    return store_byte(_put_day(store_byte(to, _QUOTE), days), _QUOTE)


@inner
def write_time(to: int, limit: int, value: int, a_second: int) -> int:
    """Write a time of day that is given in parts of a second."""
    if not 0 <= value < _DAY_S * a_second:
        return OUT_OF_RANGE
    if to + 20 > limit:
        return 0
    second = value // a_second
    nanos = (value - second * a_second) * (1_000_000_000 // a_second)
    return store_byte(_put_time(store_byte(to, _QUOTE), second, nanos), _QUOTE)


@inner
def write_timestamp(to: int, limit: int, value: int, a_second: int, zoned: int) -> int:
    """Write a moment since 1970 that is given in parts of a second."""
    second = value // a_second
    nanos = (value - second * a_second) * (1_000_000_000 // a_second)
    return write_moment(to, limit, second, nanos, zoned)


@inner
def write_moment(to: int, limit: int, second: int, nanos: int, zoned: int) -> int:
    day = second // _DAY_S
    if not _FIRST_DAY <= day <= _LAST_DAY:
        return OUT_OF_RANGE
    if to + 33 > limit:
        return 0
    to = store_byte(_put_day(store_byte(to, _QUOTE), day), _T)
    to = _put_time(to, second - day * _DAY_S, nanos)
    if zoned != 0:
        to = store_byte(to, _Z)
    return store_byte(to, _QUOTE)


# --- decimals


@inner
def write_decimal(to: int, limit: int, at: int, end: int, scale: int) -> int:
    """Write a two's complement number, its highest byte first, with `scale` digits of fraction."""
    if to + 44 + scale > limit:
        return 0
    negative = at < end and load_byte(at) >= 0x80
    filler = 0xFF if negative else 0
    while at < end and load_byte(at) == filler:
        at += 1
    if end - at > 16 or (end - at == 16 and negative != (load_byte(at) >= 0x80)):
        return OUT_OF_RANGE
    # Four limbs of 32 bits, the highest first; each holds the magnitude's bits.
    a, b, c, d = 0, 0, 0, 0
    while at < end:
        byte = load_byte(at) ^ filler
        a = (a << 8 | b >> 24) & 0xFFFFFFFF
        b = (b << 8 | c >> 24) & 0xFFFFFFFF
        c = (c << 8 | d >> 24) & 0xFFFFFFFF
        d = (d << 8 | byte) & 0xFFFFFFFF
        at += 1
    if negative:
        to = store_byte(to, _MINUS)
        d += 1
        c += d >> 32
        b += c >> 32
        a += b >> 32
        b, c, d = b & 0xFFFFFFFF, c & 0xFFFFFFFF, d & 0xFFFFFFFF
    # The digits are made from the last to the first, and turned round.
    first = to
    made = 0
    while a | b | c | d or made <= scale:
        rest = a % 10
        a //= 10
        b, rest = (rest << 32 | b) // 10, (rest << 32 | b) % 10
        c, rest = (rest << 32 | c) // 10, (rest << 32 | c) % 10
        d, rest = (rest << 32 | d) // 10, (rest << 32 | d) % 10
        if made == scale and scale > 0:
            to = store_byte(to, _POINT)
        to = store_byte(to, rest + _NOUGHT)
        made += 1
    low, high = first, to - 1
    while low < high:
        byte = load_byte(low)
        store_byte(low, load_byte(high))
        store_byte(high, byte)
        low, high = low + 1, high - 1
    return to


@inner
def write_literal(to: int, limit: int, at: int, size: int) -> int:
    """Copy text that stands in the program; its memory has room for eight bytes more."""
    if to + size > limit:
        return 0
    return copy_bytes(to, at, at + size)
