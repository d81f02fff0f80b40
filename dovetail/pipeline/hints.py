from __future__ import annotations

import difflib
from itertools import islice
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

_LONGEST_WORD = 100
_MOST_KNOWN = 500
"""Comparing takes its time: with more or longer words, longer than a hint is worth."""


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Return the end of a message, or nothing where no known word is near."""
    nearest = closest(word, known)
    return f"; did you mean '{nearest}'?" if nearest else ""


def closest(word: str, known: Iterable[str]) -> str | None:
    if len(word) > _LONGEST_WORD:
        return None
    folded = {name.casefold(): name for name in islice(known, _MOST_KNOWN)}
    near = difflib.get_close_matches(word.casefold(), folded, n=1)
    return folded[near[0]] if near else None


def count(number: int, noun: str) -> str:
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"
