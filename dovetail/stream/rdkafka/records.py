from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class Records:
    """A batch of consumed messages, a column each; it owns its memory.

    Value i is data[bounds[i]:bounds[i + 1]]; of a tombstone, whose value is null, that is empty.
    Timestamps are milliseconds since the epoch, -1 where the message has none.
    """

    partitions: NDArray[np.int32]
    offsets: NDArray[np.int64]
    timestamps: NDArray[np.int64]
    data: NDArray[np.uint8]
    bounds: NDArray[np.int64]
    tombstones: NDArray[np.bool_]

    @classmethod
    def none(cls) -> Self:
        return cls(
            np.empty(0, np.int32),
            np.empty(0, np.int64),
            np.empty(0, np.int64),
            np.empty(0, np.uint8),
            np.zeros(1, np.int64),
            np.empty(0, np.bool_),
        )

    def __len__(self) -> int:
        return len(self.offsets)

    def value(self, row: int) -> bytes | None:
        if self.tombstones[row]:
            return None
        return self.data[self.bounds[row] : self.bounds[row + 1]].tobytes()
