"""Where a job reads the rows of keys: as the services do, in PostgreSQL or the current snapshot."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dovetail.master.pipeline import PipelineRelation
from dovetail.master.snapshot.current import CurrentSnapshot
from dovetail.master.snapshot.versions import versions_of

if TYPE_CHECKING:
    from dovetail.master.relation import ChangingRelation
    from dovetail.pipeline.spec import Pipeline
    from dovetail.settings import Settings


def relation_of(
    settings: Settings, pipeline: Pipeline, link: int = 1, *, read_ahead: bool = False
) -> ChangingRelation:
    folder = pipeline.master.snapshot
    if folder is None:
        return PipelineRelation(settings.database_url, pipeline, read_ahead=read_ahead)
    command = f"dovetail spark snapshot {settings.pipeline}"
    return CurrentSnapshot(versions_of(folder, pipeline.name, link), pipeline, command)
