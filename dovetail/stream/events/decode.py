"""A batch of JSON events in; what is good, why the rest is bad, and the join keys out.

Phases: (1) the kernel decides all events but a few; (2) the slow path decides those; (3) text and
composite keys are gathered in their canonical form and hashed; (4) bad events get their details.
Only phases 2 and 4 run Python an event, and only for undecided and for bad ones.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import numpy as np

from dovetail.join.columns import Column, JoinKeys
from dovetail.join.keys import SEPARATOR, hash_text_many
from dovetail.stream.events.details import detail
from dovetail.stream.events.json_kernel import (
    UNDECIDED,
    Columns,
    copy_keys,
    decode_events,
    empty_columns,
    key_lengths,
    table_of,
)
from dovetail.stream.events.json_slow import classify
from dovetail.stream.events.reasons import Reason

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from dovetail.join.columns import Ints
    from dovetail.stream.events.schema import EventSchema


@dataclass(frozen=True, slots=True)
class Decoded:
    """Row i is event i of the batch."""

    valid: NDArray[np.bool_]
    reasons: NDArray[np.uint8]
    """Codes of Reason."""
    data: NDArray[np.uint8]
    """The JSON text of the events: the batch's own data, unless it is of another format."""
    start: NDArray[np.int64]
    """Where a good event's `{…}` stands in `data`; a bad event's whole text, if it has one."""
    end: NDArray[np.int64]
    keys: NDArray[np.int64]
    """The int key, or the hash of any other; 0 for a bad event."""
    key_data: NDArray[np.uint8] | None
    """The canonical bytes of text and composite keys; none for a bad event."""
    key_bounds: NDArray[np.int64] | None
    times: NDArray[np.int64] | None
    """The events' own times in ms since 1970, or NO_TIME; None where the schema names none."""
    details: dict[int, str]
    """For each bad event, what is wrong with it, in words."""

    def join_keys(self, rows: Ints) -> JoinKeys:
        """The join keys of these events, which are good."""
        texts = (
            Column.empty_values(len(rows))
            if self.key_data is None or self.key_bounds is None
            else Column(self.key_data, self.key_bounds).take(rows)
        )
        return JoinKeys(self.keys[rows], texts)


class Decoder(Protocol):
    """What the events of a pipeline are decoded with, whatever their format."""

    def decode(
        self, data: NDArray[np.uint8], bounds: NDArray[np.int64], tombstones: NDArray[np.bool_]
    ) -> Decoded:
        """Decode events data[bounds[i]:bounds[i+1]]; a tombstone's bytes are not looked at."""


class JsonDecoder:
    """Decodes batches of one schema; holds nothing from batch to batch."""

    def __init__(self, schema: EventSchema, *, with_details: bool = True) -> None:
        """Details cost Python for each bad event."""
        self._schema = schema
        self._with_details = with_details
        self._table = table_of(schema)

    def decode(
        self, data: NDArray[np.uint8], bounds: NDArray[np.int64], tombstones: NDArray[np.bool_]
    ) -> Decoded:
        """Decode events data[bounds[i]:bounds[i+1]]; a tombstone's bytes are not looked at."""
        if data.size < 8:  # the kernel loads eight bytes at once
            data = np.pad(data, (0, 8 - data.size))
        data = np.ascontiguousarray(data, np.uint8)
        # Copies: of a read-only array, as Arrow gives them, Numba would compile a second kernel.
        bounds = np.array(bounds, np.int64)
        tombstones = np.array(tombstones, np.bool_)
        _check(data, bounds, tombstones)

        out = empty_columns(tombstones.size, self._schema)
        decode_events(
            data.ctypes.data,
            data.size,
            bounds,
            tombstones,
            self._schema.max_bytes,
            len(self._schema.key),
            self._table.copy(),
            out,
        )
        by_hand = self._decide_by_hand(data, bounds, out)
        key_data = key_bounds = None
        if not self._schema.int_key:
            key_data, key_bounds = _gather_keys(data, out, by_hand)
            out.keys[:] = np.where(
                out.reasons == Reason.GOOD, hash_text_many(key_data, key_bounds), 0
            )
        return Decoded(
            valid=out.reasons == Reason.GOOD,
            reasons=out.reasons,
            data=data,
            start=out.start,
            end=out.end,
            keys=out.keys,
            key_data=key_data,
            key_bounds=key_bounds,
            times=None if self._schema.event_time is None else out.times,
            details=self._details(data, bounds, out) if self._with_details else {},
        )

    def _decide_by_hand(
        self, data: NDArray[np.uint8], bounds: NDArray[np.int64], out: Columns
    ) -> dict[int, bytes]:
        """Complete the undecided rows; gives the keys that the columns cannot hold."""
        keys: dict[int, bytes] = {}
        for row in np.flatnonzero(out.reasons == UNDECIDED).tolist():
            first = int(bounds[row])
            verdict = classify(data[first : bounds[row + 1]].tobytes(), self._schema)
            out.reasons[row] = verdict.reason
            out.field[row], out.offset[row] = verdict.field, verdict.offset
            out.start[row], out.end[row] = first + verdict.start, first + verdict.end
            if isinstance(verdict.key, bytes):
                keys[row] = verdict.key
            else:
                out.keys[row] = verdict.key
            if self._schema.event_time is not None:
                out.times[row] = verdict.time
        return keys

    def _details(
        self, data: NDArray[np.uint8], bounds: NDArray[np.int64], out: Columns
    ) -> dict[int, str]:
        bad = np.flatnonzero(out.reasons)
        columns = (
            bad,
            out.reasons[bad],
            bounds[bad],
            bounds[bad + 1],
            out.field[bad],
            out.offset[bad],
        )
        return {
            row: detail(Reason(reason), data[start:end].tobytes(), field, offset, self._schema)
            for row, reason, start, end, field, offset in zip(
                *(column.tolist() for column in columns), strict=True
            )
        }


def _check(
    data: NDArray[np.uint8], bounds: NDArray[np.int64], tombstones: NDArray[np.bool_]
) -> None:
    """Guard the kernel, which reads memory between the bounds without looking back."""
    if bounds.size != tombstones.size + 1:
        raise ValueError(f"{bounds.size} bounds for {tombstones.size} events: one more is needed")
    if bounds[0] < 0 or bounds[-1] > data.size or np.any(bounds[1:] < bounds[:-1]):
        raise ValueError(f"the bounds do not rise from 0 to at most {data.size}")


def _gather_keys(
    data: NDArray[np.uint8], out: Columns, by_hand: dict[int, bytes]
) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    lengths = key_lengths(out.parts)
    for row, key in by_hand.items():
        lengths[row] = len(key)
    key_bounds = np.zeros(lengths.size + 1, np.int64)
    np.cumsum(lengths, out=key_bounds[1:])
    key_data = np.empty(key_bounds[-1], np.uint8)
    copy_keys(data.ctypes.data, out.parts, SEPARATOR, key_bounds, key_data)
    for row, key in by_hand.items():
        key_data[key_bounds[row] : key_bounds[row + 1]] = np.frombuffer(key, np.uint8)
    return key_data, key_bounds
