"""Sales events as JSON, made in whole batches: a column of bytes and where each event begins.

    {"sale_id":7,"product_id":4711,"customer_id":42,"quantity":2,"amount":19.98,
     "channel":"web","sold_at":"2026-01-31T12:00:00.000Z"}

customer_id is null or missing in some. An event is a function of the seed, its sale_id and its
time alone, so a stream has the same bytes whatever the size of its batches.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING

import numpy as np

from dovetail.demo.popularity import CATALOGUE_SEED, product_ids
from dovetail.demo.randomness import random_below, random_bits, random_key, random_unit
from dovetail.demo.zipf import Zipf
from dovetail.errors import ConfigError
from dovetail.kernels import kernel

if TYPE_CHECKING:
    from numpy.typing import NDArray

OVERSIZED_BYTES = 70_000
_MAX_BYTES = 320  # of any event but an oversized one, with room to spare
_OVERSIZED_SHARE = 0.01  # of the bad events: each weighs as much as 500 good ones
_CUSTOMERS = 500_000


class Kind(IntEnum):
    """What an event was made to be; whatever follows NO_MATCH is a bad event."""

    GOOD = 0
    NO_MATCH = 1
    """A product id above the catalogue's: valid, without a master row."""
    TRUNCATED = 2
    KEY_MISSING = 3
    KEY_NULL = 4
    WRONG_TYPE = 5
    UNKNOWN_FIELD = 6
    EMPTY = 7
    TOMBSTONE = 8
    """No value at all, as a deletion in a compacted topic."""
    OVERSIZED = 9
    """Valid but for its size."""


@dataclass(frozen=True)
class EventBatch:
    data: NDArray[np.uint8]
    bounds: NDArray[np.int64]
    """Event i is data[bounds[i]:bounds[i + 1]]."""
    tombstones: NDArray[np.bool_]
    kinds: NDArray[np.uint8]

    def __len__(self) -> int:
        return self.tombstones.size

    def values(self) -> list[bytes | None]:
        """Give the events as Python objects, for clients that take nothing else."""
        data, bounds = self.data.tobytes(), self.bounds.tolist()
        dead = self.tombstones.tolist()
        return [None if dead[i] else data[bounds[i] : bounds[i + 1]] for i in range(len(self))]


@dataclass(frozen=True)
class SalesEvents:
    """The endless stream of sales of one seed; any part of it can be made at any time."""

    keys: int
    """Rows of the catalogue: product ids 1 to `keys` have a master row."""
    seed: int = 1
    skew: float = 1.0
    no_match: float = 0.02
    bad: float = 0.005
    catalogue_seed: int = CATALOGUE_SEED

    def __post_init__(self) -> None:
        for name, share in (("no-match", self.no_match), ("bad", self.bad)):
            if not 0 <= share <= 1:
                raise ConfigError(f"the share of {name} events must lie in 0..1, not {share}")
        if self.no_match + self.bad > 1:
            raise ConfigError("the shares of no-match and bad events exceed 1 together")
        Zipf(self.keys, self.skew)

    def batch(self, first: int, sold_at: NDArray[np.int64]) -> EventBatch:
        """Make the events from sale_id `first` on, one for each time (ms since 1970, UTC)."""
        count = sold_at.size
        ranks = Zipf(self.keys, self.skew).ranks(self.seed, first, count)
        products = product_ids(ranks, self.keys, self.catalogue_seed)
        kinds = np.empty(count, np.uint8)
        bad, no_match = float(self.bad), float(self.no_match)
        _choose_kinds(random_key(self.seed, "kind"), first, bad, no_match, kinds)
        # Unknown products are as skewed as known ones: a shop's mislabelled best-seller.
        products[kinds == Kind.NO_MATCH] += self.keys
        key = random_key(self.seed, "fields")
        data, bounds = _write_events(key, first, products, sold_at, kinds)
        return EventBatch(data, bounds, kinds == Kind.TOMBSTONE, kinds)


