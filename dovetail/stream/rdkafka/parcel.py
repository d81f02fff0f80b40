"""A message in memory that librdkafka takes over as it is: a batch of a mebibyte is not copied."""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

_WRITABLE = 0x200  # PyBUF_WRITE

# The C library's own, for librdkafka gives the memory back with its free().
_c = ctypes.CDLL(None)
_malloc = _c.malloc
_malloc.restype, _malloc.argtypes = ctypes.c_void_p, [ctypes.c_size_t]
_free = _c.free
_free.restype, _free.argtypes = None, [ctypes.c_void_p]
_view = ctypes.pythonapi.PyMemoryView_FromMemory
_view.restype = ctypes.py_object
_view.argtypes = [ctypes.c_void_p, ctypes.c_ssize_t, ctypes.c_int]


class Parcel:
    """Filled through `data`, which is not to be touched once it was given away, or is gone."""

    def __init__(self, size: int) -> None:
        """Of at least one byte."""
        self.address: int | None = _malloc(size)
        if not self.address:
            raise MemoryError(f"no memory for a message of {size:,} bytes")
        self.data: NDArray[np.uint8] = np.frombuffer(_view(self.address, size, _WRITABLE), np.uint8)

    def __len__(self) -> int:
        return len(self.data)

    def __bytes__(self) -> bytes:
        return self.data.tobytes()

    def forget(self) -> None:
        """Who has taken it gives its memory back."""
        self.address = None

    def __del__(self) -> None:
        # None where __init__ could not get it, or somebody else has it.
        if getattr(self, "address", None):
            _free(self.address)
