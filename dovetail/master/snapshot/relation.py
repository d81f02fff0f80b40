"""A snapshot as the R of a join: what `Engine.wants` asks for is read from local files.

| request   | is read as                                                                     |
| --------- | ------------------------------------------------------------------------------ |
| Pages     | one range of every file, the next one on its way meanwhile (scan.py)           |
| Partition | the `partition_pages` pages around a key, one range of every file (lookup.py)  |
| Keys      | the distinct pages of all keys, several at a time, cut to their rows (lookup.py) |

Of pages that do not fit into a read only the rows that are wanted are read (wide.py).

What `read` returns lies in a buffer that the next `read` fills again: feed it to the engine
first. The engine copies what it keeps.

Memory: what a read may take (`most`) holds all buffers of a request, the read-ahead's too. On top
come the mapped page index (`index_bytes`) and, only if `most` is less than one page with the blocks
around it, up to 8 KiB a file.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

from dovetail.join.exchange import Pages, Partition
from dovetail.join.phase import Relation
from dovetail.master.snapshot import index, manifest
from dovetail.master.snapshot.files import Caching, Reader, SnapshotFile
from dovetail.master.snapshot.fill import Layout
from dovetail.master.snapshot.index import PageIndex
from dovetail.master.snapshot.lookup import Looker
from dovetail.master.snapshot.place import FILES
from dovetail.master.snapshot.scan import Scanner

if TYPE_CHECKING:
    from concurrent.futures import ThreadPoolExecutor
    from pathlib import Path

    from dovetail.join.exchange import Read, Request

QUEUE_DEPTH = 8


class SnapshotRelation:
    """Reads the snapshot in a folder; for one engine at a time."""

    def __init__(
        self,
        folder: Path,
        *,
        direct: bool = True,
        read_ahead: bool = True,
        partition_pages: int = 1,
        queue_depth: int = QUEUE_DEPTH,
        wraps: bool = True,
        threads: ThreadPoolExecutor | None = None,
    ) -> None:
        """`wraps`: page 0 comes behind the last one, and is read ahead there.

        `threads`, if given, are shared with other relations, and `queue_depth` at least.
        """
        self.folder = folder
        self.manifest = manifest.load(folder)
        self.partition_pages = partition_pages
        """Pages of a partition; may be changed between any two reads."""
        self._files = {
            name: SnapshotFile(folder / name, facts.size, direct=direct)
            for name, facts in self.manifest.files.items()
            if name != index.NAME
        }
        self._index = PageIndex.read(folder / index.NAME, self.manifest)
        layout = Layout(self.manifest, self._index)
        self._reader = Reader([self._files.get(name) for name in FILES], queue_depth, threads)
        self._scanner = Scanner(layout, self._reader, read_ahead=read_ahead, wraps=wraps)
        self._looker = Looker(layout, self._reader, read_ahead=read_ahead)

    @property
    def facts(self) -> Relation:
        held = self.manifest
        return Relation(
            held.pages, held.largest_page, unique=held.unique, rows=held.rows, in_parts=True
        )

    @property
    def caching(self) -> Caching:
        """Whether reads go past the page cache; the worst of all files."""
        found = {file.caching for file in self._files.values()}
        return next(kind for kind in reversed(Caching) if kind in found)

    @property
    def index_bytes(self) -> int:
        """Bytes of the page index, which is mapped from its file."""
        return self._index.nbytes

    def read(self, request: Request, most: int) -> Read:
        """Read what the engine wants, in no more than `most` bytes; it lasts until the next read.

        Pages are read up to R's end, and keys as far as their rows fit: one of them at least, or a
        row of a page.
        """
        if isinstance(request, Pages):
            self._looker.forget()
            return self._scanner.read(request, most)
        self._scanner.forget()
        if isinstance(request, Partition):
            pages = request.pages or self.partition_pages
            return self._looker.partition(request.key, pages, most, request.then)
        return self._looker.rows_of(request.keys, most)

    def verify(self) -> None:
        """Compare every file with its checksum: reads all of the snapshot."""
        manifest.verify(self.folder, self.manifest)

    def forget(self) -> None:
        """Leave the memory of the last read, and what is on its way."""
        self._scanner.forget()
        self._looker.forget()

    def close(self) -> None:
        self.forget()
        self._reader.close()
        for file in self._files.values():
            file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