# Plain integers, because a kernel cannot read an enum of Python's.
_TRUNCATED, _KEY_MISSING, _KEY_NULL = int(Kind.TRUNCATED), int(Kind.KEY_MISSING), int(Kind.KEY_NULL)
_WRONG_TYPE, _UNKNOWN_FIELD = int(Kind.WRONG_TYPE), int(Kind.UNKNOWN_FIELD)
_EMPTY, _TOMBSTONE, _OVERSIZED = int(Kind.EMPTY), int(Kind.TOMBSTONE), int(Kind.OVERSIZED)
_NO_MATCH = int(Kind.NO_MATCH)
_FREQUENT_BAD_KINDS = _OVERSIZED - _TRUNCATED


def _text(text: str) -> NDArray[np.uint8]:
    return np.frombuffer(text.encode(), np.uint8)


_SALE_ID = _text('{"sale_id":')
_PRODUCT_ID = _text(',"product_id":')
_NOT_A_NUMBER = _text('"item ')
_CUSTOMER_ID = _text(',"customer_id":')
_NULL = _text("null")
_QUANTITY = _text(',"quantity":')
_AMOUNT = _text(',"amount":')
_CHANNEL = _text(',"channel":"')
_COUPON = _text('","coupon":"WELCOME')
_SOLD_AT = _text('","sold_at":"')
_END = _text('"}')
_TILL, _WEB, _SHOP, _PHONE = _text("till"), _text("web"), _text("shop"), _text("phone")
_CAFE = _text("café")
_QUOTE, _POINT, _ZERO, _FILLER = ord('"'), ord("."), ord("0"), ord("x")


@kernel
def _choose_kinds(
    key: np.uint64, first: int, bad: float, no_match: float, kinds: NDArray[np.uint8]
) -> None:
    for i in range(kinds.size):
        bits = random_bits(key, np.uint64(first + i))
        share = random_unit(bits)
        if share >= bad + no_match:
            kinds[i] = 0
        elif share >= bad:
            kinds[i] = _NO_MATCH
        elif random_unit(random_bits(bits, np.uint64(1))) < _OVERSIZED_SHARE:
            kinds[i] = _OVERSIZED
        else:
            choice = random_below(random_bits(bits, np.uint64(2)), _FREQUENT_BAD_KINDS)
            kinds[i] = _TRUNCATED + choice


@kernel(inline="always")
def _put(data: NDArray[np.uint8], at: int, text: NDArray[np.uint8]) -> int:
    for i in range(text.size):
        data[at + i] = text[i]
    return at + text.size


@kernel
def _put_int(data: NDArray[np.uint8], at: int, value: int) -> int:
    digits = 1
    rest = value // 10
    while rest > 0:
        digits += 1
        rest //= 10
    _put_digits(data, at, value, digits)
    return at + digits


@kernel(inline="always")
def _put_digits(data: NDArray[np.uint8], at: int, value: int, digits: int) -> None:
    """Write the last `digits` decimal digits of the value, leading zeros included."""
    for i in range(at + digits - 1, at - 1, -1):
        data[i] = _ZERO + value % 10
        value //= 10


@kernel
def _put_product(data: NDArray[np.uint8], at: int, product: int, kind: int) -> int:
    if kind == _KEY_MISSING:
        return at
    at = _put(data, at, _PRODUCT_ID)
    if kind == _KEY_NULL:
        return _put(data, at, _NULL)
    if kind == _WRONG_TYPE:
        at = _put_int(data, _put(data, at, _NOT_A_NUMBER), product)
        data[at] = _QUOTE
        return at + 1
    return _put_int(data, at, product)


@kernel
def _put_customer(data: NDArray[np.uint8], at: int, bits: np.uint64) -> int:
    """One in twenty has none, one in twenty says null: buyers without a customer card."""
    share = random_below(bits, 20 * _CUSTOMERS)
    if share < _CUSTOMERS:
        return at
    at = _put(data, at, _CUSTOMER_ID)
    if share < 2 * _CUSTOMERS:
        return _put(data, at, _NULL)
    return _put_int(data, at, 1 + share % _CUSTOMERS)


