"""R and S of the benchmark: a snapshot of 120-byte rows on disk, and streams of 100-byte events.

Keys are 0 … rows - 1 and R is sorted by them. In the papers' order (HYBRIDJOIN §5) the key is its
rank by frequency; in random order a permutation stands between the two.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from dovetail.join.columns import Column, JoinKeys
from dovetail.join.entry import MasterRows
from dovetail.join.exchange import Events
from dovetail.master.snapshot.split import slot_folder, write_slots
from dovetail.master.snapshot.writer import write_snapshot

if TYPE_CHECKING:
    from collections.abc import Iterator

    from dovetail.join.columns import Ints

ROW_BYTES, EVENT_BYTES = 120, 100
FOLDER = Path(__file__).resolve().parents[2] / ".dovetail" / "bench" / "engine"
BATCH = 16_384
_PART = 1 << 18
_DRAWN = 1 << 22
_SEED = 20_260_101


def objects(count: int, size: int) -> Column:
    """JSON objects of so many bytes."""
    one = b'{"v":"' + b"x" * (size - 8) + b'"}'
    bounds = np.arange(count + 1, dtype=np.int64) * len(one)
    return Column(np.frombuffer(bytearray(one * count), np.uint8), bounds)


def snapshot(rows: int) -> Path:
    """The folder of a snapshot of so many rows, written once."""
    folder = FOLDER / f"rows-{rows}"
    if not folder.exists():
        write_snapshot(folder, _parts(rows), key="int")
    return folder


def halves(rows: int) -> list[Path]:
    """The same R split by the slot hash, for two nodes."""
    folder = FOLDER / f"rows-{rows}-of-2"
    if not folder.exists():
        keys = JoinKeys.of_ints(np.arange(rows, dtype=np.int64))
        write_slots(folder, MasterRows(keys, objects(rows, ROW_BYTES)), 2, key="int")
    return [slot_folder(folder, slot) for slot in range(2)]


def clear() -> None:
    shutil.rmtree(FOLDER, ignore_errors=True)


def _parts(rows: int) -> Iterator[MasterRows]:
    values = objects(_PART, ROW_BYTES)
    for first in range(0, rows, _PART):
        end = min(first + _PART, rows)
        keys = JoinKeys.of_ints(np.arange(first, end, dtype=np.int64))
        yield MasterRows(keys, values.slice(0, end - first))


class Stream:
    """An endless stream of events: some millions of keys drawn once, over and over."""

    def __init__(self, keys: Ints) -> None:
        self._keys = keys
        self._data = objects(BATCH, EVENT_BYTES)
        self._ids = np.arange(BATCH)
        self._batch = 0
        self._rest = self._next()

    def rest(self) -> Events:
        """What of the batch at hand was not taken yet."""
        return self._rest

    def take(self, count: int) -> None:
        """Go on behind so many events."""
        if count == len(self._rest):
            self._rest = self._next()
        else:
            self._rest = self._rest.slice(count, len(self._rest))

    def _next(self) -> Events:
        first = self._batch % (len(self._keys) // BATCH) * BATCH
        self._batch += 1
        keys = self._keys[first : first + BATCH]
        return Events(JoinKeys.of_ints(keys), self._data, self._ids)


def drawn(rows: int, skew: float, *, ordered: bool) -> Ints:
    """Keys by Zipf's law, in the papers' order or in a random one."""
    dice = np.random.default_rng(_SEED)
    weights = np.arange(1, rows + 1, dtype=np.float64) ** -skew
    upto = np.cumsum(weights)
    ranks = np.searchsorted(upto, dice.random(_DRAWN) * upto[-1])
    places = np.arange(rows) if ordered else dice.permutation(rows)
    return np.asarray(places[ranks], np.int64)
