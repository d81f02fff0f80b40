"""The engine's currency: columns of bytes and keys, on NumPy buffers.

A bytes column is one buffer and the bounds of its values, the layout of Arrow's binary
arrays. Every array is contiguous and writable: Numba compiles a kernel once more for
read-only memory, which takes seconds in the middle of the stream.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

import numpy as np
from numpy.typing import NDArray

from dovetail.join.memory import copy
from dovetail.kernels import kernel

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

Bytes = NDArray[np.uint8]
Ints = NDArray[np.int64]
SmallInts = NDArray[np.int32]
Flags = NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Column:
    """Values of bytes: value i is `data[bounds[i]:bounds[i + 1]]`.

    The first bound need not be 0: a slice shares its column's buffer.
    """

    data: Bytes
    bounds: Ints

    def __len__(self) -> int:
        return len(self.bounds) - 1

    def __getitem__(self, index: int) -> bytes:
        return self.data[self.bounds[index] : self.bounds[index + 1]].tobytes()

    def __iter__(self) -> Iterator[bytes]:
        return (self[i] for i in range(len(self)))

    @property
    def size(self) -> int:
        """Bytes of the values."""
        return int(self.bounds[-1] - self.bounds[0])

    @property
    def nbytes(self) -> int:
        """Bytes of the values and their bounds; not what else the buffer holds."""
        return self.size + self.bounds.nbytes

    def take(self, indices: Ints) -> Column:
        return Column.of_spans(self.data, self.bounds[indices], self.bounds[indices + 1])

    def slice(self, first: int, end: int) -> Column:
        return Column(self.data, self.bounds[first : end + 1])

    @classmethod
    def of(cls, values: Sequence[bytes]) -> Self:
        bounds = np.zeros(len(values) + 1, np.int64)
        np.cumsum([len(value) for value in values], out=bounds[1:])
        # A bytearray, for bytes would be read-only.
        return cls(np.frombuffer(bytearray().join(values), np.uint8), bounds)

    @classmethod
    def of_spans(cls, data: Bytes, starts: Ints, ends: Ints) -> Self:
        """Copy the values that stand in `data` at these places."""
        return cls(*_gather(data, starts, ends))

    @classmethod
    def empty_values(cls, count: int) -> Self:
        return cls(np.empty(0, np.uint8), np.zeros(count + 1, np.int64))

    @classmethod
    def concatenate(cls, columns: Sequence[Column]) -> Column:
        """Put columns after one another; a single one is returned as it is, not copied."""
        if len(columns) == 1:
            return columns[0]
        parts = [np.empty(0, np.uint8)]
        bounds = [np.zeros(1, np.int64)]
        size = 0
        for column in columns:
            first, end = int(column.bounds[0]), int(column.bounds[-1])
            parts.append(column.data[first:end])
            bounds.append(column.bounds[1:] + (size - first))
            size += end - first
        return cls(np.concatenate(parts), np.concatenate(bounds))


@dataclass(frozen=True, slots=True)
class Spans:
    """Values of bytes that lie anywhere: value i is `data[starts[i]:ends[i]]`."""

    data: Bytes
    starts: Ints
    ends: Ints

    def __len__(self) -> int:
        return len(self.starts)

    @property
    def size(self) -> int:
        """Bytes of the values."""
        return int(self.ends.sum() - self.starts.sum())

    def take(self, indices: Ints) -> Spans:
        return Spans(self.data, self.starts[indices], self.ends[indices])

    def slice(self, first: int, end: int) -> Spans:
        return Spans(self.data, self.starts[first:end], self.ends[first:end])


@dataclass(frozen=True, slots=True)
class JoinKeys:
    """The join keys of a batch.

    `values` are the keys themselves where they are ints, else 64-bit hashes; `texts` then
    holds the canonical keys, against which every match is verified. For int keys all
    texts are empty, so that no kernel has to ask which kind it has.
    """

    values: Ints
    texts: Column

    def __len__(self) -> int:
        return len(self.values)

    @classmethod
    def of_ints(cls, values: Ints) -> Self:
        return cls(values, Column.empty_values(len(values)))

    def shown(self, nth: int) -> str:
        """A key as a message shows it."""
        text = self.texts[nth].decode(errors="replace").replace("\x1f", ", ")
        return repr(text) if text else str(self.values[nth])

    def take(self, indices: Ints) -> JoinKeys:
        return JoinKeys(self.values[indices], self.texts.take(indices))

    def slice(self, first: int, end: int) -> JoinKeys:
        return JoinKeys(self.values[first:end], self.texts.slice(first, end))

    @classmethod
    def concatenate(cls, parts: Sequence[JoinKeys]) -> JoinKeys:
        if len(parts) == 1:
            return parts[0]
        return cls(
            np.concatenate([np.empty(0, np.int64), *(part.values for part in parts)]),
            Column.concatenate([part.texts for part in parts]),
        )


@kernel
def _gather(data: Bytes, starts: Ints, ends: Ints) -> tuple[Bytes, Ints]:
    bounds = np.empty(len(starts) + 1, np.int64)
    bounds[0] = 0
    for i in range(len(starts)):
        bounds[i + 1] = bounds[i] + ends[i] - starts[i]
    out = np.empty(bounds[-1], np.uint8)
    for i in range(len(starts)):
        copy(out, bounds[i], data, starts[i], ends[i] - starts[i])
    return out, bounds
