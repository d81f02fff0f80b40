"""Which pending intervals overlap a master row's: an implicit interval tree for each join key.

    keys    3    3    3    3    3    8    8        sorted by key, then by low
    lows    1    2    4    6    9    0    5
    highs   3   20    5    7    9    2    6
            └── 20 ──────────┘ └─ 9 …              the highest of every eight, of those again …

1. The row's key leads, by a directory over its first bits, to where its intervals start.
2. Those that begin at the row's high or before are a run; a binary search finds its end.
3. Of the run, those that end before the row's low are skipped, eight, 64, 512 … at a time
   where even the highest high is too low: O(log n) to the next one that does overlap.

Arrivals gather unsorted, are sorted in place and merged in from the end: a step costs O(n) of
sequential work for n pending events, not a sort of them all.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dovetail.join.memory import prefetch
from dovetail.join.overlap.window import FANOUT, FANOUT_BITS, NEW, SORTED, STALE
from dovetail.join.pool import inner
from dovetail.join.stir import identity, stirred
from dovetail.kernels import kernel

if TYPE_CHECKING:
    from dovetail.join.columns import Bytes, Ints, SmallInts
    from dovetail.join.overlap.window import Window


@inner
def mixed(window: Window, key: int, texts: Bytes, start: int, end: int) -> int:
    """Spread a key over 64 bits so that its first ones tell keys apart: ints completely."""
    return stirred(window.seeds, identity(window.seeds, key, texts, start, end))


@inner
def bucket_bits(window: Window) -> int:
    bits = 0
    while (2 << bits) < len(window.directory):
        bits += 1
    return bits


@inner
def bucket_of(key: int, bits: int) -> int:
    """The first bits of a mixed key, from 0 up in the order of signed keys."""
    return (key >> (64 - bits)) + (1 << (bits - 1))


@inner
def look_ahead(window: Window, bits: int, far: int, near: int) -> None:
    """Fetch the bucket of a mixed key that comes later, and the keys of one that comes soon."""
    prefetch(window.directory, bucket_of(far, bits))
    at = window.directory[bucket_of(near, bits)]
    if at < window.state[SORTED]:
        prefetch(window.keys, at)


@inner
def first_of(window: Window, bits: int, key: int) -> int:
    """Where the intervals of a mixed key start, or -1."""
    keys = window.keys
    bucket = bucket_of(key, bits)
    at, end = window.directory[bucket], window.directory[bucket + 1]
    while at < end:
        middle = (at + end) >> 1
        if keys[middle] < key:
            at = middle + 1
        else:
            end = middle
    if at < window.directory[bucket + 1] and keys[at] == key:
        return at  # type: ignore[no-any-return]
    return -1


@inner
def run_end(window: Window, bits: int, at: int, key: int, high: int) -> int:
    """Behind the last of the key's intervals, which start at `at`, that begins by `high`."""
    keys, lows = window.keys, window.lows
    end = window.directory[bucket_of(key, bits) + 1]
    while at < end:
        middle = (at + end) >> 1
        if keys[middle] == key and lows[middle] <= high:
            at = middle + 1
        else:
            end = middle
    return at


@inner
def next_reaching(window: Window, at: int, end: int, low: int) -> int:
    """The first place from `at` on whose interval ends at `low` or later; `end` if none does."""
    highs, maxima = window.highs, window.maxima
    count = window.state[SORTED]
    while at < end:
        if highs[at] >= low:
            return at
        # The largest block that starts here and ends before the row's low as a whole.
        shift = 0
        level = 0
        width = (count + FANOUT - 1) >> FANOUT_BITS
        while (1 << shift) < count:
            wider = shift + FANOUT_BITS
            if at & ((1 << wider) - 1) or maxima[level + (at >> wider)] >= low:
                break
            shift = wider
            level += width
            width = (width + FANOUT - 1) >> FANOUT_BITS
        at += 1 << shift
    return end


@kernel
def sort_in(window: Window) -> None:
    """Merge the arrivals into the index."""
    state = window.state
    new = state[NEW]
    if new == 0:
        return
    _sort(window.new_keys, window.new_lows, window.new_highs, window.new_slots, new)
    old = state[SORTED] - 1
    new -= 1
    to = old + state[NEW]
    # From the end, so that the index moves into its own free room.
    while new >= 0:
        arrival = window.new_keys[new], window.new_lows[new]
        if old >= 0 and (window.keys[old], window.lows[old]) > arrival:
            window.keys[to] = window.keys[old]
            window.lows[to] = window.lows[old]
            window.highs[to] = window.highs[old]
            window.slots[to] = window.slots[old]
            old -= 1
        else:
            window.keys[to], window.lows[to] = arrival
            window.highs[to] = window.new_highs[new]
            window.slots[to] = window.new_slots[new]
            new -= 1
        to -= 1
    state[SORTED] += state[NEW]
    state[NEW] = 0
    state[STALE] = 1


@kernel
def refresh(window: Window) -> None:
    """Make the index ready to be searched."""
    sort_in(window)
    if window.state[STALE] == 0:
        return
    _refresh_directory(window)
    _refresh_maxima(window)
    window.state[STALE] = 0


@inner
def _refresh_directory(window: Window) -> None:
    bits = bucket_bits(window)
    count = window.state[SORTED]
    at = 0
    for bucket in range(len(window.directory) - 1):
        while at < count and bucket_of(window.keys[at], bits) < bucket:
            at += 1
        window.directory[bucket] = at
    window.directory[len(window.directory) - 1] = count


@inner
def _refresh_maxima(window: Window) -> None:
    width = window.state[SORTED]
    _highest(window.highs, 0, width, window.maxima, 0)
    level = 0
    width = (width + FANOUT - 1) // FANOUT
    while width > 1:
        _highest(window.maxima, level, width, window.maxima, level + width)
        level += width
        width = (width + FANOUT - 1) // FANOUT


@inner
def _highest(source: Ints, first: int, count: int, to: Ints, at: int) -> None:
    for start in range(0, count, FANOUT):
        highest = source[first + start]
        for i in range(start + 1, min(start + FANOUT, count)):
            highest = max(highest, source[first + i])
        to[at + start // FANOUT] = highest


@inner
def _sort(keys: Ints, lows: Ints, highs: Ints, slots: SmallInts, count: int) -> None:
    """Heapsort: in place, and never worse than n log n."""
    for root in range(count // 2 - 1, -1, -1):
        _sift(keys, lows, highs, slots, root, count)
    for end in range(count - 1, 0, -1):
        _swap(keys, lows, highs, slots, 0, end)
        _sift(keys, lows, highs, slots, 0, end)


@inner
def _sift(keys: Ints, lows: Ints, highs: Ints, slots: SmallInts, root: int, end: int) -> None:
    while True:
        child = 2 * root + 1
        if child >= end:
            return
        if child + 1 < end and _before(keys, lows, child, child + 1):
            child += 1
        if not _before(keys, lows, root, child):
            return
        _swap(keys, lows, highs, slots, root, child)
        root = child


@inner
def _before(keys: Ints, lows: Ints, i: int, j: int) -> bool:
    if keys[i] != keys[j]:
        return keys[i] < keys[j]  # type: ignore[no-any-return]
    return lows[i] < lows[j]  # type: ignore[no-any-return]


@inner
def _swap(keys: Ints, lows: Ints, highs: Ints, slots: SmallInts, i: int, j: int) -> None:
    keys[i], keys[j] = keys[j], keys[i]
    lows[i], lows[j] = lows[j], lows[i]
    highs[i], highs[j] = highs[j], highs[i]
    slots[i], slots[j] = slots[j], slots[i]
