"""Reading ranges of files past the page cache, several at a time.

    file      ░░░▓▓▓▓▓▓▓▓▓▓▓▓▓▓░░        a range, and the whole blocks around it (░)
    memory    ░░░▓▓▓▓▓▓▓▓▓▓▓▓▓▓░░        one anonymous mapping, reused from read to read

O_DIRECT moves whole blocks between disk and block-aligned memory: nothing is copied, and a scan
of R does not push everything else out of the page cache. A file system that refuses it is read
through the cache, and what was read is dropped from there again.
"""

from __future__ import annotations

import errno
import logging
import mmap
import os
from concurrent.futures import ThreadPoolExecutor, wait
from enum import StrEnum
from typing import TYPE_CHECKING

import numpy as np

from dovetail.errors import MasterDataError
from dovetail.master.snapshot.place import BLOCK

if TYPE_CHECKING:
    from collections.abc import Sequence
    from concurrent.futures import Future
    from pathlib import Path

    from dovetail.join.columns import Bytes
    from dovetail.master.snapshot.fill import Fill

_log = logging.getLogger(__name__)


class Caching(StrEnum):
    """What a reader does about the page cache."""

    PAST = "past"
    """Direct I/O: the cache is not used."""
    DROPPED = "dropped"
    """Direct I/O was wanted and refused: read through the cache, then dropped from it."""
    THROUGH = "through"
    """The cache is used as for any file."""


class Buffer:
    """Block-aligned memory that grows to the largest read; its contents last until the next."""

    def __init__(self) -> None:
        self._memory: mmap.mmap | None = None
        self.bytes: Bytes = np.empty(0, np.uint8)
        self.view = memoryview(b"")

    def reserve(self, size: int) -> None:
        if size > len(self.bytes):
            self._memory = mmap.mmap(-1, size)
            self.bytes = np.frombuffer(self._memory, np.uint8)
            self.view = memoryview(self._memory)


class SnapshotFile:
    def __init__(self, path: Path, size: int, *, direct: bool) -> None:
        self.path = path
        self.size = size
        self.caching = Caching.THROUGH
        self._descriptor = -1
        if direct:
            self.caching = Caching.PAST if self._opens_directly() else Caching.DROPPED
        if self._descriptor < 0:
            self._descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)

    def _opens_directly(self) -> bool:
        try:
            self._descriptor = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC | os.O_DIRECT)
            # Some file systems refuse at the first read only.
            os.preadv(self._descriptor, [mmap.mmap(-1, BLOCK)], 0)
        except OSError as error:
            if error.errno not in {errno.EINVAL, errno.EOPNOTSUPP}:
                raise
            self.close()
            _log.warning(
                "direct I/O refused: reads go through the page cache and are dropped from it",
                extra={"path": str(self.path), "reason": error.strerror},
            )
            return False
        return True

    def read(self, view: memoryview, offset: int, at: int, size: int) -> None:
        """Read whole blocks to a place in memory, or up to the file's end."""
        needed = min(size, self.size - offset)
        done = 0
        while done < needed:
            got = self._read_some(view[at + done : at + size], offset + done)
            if not got:
                raise MasterDataError(
                    f"{self.path} ends after {offset + done} bytes, and {self.size} were "
                    f"written: something has cut it while it was in use; write the snapshot anew"
                )
            done += got
        if self.caching is Caching.DROPPED:
            os.posix_fadvise(self._descriptor, offset, size, os.POSIX_FADV_DONTNEED)

    def _read_some(self, target: memoryview, offset: int) -> int:
        try:
            return os.preadv(self._descriptor, [target], offset)
        except OSError as error:
            raise MasterDataError(
                f"{self.path} cannot be read at {offset} ({error.strerror}): check the disk, or "
                f"write the snapshot anew"
            ) from error

    def close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


def reading_threads(depth: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(depth, thread_name_prefix="snapshot")


class Reading:
    """A fill on its way into its buffer."""

    def __init__(self, future: Future[None]) -> None:
        self._future = future

    def abandon(self) -> None:
        """See that nothing is written into the buffer any more, whatever became of it."""
        wait([self._future])

    def wait(self) -> None:
        self._future.result()


class Reader:
    """Reads fills: one run of pages by one thread, many by up to `depth` at a time.

    One run is a call or two, mostly one long one, and to wake a thread for a second takes as long
    as a read. Threads, because a call waits without the GIL.
    """

    def __init__(
        self,
        files: Sequence[SnapshotFile | None],
        depth: int,
        threads: ThreadPoolExecutor | None = None,
    ) -> None:
        """`threads`, if given, are another's, and as many as `depth` at least."""
        self._files = files
        self._depth = depth
        self._threads = threads or reading_threads(depth)
        self._own = threads is None

    def start(self, fill: Fill, buffer: Buffer) -> Reading:
        """Begin to read; the buffer is made large enough."""
        buffer.reserve(fill.nbytes)
        return Reading(self._threads.submit(self._read_all, fill.pieces, buffer.view))

    def read(self, fill: Fill, buffer: Buffer) -> None:
        """Read and wait; the caller's thread takes a share."""
        buffer.reserve(fill.nbytes)
        depth = self._depth if fill.runs.shape[1] > 1 else 1
        # A share for each thread: a future for each piece would cost more than its system call.
        others = [
            self._threads.submit(self._read_all, fill.pieces[nth::depth], buffer.view)
            for nth in range(1, depth)
        ]
        try:
            self._read_all(fill.pieces[::depth], buffer.view)
        finally:
            if others:
                wait(others)
        for other in others:
            other.result()

    def close(self) -> None:
        if self._own:
            self._threads.shutdown()

    def _read_all(self, pieces: list[list[int]], view: memoryview) -> None:
        for number, offset, at, size in pieces:
            file = self._files[number]
            assert file is not None, "a layout places only files that there are"
            file.read(view, offset, at, size)
