"""Pipelines and their revisions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from confluent_kafka import KafkaError, KafkaException
from fastapi import APIRouter, Response

from dovetail.errors import ConfigError
from dovetail.permissions import Operation, Permission, Resource
from dovetail.pipeline.check import Level, all_findings
from dovetail.pipeline.summary import summary
from dovetail.stream.refusals import failure
from dovetail.stream.topics import admin_of
from dovetail.topology import CONTROL_TOPIC, STATS_TOPIC, Topology
from services.access.roles import Role, needs
from services.control import documents
from services.control.hub import shown_job
from services.control.routes.common import Asker, require_confirmed
from services.control.shapes import (
    Checked,
    CheckedDocument,
    Deletion,
    Listed,
    Most,
    NewPipeline,
    PartialRevision,
    PipelineName,
    Revised,
    RevisionNumber,
    RevisionShape,
    Shown,
    WholeRevision,
    WholeRevisionShape,
)
from services.control.store.pipelines import API, NewRevision
from services.problem import Blame, Kind, ProblemError, conflict, not_found

if TYPE_CHECKING:
    from collections.abc import Iterator

    from confluent_kafka.admin import AdminClient

    from dovetail.pipeline.spec import Pipeline
    from services.access.roles import Who
    from services.control.hub import Hub
    from services.control.store.pipelines import RevisionRow

_ROLES = (
    *("source", "clean", "enriched", "unmatched", "dead_letter", "shed", "parked", "requests"),
    *("still_unmatched", "backfill", "states", "foreign", "source_progress"),
)
_OF_A_LINK = ("mapped", "missed", "migrations", "progress", "node_progress")
_WITHIN_S = 30.0


def pipeline_routes(hub: Hub) -> APIRouter:
    app = APIRouter(tags=["pipelines"])

    @app.get("/v1/pipelines", response_model=list[Listed])
    def list_pipelines() -> list[dict[str, Any]]:
        return [_listed(hub, row) for row in hub.pipelines.all()]

    @app.post("/v1/pipelines", status_code=201, response_model=Shown)
    @needs(Role.OPERATE)
    def create_pipeline(new: NewPipeline, who: Asker) -> dict[str, Any]:
        """Store a pipeline. Its processes are started by Helm, or by `make run PIPELINE=…`."""
        pipeline = documents.parse(new.document, hub.file, {})
        first = NewRevision(new.document, documents.written(pipeline), [], API, who.name, new.why)
        if not hub.pipelines.create(pipeline.name, first):
            raise conflict(f"there is a pipeline {pipeline.name!r} already: PUT changes it")
        hub.changes.note(who, "pipeline.create", pipeline.name, why=new.why)
        return _shown(hub, hub.current(pipeline.name))

    @app.post("/v1/validate", response_model=Checked)
    @needs(Role.OPERATE)
    def validate(document: CheckedDocument) -> dict[str, Any]:
        """Check a document without storing it; `database` looks at the master tables, too."""
        pipeline = documents.parse(document.document, hub.file, {})
        findings = _findings(hub, pipeline) if document.database else []
        return {
            "pipeline": documents.written(pipeline),
            "summary": summary(pipeline),
            "findings": findings,
        }

    @app.get("/v1/pipelines/{name}", response_model=Shown)
    def show_pipeline(name: PipelineName) -> dict[str, Any]:
        return _shown(hub, hub.current(name))

    @app.put("/v1/pipelines/{name}", status_code=202, response_model=Revised)
    @needs(Role.OPERATE)
    def change_pipeline(
        name: PipelineName, new: WholeRevision, who: Asker, response: Response
    ) -> dict[str, Any]:
        """Make a revision of a whole document, and let the services run by it."""
        return _revised(hub, who, name, new.document, new.why, new.from_revision, response)

    @app.patch("/v1/pipelines/{name}", status_code=202, response_model=Revised)
    @needs(Role.OPERATE)
    def change_settings(
        name: PipelineName, new: PartialRevision, who: Asker, response: Response
    ) -> dict[str, Any]:
        """Make a revision with some settings changed; the rest of the document stays as it is."""
        given = new.settings.model_dump(exclude_none=True)
        if not given:
            raise ProblemError(
                Kind.REQUEST_INVALID,
                f"name at least one setting: {', '.join(documents.PATCHED)}",
                blames=[Blame("body.settings", "nothing is given")],
            )
        document = documents.patched(hub.current(name).document, given)
        return _revised(hub, who, name, document, new.why, new.from_revision, response)

    @app.delete("/v1/pipelines/{name}", status_code=204)
    @needs(Role.ADMIN)
    def delete_pipeline(name: PipelineName, deletion: Deletion, who: Asker) -> None:
        """Forget a pipeline that is stopped; its topics stay, unless they are to go."""
        current = hub.current(name)
        if name == hub.name:
            raise conflict(
                f"{name} runs here: stop its processes, and this control with them, first"
            )
        also = "; its topics are deleted, with all that is on them" if deletion.topics else ""
        require_confirmed(deletion.confirm, f"{name} and its revisions are forgotten{also}")
        gone = _delete_topics(hub, current) if deletion.topics else []
        hub.pipelines.delete(name)
        hub.changes.note(who, "pipeline.delete", name, why=deletion.why, topics=gone)

    @app.get("/v1/pipelines/{name}/revisions", response_model=list[RevisionShape])
    def list_revisions(name: PipelineName, most: Most = 50) -> list[dict[str, Any]]:
        hub.current(name)
        return [_revision(row) for row in hub.pipelines.revisions(name, most)]

    @app.get("/v1/pipelines/{name}/revisions/{revision}", response_model=WholeRevisionShape)
    def show_revision(name: PipelineName, revision: RevisionNumber) -> dict[str, Any]:
        hub.current(name)
        row = hub.pipelines.revision(name, revision)
        if row is None:
            raise not_found(f"{name} has no revision {revision}; …/revisions lists them")
        return {**_revision(row), "document": row.document, "pipeline": row.parsed}

    @app.get("/v1/pipelines/{name}/topology")
    def show_topology(name: PipelineName) -> dict[str, Any]:
        """Show stages and topics in the order in which the data flows."""
        return _topology(hub.stored(hub.current(name)))

    return app


def _revised(
    hub: Hub,
    who: Who,
    name: str,
    document: str,
    why: str,
    from_revision: int | None,
    response: Response,
) -> dict[str, Any]:
    revision, changes, job = hub.revise(who, name, document, why, from_revision)
    if job is None:
        response.status_code = 200
    return {
        "revision": revision,
        "changes": changes,
        "job": None if job is None else shown_job(job),
    }


def _findings(hub: Hub, pipeline: Pipeline) -> list[dict[str, str]]:
    found = all_findings(pipeline, hub.settings.database_url)
    errors = [Blame("master", finding.text) for finding in found if finding.level is Level.ERROR]
    if errors:
        raise ProblemError(
            Kind.PIPELINE_INVALID,
            f"its master data: {'; '.join(blame.text for blame in errors)}",
            blames=errors,
        )
    return [{"level": str(finding.level), "text": finding.text} for finding in found]


def _listed(hub: Hub, row: RevisionRow) -> dict[str, Any]:
    return {
        "name": row.pipeline,
        "here": row.pipeline == hub.name,
        "state": hub.state(row.pipeline).word,
        "revision": row.revision,
        "changed_at": row.at,
        "summary": _summary(hub, row),
    }


def _summary(hub: Hub, row: RevisionRow) -> str:
    try:
        return summary(hub.stored(row))
    except ConfigError:  # of another release, perhaps: the others are listed all the same
        return "it is not valid any more: POST /v1/validate says why"


def _shown(hub: Hub, row: RevisionRow) -> dict[str, Any]:
    state = hub.state(row.pipeline)
    return {
        "name": row.pipeline,
        "here": row.pipeline == hub.name,
        "state": state.word,
        "reason": state.reason,
        "revision": row.revision,
        "changed_at": row.at,
        "changed_by": row.by,
        "why": row.why,
        "applied": hub.applied() if row.pipeline == hub.name else {},
        "document": row.document,
        "pipeline": row.parsed,
    }


def _revision(row: RevisionRow) -> dict[str, Any]:
    return {
        "revision": row.revision,
        "at": row.at,
        "by": row.by,
        "why": row.why,
        "origin": row.origin,
        "changes": row.changes,
    }


def _topology(pipeline: Pipeline) -> dict[str, Any]:
    topology = Topology(pipeline)
    roles = {getattr(topology, role).name: role.replace("_", "-") for role in _ROLES}
    for link in topology.links:
        roles |= {getattr(link, role).name: role.replace("_", "-") for role in _OF_A_LINK}
    roles |= {CONTROL_TOPIC: "control", STATS_TOPIC: "stats"}
    return {
        "stages": [
            {
                "service": stage.service,
                "kind": stage.kind,
                "link": stage.link,
                "per_node": stage.per_node,
                "reads": stage.reads.name,
                "writes": [topic.name for topic in stage.writes],
            }
            for stage in topology.stages
        ],
        "topics": [
            {"name": topic.name, "role": roles[topic.name], "partitions": topic.partitions}
            for topic in topology.topics()
        ],
        "slots": pipeline.slots,
        "nodes": pipeline.nodes,
        "links": pipeline.links,
    }


def _delete_topics(hub: Hub, row: RevisionRow) -> list[str]:
    """Delete what is the pipeline's own: never its source, nor what another one reads."""
    own = Topology(hub.stored(row))
    kept = {own.source.name, *_of_others(hub, row.pipeline)}
    names = [topic.name for topic in own.topics() if topic.name not in kept]
    groups = [own.group(stage.service) for stage in own.ledgers]
    admin = admin_of(hub.settings)
    try:
        _require_nobody_in(groups, admin)
        present = admin.list_topics(timeout=_WITHIN_S).topics
        gone = [name for name in names if name in present]
        for deletion in (
            admin.delete_topics(gone, request_timeout=_WITHIN_S).values() if gone else ()
        ):
            deletion.result()
    except KafkaException as error:
        needed = (
            *(Permission(Resource.TOPIC, name, Operation.DELETE) for name in names),
            *(Permission(Resource.GROUP, group, Operation.DESCRIBE) for group in groups),
        )
        text = f"the topics of {row.pipeline} cannot be deleted"
        raise failure(hub.settings, error, text, needed) from error
    return gone


def _of_others(hub: Hub, name: str) -> Iterator[str]:
    """The topics of all pipelines that are known here, but this one's."""
    for row in hub.pipelines.all():
        if row.pipeline != name:
            try:
                others = Topology(hub.stored(row))
            except ConfigError:
                raise conflict(
                    f"{row.pipeline} is not valid any more, and nobody can tell which topics it"
                    " reads: change or delete that one first, or leave the topics"
                ) from None
            yield from (topic.name for topic in others.topics())


def _require_nobody_in(groups: list[str], admin: AdminClient) -> None:
    told = admin.describe_consumer_groups(groups, request_timeout=_WITHIN_S)
    for group, future in told.items():
        try:
            members = future.result().members
        except KafkaException as error:
            if error.args[0].code() != KafkaError.GROUP_ID_NOT_FOUND:
                raise
            members = []
        if members:
            raise conflict(f"{group} has members: its processes run elsewhere; stop them first")
