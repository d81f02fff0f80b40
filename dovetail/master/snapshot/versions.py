"""The versions of a pipeline's snapshot: one folder each, of which one is current.

    <snapshots>/<pipeline>/
        00000006/                   the one before; earlier ones are kept while they are read
        00000007/manifest.json      what it holds: rows and checksums of every slot
        00000007/slot-00000/ …      a snapshot for each slot (manifest.py)
        current -> 00000007
        .00000008.….partial/        one that is being written, or was when its writer died

1. A version is filled under a hidden name, synced, and gets its name by one rename.
2. `current` is replaced by one rename: whoever reads it finds this version or the one before.
3. Versions before the last two are removed, unless somebody reads them: readers hold a shared lock
   on the version's manifest.

One writer at a time is the caller's care; readers may be any number, on any machine that has the
folder.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Self

import msgspec

from dovetail.errors import MasterDataError
from dovetail.join.keys import KeyType  # noqa: TC001 - msgspec reads the annotation when it decodes
from dovetail.master.snapshot import manifest
from dovetail.master.snapshot.split import slot_folder
from dovetail.master.snapshot.writer import appearing
from dovetail.pipeline.spec import KeyType as PipelineKey

if TYPE_CHECKING:
    from collections.abc import Iterator

    from dovetail.pipeline.spec import Pipeline

FORMAT = 1
KEPT = 2
"""Versions that are kept whoever reads them: the current one and the one to go back to."""
_CURRENT = "current"
_DIGITS = 8


class Content(msgspec.Struct, frozen=True):
    """What a snapshot holds: that of a pipeline which asks for anything else does not fit it."""

    table: str
    key: tuple[str, ...]
    key_type: KeyType
    columns: dict[str, str] | None
    """Each column and its name in the rows; None if only the keys were asked for."""
    slots: int

    @classmethod
    def of(cls, pipeline: Pipeline) -> Self:
        return cls(
            pipeline.master.table,
            pipeline.master.key,
            "int" if pipeline.key_type is PipelineKey.INT else "text",
            dict(pipeline.master.columns) if pipeline.join.takes_columns else None,
            pipeline.slots,
        )


class SlotFacts(msgspec.Struct, frozen=True):
    rows: int
    size: int
    """In bytes."""
    sha256: str
    """Of the slot's own manifest, in which every file has its checksum."""

    @classmethod
    def of(cls, folder: Path, held: manifest.Manifest) -> Self:
        size = sum(facts.size for facts in held.files.values())
        return cls(held.rows, size, _sha256(folder / manifest.NAME))


class Version(msgspec.Struct, frozen=True, kw_only=True):
    pipeline: str
    version: int
    written_at: str
    database_snapshot: str
    """The state of the database that the rows are of."""
    content: Content
    rows: int
    slots: list[SlotFacts]
    format: int = FORMAT


class Versions:
    """The versions in a folder, of one table of one pipeline."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def current(self) -> int | None:
        """The number of the version to read; None if there is none yet."""
        try:
            return int((self.folder / _CURRENT).readlink().name)
        except FileNotFoundError:
            return None
        except (OSError, ValueError) as error:
            raise MasterDataError(
                f"{self.folder / _CURRENT} is no link to a version: remove it, and write the "
                f"snapshot anew"
            ) from error

    def numbers(self) -> list[int]:
        """All versions that are whole, in their order."""
        if not self.folder.is_dir():
            return []
        return sorted(int(path.name) for path in self.folder.iterdir() if path.name.isdecimal())

    def path(self, number: int) -> Path:
        return self.folder / f"{number:0{_DIGITS}}"

    @contextmanager
    def next(self) -> Iterator[tuple[int, Path]]:
        """A number, and a folder to fill and `seal`: at the end it is that version, and current.

        What writers left that died on the way is removed first.
        """
        self._clear()
        number = max([0, *self.numbers()]) + 1
        with appearing(self.path(number)) as unseen:
            yield number, unseen
        self._point_to(number)
        self.remove_old()

    def remove_old(self) -> list[int]:
        """Remove versions that nobody reads and nobody needs; return their numbers."""
        current = self.current()
        return [
            number
            for number in self.numbers()[:-KEPT]
            if number != current and _removed(self.path(number))
        ]

    def _clear(self) -> None:
        if self.folder.is_dir():
            for path in self.folder.glob(".*.partial"):
                shutil.rmtree(path, ignore_errors=True)

    def _point_to(self, number: int) -> None:
        link = self.folder / f".{_CURRENT}.{os.getpid()}"
        link.unlink(missing_ok=True)
        link.symlink_to(self.path(number).name)
        link.rename(self.folder / _CURRENT)


def seal(folder: Path, version: Version) -> None:
    """Write the manifest of a version whose slots are all there, into its folder."""
    with (folder / manifest.NAME).open("wb") as file:
        file.write(msgspec.json.format(msgspec.json.encode(version), indent=2))
        file.flush()
        os.fsync(file.fileno())


class Hold:
    """A version that is read: it is not removed until this is closed."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        try:
            self._file = (folder / manifest.NAME).open("rb")
        except FileNotFoundError:
            raise MasterDataError(f"{folder} is no version of a snapshot") from None
        try:
            fcntl.flock(self._file, fcntl.LOCK_SH)
            self.version = _decoded(self._file.read(), folder)
        except BaseException:
            self._file.close()
            raise
        if not folder.is_dir():  # removed between the two
            self._file.close()
            raise MasterDataError(f"{folder} is no version of a snapshot any more")

    @property
    def is_there(self) -> bool:
        """Whether it is still what has its name: it may be deleted, or written anew since then."""
        try:
            return os.path.samestat(
                os.fstat(self._file.fileno()), (self.folder / manifest.NAME).stat()
            )
        except OSError:
            return False

    def slot(self, slot: int) -> Path:
        """The folder of a slot, checked to be the one that the version was sealed with."""
        folder = slot_folder(self.folder, slot)
        held = folder / manifest.NAME
        if not held.exists() or _sha256(held) != self.version.slots[slot].sha256:
            raise MasterDataError(
                f"{folder} is not what version {self.version.version} was written with: write the "
                f"snapshot anew, and check the disk"
            )
        return folder

    def close(self) -> None:
        self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def versions_of(folder: Path | str, pipeline: str, link: int = 1) -> Versions:
    """The versions of a pipeline's table in the folder of all snapshots."""
    return Versions(Path(folder) / (pipeline if link == 1 else f"{pipeline}.{link}"))


def _decoded(text: bytes, folder: Path) -> Version:
    try:
        version = msgspec.json.decode(text, type=Version)
    except msgspec.DecodeError as error:
        raise MasterDataError(
            f"{folder / manifest.NAME} is damaged, or of another release ({error}): write the "
            f"snapshot anew"
        ) from error
    if version.format != FORMAT:
        raise MasterDataError(
            f"{folder} is of format {version.format}, and this release reads format {FORMAT}: "
            f"write the snapshot anew"
        )
    return version


def _removed(folder: Path) -> bool:
    """Remove a version unless somebody holds it."""
    try:
        file = (folder / manifest.NAME).open("rb")
    except FileNotFoundError:
        return False
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        # Its name goes first: half of a version is never seen.
        unseen = folder.parent / f".{folder.name}.removed.partial"
        folder.rename(unseen)
    shutil.rmtree(unseen, ignore_errors=True)
    return True


def _sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()
