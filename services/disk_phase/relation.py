"""Where the disk phase reads R: in PostgreSQL, or in the current snapshot."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fastapi import APIRouter

from dovetail.master.pipeline import PipelineRelation
from dovetail.master.snapshot.current import CurrentSnapshot
from dovetail.master.snapshot.versions import versions_of
from dovetail.pipeline.check import require_master
from dovetail.service.stage import Annex

if TYPE_CHECKING:
    from collections.abc import Callable

    from dovetail.master.relation import ChangingRelation
    from dovetail.service.stage import Context


def relation_of(context: Context) -> ChangingRelation:
    """The pipeline's R; while there is no snapshot to read, the stage is not ready."""
    pipeline, settings = context.pipeline, context.settings
    if pipeline.master.snapshot is None:
        require_master(pipeline, settings.database_url)
        return PipelineRelation(settings.database_url, pipeline)
    versions = versions_of(pipeline.master.snapshot, pipeline.name, settings.link)
    relation = CurrentSnapshot(versions, pipeline, f"dovetail spark snapshot {settings.pipeline}")
    context.annexes.append(_Readiness(relation))
    return relation


class _Readiness(Annex):
    """Says why the stage is not ready as long as its snapshot cannot be read."""

    def __init__(self, relation: CurrentSnapshot) -> None:
        self._relation = relation

    def routes(self) -> APIRouter:
        return APIRouter()

    def start(self, failed: Callable[[BaseException], None]) -> None:
        """Nothing has to run for it."""

    def stop(self) -> None:
        """Nothing runs."""

    def waiting_for(self) -> str:
        return self._relation.waiting_for()
