"""Sizes in bytes, as people write them: 128MiB, 64MB, 134217728."""

from __future__ import annotations

import re
from decimal import Decimal

KIB = 1024
MIB = 1024 * KIB

_UNITS = {
    "b": 1,
    **{f"{prefix}ib": 1024**power for power, prefix in enumerate("kmgt", start=1)},
    **{f"{prefix}b": 1000**power for power, prefix in enumerate("kmgt", start=1)},
}
_SIZE = re.compile(r"(?P<number>[0-9]+(\.[0-9]+)?) ?(?P<unit>[A-Za-z]*)")


def parse_size(text: str) -> int:
    """Return the bytes that a text such as '1.5GiB' means; ValueError says what is wrong."""
    match = _SIZE.fullmatch(text.strip())
    if match is None:
        raise ValueError(f"'{text}' is not a size; write a number and a unit, e.g. 128MiB")
    number, unit = match["number"], match["unit"].casefold()
    if unit and unit not in _UNITS:
        raise ValueError(f"'{text}' has an unknown unit; write {number}{_meant(unit)}")
    size = Decimal(number) * _UNITS[unit or "b"]
    if size != int(size):
        raise ValueError(f"'{text}' is not a whole number of bytes; write e.g. 128MiB")
    return int(size)


def _meant(unit: str) -> str:
    prefix = unit[0].upper()
    return f"{prefix}iB" if prefix in "KMGT" else "MiB"


def format_size(size: int) -> str:
    """Return the size in the largest binary unit that shows it exactly."""
    for power, unit in ((4, "TiB"), (3, "GiB"), (2, "MiB"), (1, "KiB")):
        if size and size % 1024**power == 0:
            return f"{size // 1024**power}{unit}"
    return f"{size:,} bytes"


def about_size(size: float) -> str:
    """Return the size in the largest binary unit, rounded."""
    for power, unit in ((3, "GiB"), (2, "MiB"), (1, "KiB")):
        if round(size) >= 1024**power:
            return f"{size / 1024**power:.2f} {unit}"
    return f"{size:.0f} B"
