"""Events enter a window at its end and leave it from anywhere; now and then it closes ranks."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from dovetail.join.memory import copy, move
from dovetail.join.overlap.index import mixed, sort_in
from dovetail.join.overlap.window import (
    COUNT,
    GONE,
    LEFT,
    LEFT_BYTES,
    NEW,
    SORTED,
    STALE,
    USED,
)
from dovetail.join.pool import inner
from dovetail.kernels import kernel

if TYPE_CHECKING:
    from dovetail.join.columns import Bytes, Ints
    from dovetail.join.overlap.window import Window

_NOWHERE = -1


@kernel
def admit(
    window: Window,
    values: Ints,
    texts: Bytes,
    text_bounds: Ints,
    data: Bytes,
    bounds: Ints,
    ids: Ints,
    lows: Ints,
    highs: Ints,
    start: int,
    most: int,
) -> tuple[int, int]:
    """Let events in, at most so many; return how many of the batch, and how many now wait.

    The difference are empty intervals: they overlap nothing and need not wait for it.
    """
    state = window.state
    waiting = 0
    for i in range(len(values)):
        if lows[i] > highs[i]:
            continue
        text = text_bounds[i + 1] - text_bounds[i]
        length = bounds[i + 1] - bounds[i]
        full = state[COUNT] == len(window.ids)
        if full or waiting == most or state[USED] + text + length > len(window.bytes):
            return i, waiting
        if state[NEW] == len(window.new_keys):
            sort_in(window)
        slot, new, used = state[COUNT], state[NEW], state[USED]
        copy(window.bytes, used, texts, text_bounds[i], text)
        copy(window.bytes, used + text, data, bounds[i], length)
        window.ids[slot] = ids[i]
        window.starts[slot] = start
        window.ends[slot] = used + text + length
        window.texts[slot] = text
        window.matched[slot] = 0
        window.new_keys[new] = mixed(window, values[i], texts, text_bounds[i], text_bounds[i + 1])
        window.new_lows[new] = lows[i]
        window.new_highs[new] = highs[i]
        window.new_slots[new] = slot
        state[COUNT] += 1
        state[NEW] += 1
        state[USED] += text + length
        waiting += 1
    return len(values), waiting


@kernel
def leave(window: Window, before: int, at_match: bool) -> Ints:
    """Let go who started before this page or, if asked for, has matched; return their ids."""
    state = window.state
    ids = np.empty(_leaving(window, before, at_match), np.int64)
    nth = 0
    begin = 0
    for slot in range(state[COUNT]):
        if _leaves(window, slot, before, at_match):
            ids[nth] = window.ids[slot]
            nth += 1
            window.starts[slot] = GONE
            state[LEFT_BYTES] += window.ends[slot] - begin
        begin = window.ends[slot]
    state[LEFT] += nth
    return ids


@inner
def _leaves(window: Window, slot: int, before: int, at_match: bool) -> bool:
    start = window.starts[slot]
    return start != GONE and (start < before or (at_match and window.matched[slot] != 0))


@inner
def _leaving(window: Window, before: int, at_match: bool) -> int:
    count = 0
    for slot in range(window.state[COUNT]):
        count += _leaves(window, slot, before, at_match)
    return count


@kernel
def close_ranks(window: Window) -> None:
    """Move together who is still pending, in the order of arrival."""
    sort_in(window)
    state = window.state
    used = 0
    begin = 0
    to = 0
    for slot in range(state[COUNT]):
        end = window.ends[slot]
        # The notes of a read are done with: they say here where an event's slot has moved.
        window.rows[slot] = _NOWHERE
        if window.starts[slot] != GONE:
            move(window.bytes, used, window.bytes, begin, end - begin)
            used += end - begin
            window.rows[slot] = to
            window.ids[to] = window.ids[slot]
            window.starts[to] = window.starts[slot]
            window.ends[to] = used
            window.texts[to] = window.texts[slot]
            window.matched[to] = window.matched[slot]
            to += 1
        begin = end
    state[COUNT] = to
    state[USED] = used
    state[LEFT] = state[LEFT_BYTES] = 0
    _close_index(window)


@inner
def _close_index(window: Window) -> None:
    to = 0
    for at in range(window.state[SORTED]):
        slot = window.rows[window.slots[at]]
        if slot != _NOWHERE:
            window.keys[to] = window.keys[at]
            window.lows[to] = window.lows[at]
            window.highs[to] = window.highs[at]
            window.slots[to] = slot
            to += 1
    window.state[SORTED] = to
    window.state[STALE] = 1
