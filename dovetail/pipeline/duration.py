"""Durations in seconds, as people write them: 30s, 10m, 1.5h."""

from __future__ import annotations

import re

_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_OTHER_NAMES = {"sec": "s", "second": "s", "min": "m", "minute": "m", "hour": "h", "day": "d"}
_DURATION = re.compile(r"(?P<number>[0-9]+(\.[0-9]+)?) ?(?P<unit>[A-Za-z]+)")


def parse_duration(text: str) -> float:
    """Return the seconds that a text such as '30s' means; ValueError says what is wrong."""
    match = _DURATION.fullmatch(text.strip())
    if match is None:
        raise ValueError(f"'{text}' is not a duration; write a number and a unit, e.g. 30s or 10m")
    number, unit = match["number"], match["unit"].casefold()
    if unit not in _UNITS:
        meant = _OTHER_NAMES.get(unit.removesuffix("s"), "s")
        raise ValueError(f"'{text}' has an unknown unit; write {number}{meant}")
    return float(number) * _UNITS[unit]


def format_duration(seconds: float) -> str:
    """Return the duration in the largest unit that shows it as a whole number."""
    for unit in ("d", "h", "m", "s"):
        if seconds and seconds % _UNITS[unit] == 0:
            return f"{seconds / _UNITS[unit]:.0f}{unit}"
    return f"{seconds * 1000:g}ms"
