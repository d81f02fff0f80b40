from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
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

    def __len__(self) -> int:
        return len(self.offsets)

    def value(self, row: int) -> bytes | None:
        if self.tombstones[row]:
            return None
        return self.data[self.bounds[row] : self.bounds[row + 1]].tobytes()
