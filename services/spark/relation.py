"""Where a job reads the rows of keys: as the services do, in PostgreSQL or the current snapshot."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from dovetail.master.pipeline import PipelineRelation
from dovetail.master.session import LONGEST_S
from dovetail.master.snapshot.current import CurrentSnapshot
from dovetail.master.snapshot.versions import versions_of

if TYPE_CHECKING:
    from dovetail.master.relation import ChangingRelation
    from dovetail.pipeline.spec import Pipeline
    from dovetail.settings import Settings

_SHARE = 4
"""One part in so many of the memory that is available may R take in the page cache."""


def relation_of(
    settings: Settings, pipeline: Pipeline, link: int = 1, *, read_ahead: bool = False
) -> ChangingRelation:
    folder = pipeline.master.snapshot
    if folder is None:
        # A task that has failed is tried again by a worker that has learnt nothing of it: whatever
        # can be read has to be read at the first try.
        return PipelineRelation(
            settings.database_url, pipeline, read_ahead=read_ahead, limit_s=LONGEST_S
        )
    command = f"dovetail spark snapshot {settings.pipeline}"
    versions = versions_of(folder, pipeline.name, link)
    return CurrentSnapshot(versions, pipeline, command, is_cached=_has_room_in_cache)


def _has_room_in_cache(size: int) -> bool:
    """Whether so many bytes may lie in the page cache.

    A batch scans R, and the next one does again: Spark reads its own sources through the cache too.
    What has no room would push everything else out, and be read from the disk all the same.
    """
    return size <= _available() // _SHARE


def _available() -> int:
    """Bytes that can be had without swapping; 0 where the system does not tell."""
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
    except OSError:
        return 0
    told = [line.split() for line in lines if line.startswith("MemAvailable:")]
    return int(told[0][1]) << 10 if told else 0
