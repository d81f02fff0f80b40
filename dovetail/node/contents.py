"""What a cache holds, and why, as the API shows it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from dovetail.join.cached import NOTHING
from dovetail.join.columns import Column, JoinKeys
from dovetail.join.keys import SEPARATOR
from dovetail.join.mapper import Mapper
from dovetail.pipeline.spec import KeyType
from dovetail.stream.key_names import keys_named

if TYPE_CHECKING:
    from collections.abc import Callable

    from dovetail.join.caching import Cache
    from dovetail.join.columns import Flags, Ints
    from dovetail.join.inspection import By, CachedKey
    from dovetail.pipeline.spec import Pipeline

EPOCH_S = 1_700_000_000
"""Ages count from here, so that they fit 31 bits until 2091."""


def as_cached(read_at_ms: Ints, now: float) -> Ints:
    """When rows were read, as the cache counts: never later than now.

    By another's clock, which may be ahead of ours, a row would answer for longer than it may.
    """
    seconds: Ints = np.minimum(read_at_ms // 1000, int(now)) - EPOCH_S
    return seconds.clip(0, NOTHING - 1)


def cached_at(read_at: float, now: float) -> int:
    """The same of one time, in seconds."""
    return min(max(0, int(min(read_at, now)) - EPOCH_S), NOTHING - 1)


class CacheContents:
    def __init__(self, pipeline: Pipeline, cache: Cache, clock: Callable[[], float]) -> None:
        self._pipeline = pipeline
        self._cache = cache
        self._clock = clock
        self._int_key = pipeline.key_type is KeyType.INT
        self._mapper = Mapper(pipeline.slots, int_key=self._int_key)
        self.event_bytes = 0.0
        """Of an event, as it is known lately."""

    def most_of(self, by: By, most: int, slot: int | None) -> dict[str, Any]:
        """The keys that have most of something, each with why it is here."""

        def of_slot(values: Ints) -> Flags:
            found: Flags = self._mapper.slots(JoinKeys.of_ints(values)) == slot
            return found

        keys = self._cache.most_of(by, most, None if slot is None else of_slot)
        return {
            "keys_held": len(self._cache),
            "used_bytes": self._cache.used,
            "budget_bytes": self._cache.budget,
            "event_bytes": self.event_bytes,
            "keys": [self._shown(key) for key in keys],
        }

    def cached(self, name: str) -> dict[str, Any] | None:
        """One key, its parts set off by |; None if it is not here."""
        written = name.replace("|", chr(SEPARATOR)) if len(self._pipeline.key) > 1 else name
        keys = keys_named(Column.of([written.encode()]), int_key=self._int_key)
        found = self._cache.find(int(keys.values[0]), keys.texts[0])
        return None if found is None else self._shown(found)

    def _shown(self, key: CachedKey) -> dict[str, Any]:
        text = key.text.decode(errors="replace").replace(chr(SEPARATOR), "|")
        value = JoinKeys.of_ints(np.array([key.value], np.int64))
        age_s = max(0.0, self._clock() - key.read_at - EPOCH_S)
        saved = key.hits * self.event_bytes
        why = (
            f"{key.hits:,} hits lately, for which {saved:,.0f} bytes of events need not wait; "
            f"its entry of {key.rows:,} rows takes {key.bytes:,} bytes"
        )
        return {
            "key": text if key.text or not self._int_key else str(key.value),
            "slot": int(self._mapper.slots(value)[0]),
            "hits": key.hits,
            "rows": key.rows,
            "bytes": key.bytes,
            "entry_bytes": key.entry_bytes,
            "age_s": round(age_s, 1),
            "why": why,
        }
