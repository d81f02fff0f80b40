"""manifest.json: what a snapshot holds, and how to tell whether it is whole."""

from __future__ import annotations

import os
import zlib
from typing import TYPE_CHECKING

import msgspec

from dovetail.errors import MasterDataError
from dovetail.join.keys import KeyType  # noqa: TC001 - msgspec reads the annotation when it decodes

if TYPE_CHECKING:
    from pathlib import Path

FORMAT = 1
NAME = "manifest.json"
_CHUNK = 1 << 20


class FileFacts(msgspec.Struct, frozen=True):
    size: int
    """In bytes."""
    crc32: int


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    key: KeyType
    """Whether `keys` are the join keys themselves or the hashes of texts."""
    rows: int
    rows_a_page: int
    pages: int
    """N_R; 1 for an R without rows."""
    page_bytes: int
    """What a page was meant to take on disk."""
    largest_page: int
    """v_P: bytes that the largest page takes as a `Read`."""
    unique: bool
    """Whether no join key has a second row, as the writer found it."""
    row_width: int | None
    """Bytes of every row, if they all have the same; there is no `bounds` file then."""
    slots: int
    slot: int
    """These are the rows whose key has this slot of so many."""
    schema: str
    """What the rows are, in the words of whoever wrote them."""
    files: dict[str, FileFacts]
    format: int = FORMAT


class _Version(msgspec.Struct):
    format: int


def load(folder: Path) -> Manifest:
    """Read the manifest and see that every file it names is there in full length."""
    try:
        text = (folder / NAME).read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        raise MasterDataError(
            f"{folder} is not a snapshot: there is no {NAME} in it. Name a snapshot's own folder, "
            f"or write one first"
        ) from None
    try:
        version = msgspec.json.decode(text, type=_Version).format
        if version != FORMAT:
            raise MasterDataError(
                f"{folder} is a snapshot of format {version}, and this release reads format "
                f"{FORMAT}: write the snapshot anew with this release, or read it with the other"
            )
        manifest = msgspec.json.decode(text, type=Manifest)
    except msgspec.DecodeError as error:
        raise MasterDataError(
            f"{folder / NAME} is damaged ({error}): write the snapshot anew"
        ) from error
    for name, facts in manifest.files.items():
        _require_size(folder / name, facts.size)
    return manifest


def save(folder: Path, manifest: Manifest) -> None:
    with (folder / NAME).open("wb") as file:
        file.write(msgspec.json.format(msgspec.json.encode(manifest), indent=2))
        file.flush()
        os.fsync(file.fileno())


def verify(folder: Path, manifest: Manifest) -> None:
    """Compare every file with its checksum; reads the whole snapshot."""
    for name, facts in manifest.files.items():
        found = 0
        with (folder / name).open("rb") as file:
            while chunk := file.read(_CHUNK):
                found = zlib.crc32(chunk, found)
        if found != facts.crc32:
            raise MasterDataError(
                f"{folder / name} is damaged: its checksum is {found:08x}, and "
                f"{facts.crc32:08x} was written. Write the snapshot anew, and check the disk"
            )


def _require_size(path: Path, size: int) -> None:
    try:
        found = path.stat().st_size
    except FileNotFoundError:
        raise MasterDataError(
            f"{path} is missing: the snapshot is not whole, write or copy it anew"
        ) from None
    if found != size:
        raise MasterDataError(
            f"{path} has {found} bytes, and {size} were written: the snapshot is not whole, "
            f"write or copy it anew"
        )
