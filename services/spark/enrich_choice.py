"""auto in a batch: R is scanned once, or the keys that wait are looked up.

A batch is known when R is to be read, so there is no rate to foresee, as `auto` has to in the
services (decision 8): so many keys wait, R has so many pages, and what either costs is learnt by
doing it.

Lookups are only guessed to be cheaper before the first: so those are few keys each, and what they
took says how the batch goes on.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dovetail.pipeline.spec import Algorithm
from services.disk_phase.settings import KEYS_A_QUERY

if TYPE_CHECKING:
    from dovetail.join.cost.factors import Factors
    from dovetail.join.phase import Relation

SCAN, LOOKUP = Algorithm.MESHJOIN, Algorithm.SRJ
TRIAL_KEYS = 200
"""Of a lookup whose cost is not known yet."""
_TRIALS = 3
"""Lookups that are tried; the first does not count: it loads kernels and opens files."""
_WEIGHT = 0.3
"""Of one batch against all before it."""


class Choice:
    """Chooses by seconds: a page's of a scan, a key's of lookups."""

    def __init__(self, factors: Factors) -> None:
        self._warm: set[Algorithm] = set()
        self._page_s = factors.page
        self._key_s = factors.key + factors.request / KEYS_A_QUERY
        self._trials: list[float] = []
        self.reason = "no batch had to read the table yet"
        """Why it chose as it did last."""

    def between(self, relation: Relation, keys: int) -> Algorithm:
        """The cheaper way to answer so many keys."""
        if not relation.by_page:
            self.reason = "the table is not read by page"
            return LOOKUP
        if not relation.by_key:
            self.reason = "the table is not read by key"
            return SCAN
        scan_s, lookup_s = relation.pages * self._page_s, keys * self._key_s
        self.reason = (
            f"to scan {relation.pages:,} pages takes {scan_s:.3g} s, to look {keys:,} keys up "
            f"{lookup_s:.3g} s"
        )
        return SCAN if scan_s < lookup_s else LOOKUP

    def is_to_try(self, relation: Relation) -> bool:
        """Whether lookups have to show what they cost before many keys are looked up."""
        return relation.by_page and len(self._trials) < _TRIALS

    def tried(self, keys: int, seconds: float) -> None:
        """Learn from a lookup of few keys."""
        self._trials.append(seconds / max(1, keys))
        if len(self._trials) == _TRIALS:
            self._key_s = min(self._trials[1:])
            self._warm.add(LOOKUP)

    def scanned(self, pages: int, seconds: float) -> None:
        if self._is_warm(SCAN):
            self._page_s += _WEIGHT * (seconds / max(1, pages) - self._page_s)

    def looked_up(self, keys: int, seconds: float) -> None:
        if self._is_warm(LOOKUP):
            self._key_s += _WEIGHT * (seconds / max(1, keys) - self._key_s)

    def _is_warm(self, algorithm: Algorithm) -> bool:
        """Not the first time: then kernels are loaded and files opened."""
        warm = algorithm in self._warm
        self._warm.add(algorithm)
        return warm
