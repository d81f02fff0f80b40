"""The short way from a map task to a node, where both run on one machine.

    decode ──► a file of the task's own ──────────────► node
        └────► a row that says where it lies ► shuffle ──┘

Through Spark, a batch of events is copied a dozen times: onto a socket, into a row, to the
shuffle's file and back, into Arrow, onto a socket. On one machine it is written once and read once,
and hardly ever leaves the page cache: the folder goes with its batch.

Each attempt of a task has its own file, as the shuffle's have. A file that is gone fails the batch,
which is then run again.
"""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Self

import numpy as np

from dovetail.errors import Unavailable
from services.spark.scratch import writing

if TYPE_CHECKING:
    from io import BufferedWriter
    from pathlib import Path

    from dovetail.join.columns import Bytes
    from dovetail.stream.rdkafka import Parcel


class Shelf:
    """Takes the batches of one task."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / uuid.uuid4().hex
        self._file: BufferedWriter | None = None
        self._end = 0

    def put(self, parcel: Parcel) -> bytes:
        """Leave a batch; return where it lies, for `taken`. It can be taken after `close`."""
        with writing(self._path):
            if self._file is None:
                self._file = self._path.open("xb")
            self._file.write(parcel.data.data)
        place = f"{self._end} {len(parcel)} {self._path}".encode()
        self._end += len(parcel)
        return place

    def close(self) -> None:
        if self._file is not None:
            file, self._file = self._file, None
            with writing(self._path):
                file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def taken(place: bytes) -> Bytes:
    """A batch that was put there."""
    start, size, path = place.decode().split(" ", 2)
    try:
        found = np.fromfile(path, np.uint8, int(size), offset=int(start))
    except OSError as error:
        raise Unavailable(f"{path} cannot be read ({error.strerror})") from error
    if len(found) < int(size):
        raise Unavailable(f"{path} has been cut: {size} bytes are not there behind {start}")
    return found