@kernel
def _put_amount(data: NDArray[np.uint8], at: int, cents: int) -> int:
    at = _put_int(data, at, cents // 100)
    data[at] = _POINT
    _put_digits(data, at + 1, cents % 100, 2)
    return at + 3


@kernel
def _put_channel(data: NDArray[np.uint8], at: int, bits: np.uint64) -> int:
    percent = random_below(bits, 100)
    if percent < 55:
        return _put(data, at, _TILL)
    if percent < 85:
        return _put(data, at, _WEB)
    if percent < 93:
        return _put(data, at, _SHOP)
    if percent < 98:
        return _put(data, at, _PHONE)
    return _put(data, at, _CAFE)


@kernel
def _render_time(milliseconds: int, stamp: NDArray[np.uint8]) -> None:
    """Fill in 2026-01-31T12:00:00.000Z; the calendar is Hinnant's days-to-civil."""
    days = milliseconds // 86_400_000
    of_day = milliseconds - days * 86_400_000
    shifted = days + 719_468
    era = shifted // 146_097
    day_of_era = shifted - era * 146_097
    year_of_era = (
        day_of_era - day_of_era // 1_460 + day_of_era // 36_524 - day_of_era // 146_096
    ) // 365
    day_of_year = day_of_era - (365 * year_of_era + year_of_era // 4 - year_of_era // 100)
    month_from_march = (5 * day_of_year + 2) // 153
    month = month_from_march + 3 if month_from_march < 10 else month_from_march - 9
    year = year_of_era + era * 400 + (1 if month <= 2 else 0)
    _put_digits(stamp, 0, year, 4)
    _put_digits(stamp, 5, month, 2)
    _put_digits(stamp, 8, day_of_year - (153 * month_from_march + 2) // 5 + 1, 2)
    _put_digits(stamp, 11, of_day // 3_600_000, 2)
    _put_digits(stamp, 14, of_day // 60_000 % 60, 2)
    _put_digits(stamp, 17, of_day // 1_000 % 60, 2)
    _put_digits(stamp, 20, of_day % 1_000, 3)


_STAMP = _text("0000-00-00T00:00:00.000Z")


@kernel
def _put_event(
    data: NDArray[np.uint8],
    at: int,
    event: tuple[int, int, int],
    bits: np.uint64,
    stamp: NDArray[np.uint8],
) -> int:
    """Write an event, given as sale, product and kind; give back where the next one begins."""
    sale, product, kind = event
    start = at
    at = _put_int(data, _put(data, at, _SALE_ID), sale)
    at = _put_product(data, at, product, kind)
    at = _put_customer(data, at, random_bits(bits, np.uint64(1)))
    quantity = 1 + random_below(random_bits(bits, np.uint64(2)), 9)
    at = _put_int(data, _put(data, at, _QUANTITY), quantity)
    cents = quantity * (50 + random_below(random_bits(bits, np.uint64(3)), 49_950))
    at = _put_amount(data, _put(data, at, _AMOUNT), cents)
    at = _put_channel(data, _put(data, at, _CHANNEL), random_bits(bits, np.uint64(4)))
    if kind == _OVERSIZED:
        data[at : at + OVERSIZED_BYTES] = _FILLER
        at += OVERSIZED_BYTES
    if kind == _UNKNOWN_FIELD:
        at = _put_int(data, _put(data, at, _COUPON), quantity)
    at = _put(data, _put(data, at, _SOLD_AT), stamp)
    at = _put(data, at, _END)
    if kind == _TRUNCATED:
        return start + 1 + random_below(random_bits(bits, np.uint64(5)), at - start - 1)
    return at


@kernel
def _write_events(
    key: np.uint64,
    first: int,
    products: NDArray[np.int64],
    sold_at: NDArray[np.int64],
    kinds: NDArray[np.uint8],
) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    oversized = np.count_nonzero(kinds == _OVERSIZED)
    data = np.empty(kinds.size * _MAX_BYTES + oversized * OVERSIZED_BYTES, np.uint8)
    bounds = np.zeros(kinds.size + 1, np.int64)
    stamp = _STAMP.copy()
    rendered = np.int64(-1)
    at = 0
    for i in range(kinds.size):
        if sold_at[i] != rendered:
            rendered = sold_at[i]
            _render_time(rendered, stamp)
        if kinds[i] != _EMPTY and kinds[i] != _TOMBSTONE:
            bits = random_bits(key, np.uint64(first + i))
            at = _put_event(data, at, (first + i, products[i], int(kinds[i])), bits, stamp)
        bounds[i + 1] = at
    return data[:at], bounds
