"""Transcodes batches of Avro: plain data of one schema, or data that name their writer's."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from dovetail.errors import ConfigError
from dovetail.stream.events.avro.compile import compile_avro
from dovetail.stream.events.avro.kernel import transcode_avro
from dovetail.stream.events.avro.schema import Type, parse
from dovetail.stream.events.faults import Fault
from dovetail.stream.events.program import Writer
from dovetail.stream.events.reasons import Reason
from dovetail.stream.events.registry import HEADER_BYTES, NO_HEADER, schema_ids
from dovetail.stream.events.transcode import Binary, Output, Transcoded

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from dovetail.stream.events.registry import Schemas

_UNREADABLE = -1


class AvroTranscoder:
    """Keeps one program with a part for each writer's schema met so far."""

    def __init__(self, reader: Type, max_bytes: int, schemas: Schemas | None = None) -> None:
        """`schemas` has the writers' where events are framed; else the reader's is theirs too."""
        self._reader = reader
        self._max_bytes = max_bytes
        self._schemas = schemas
        self._writer = Writer()
        self._plain = compile_avro(reader, reader, self._writer)
        self._program = self._writer.program()
        self._starts: dict[int, int] = {}
        """By id, the first op of a writer's part, or UNREADABLE."""
        self._why: dict[int, str] = {}
        """By id, why a schema is unreadable."""

    def transcode(self, events: Binary) -> Transcoded:
        reasons = np.zeros(len(events), np.uint8)
        details: dict[int, str] = {}
        if self._schemas is None:
            header, starts = 0, np.where(events.wanted, self._plain, -1)
        else:
            header, ids = HEADER_BYTES, schema_ids(events.data, events.bounds, events.wanted)
            starts = self._starts_of(ids)
            for row in np.flatnonzero(events.wanted & (starts < 0)).tolist():
                reasons[row], details[row] = self._without_schema(int(ids[row]))
        out, faults, offsets = self._run(events, header, starts)
        for row in np.flatnonzero(faults).tolist():
            fault = Fault(faults[row])
            too_long = fault is Fault.TOO_LONG
            reasons[row] = Reason.OVERSIZED if too_long else Reason.INVALID_AVRO
            details[row] = _told(fault, int(offsets[row]), self._max_bytes)
        return Transcoded(out.data, out.bounds, reasons, details)

    def _run(
        self, events: Binary, header: int, starts: NDArray[np.int64]
    ) -> tuple[Output, NDArray[np.uint8], NDArray[np.int64]]:
        faults, offsets = np.zeros(len(events), np.uint8), np.zeros(len(events), np.int64)
        base, program = events.data.ctypes.data, self._program
        out = Output(events, self._max_bytes)

        def write(first: int, address: int, capacity: int) -> int:
            return transcode_avro(
                first,
                base,
                base + events.data.size,
                events.bounds,
                header,
                starts,
                self._max_bytes,
                program.ops,
                program.table,
                program.text,
                address,
                capacity,
                out.bounds,
                faults,
                offsets,
            )

        out.fill(write)
        return out, faults, offsets

    def _starts_of(self, ids: NDArray[np.int64]) -> NDArray[np.int64]:
        known, rows = np.unique(ids, return_inverse=True)
        starts = [self._start_of(number) for number in known.tolist()]
        return np.array(starts, np.int64)[rows]

    def _start_of(self, number: int) -> int:
        """Give the first op for a schema's id; an id that nobody knows is asked for again."""
        if number == NO_HEADER:
            return _UNREADABLE
        if number not in self._starts:
            start = self._compile(number)
            if start is None:
                return _UNREADABLE
            self._starts[number] = start
        return self._starts[number]

    def _compile(self, number: int) -> int | None:
        assert self._schemas is not None
        try:
            text = self._schemas.schema(number)
            if text is None:
                return None
            start = compile_avro(parse(text), self._reader, self._writer)
        except ConfigError as error:
            self._why[number] = str(error)
            return _UNREADABLE
        self._program = self._writer.program()
        return start

    def _without_schema(self, number: int) -> tuple[Reason, str]:
        if number == NO_HEADER:
            return Reason.INVALID_AVRO, "it has no header of a schema registry: 0x00 and 4 bytes"
        why = self._why.get(number)
        if why is None:
            return Reason.UNKNOWN_SCHEMA, f"there is no schema with the id {number}"
        return Reason.UNKNOWN_SCHEMA, f"schema {number} cannot be read as the pipeline's: {why}"


def _told(fault: Fault, offset: int, max_bytes: int) -> str:
    if fault is Fault.TOO_LONG:
        return f"the event's JSON text has more than the {max_bytes} bytes allowed"
    return f"not a datum of its schema: {fault.words} at byte {offset}"
