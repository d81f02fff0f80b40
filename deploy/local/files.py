"""Writing a file so that no reader, and no crash, ever sees half of it."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


def write_atomically(path: Path, text: str, mode: int = 0o644, *, durable: bool = True) -> None:
    """Replace the file in one step; `durable` waits until that survives a loss of power."""
    partial = path.with_name(f".{path.name}.{os.getpid()}")
    partial.unlink(missing_ok=True)
    descriptor = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(text)
        if durable:
            file.flush()
            os.fsync(file.fileno())
    partial.replace(path)


def last_lines(path: Path, count: int = 20) -> str:
    """Return the end of a log; reads at most 64 KiB, however long the log is."""
    try:
        with path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - 65_536))
            lines = file.read().decode("utf-8", "replace").splitlines()
    except FileNotFoundError:
        return "(no log)"
    return "\n".join(f"    {line}" for line in lines[-count:]) or "(the log is empty)"
