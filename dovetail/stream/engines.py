"""From one engine or layout to the other: a pipeline's events are taken by one of them alone.

Spark goes on where the services' ingest has left off, once that is gone and they have answered all
that it took. It is gone when it is no member of its group any more. Spark takes its transactional
ids over then, and ingest asks whose the pipeline is whenever it is given partitions: so one that
was only still for a while commits nothing, and ends.

Back to the services there is no way: their offsets stand where they were, and whatever Spark has
answered since would be answered again.

Between the layouts of the services there is a way in both directions, over a drained pipeline:
whoever reads the source, and whoever reads a slot, does so in the same group, under the same
transactional id and with the same ledger, so that who comes last goes on where the other left off.
What the one must not leave to the other:

    split ─► fused    events on topics that a node does not read (`require_layout`)
    fused ─► split    events answered above the committed offset, which ingest or the cache phase
                      would take again (`require_no_progress`)
"""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING

from dovetail.audit import Auditor
from dovetail.errors import ConfigError, Unavailable
from dovetail.pipeline.spec import Engine
from dovetail.stream.ledger import PROGRESS, parse
from dovetail.stream.offsets import CommittedOffsets
from dovetail.stream.old_states import OldStates
from dovetail.stream.takeover import Written, absent, members, producer_of
from dovetail.stream.topics import admin_of, ends
from dovetail.topology import INGEST, Topology

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dovetail.pipeline.spec import Pipeline
    from dovetail.settings import Settings
    from dovetail.stream.ledger import Ledger
    from dovetail.stream.offsets import Committed
    from dovetail.topology import Topic


LAID_OUT = {True: "the layout fused", False: "the layout split"}


def require_services(settings: Settings, topology: Topology) -> None:
    """Raise a ConfigError if Spark has run the pipeline."""
    with closing(OldStates(settings, topology)) as old:
        if any(ends(admin_of(settings), topology.states)) or old.read().run:
            raise ConfigError(
                f"{topology.pipeline.name} was run by Spark, and the services would answer its "
                f"events once more: write engine: spark, or give the pipeline another name"
            )


def require_layout(settings: Settings, topology: Topology) -> None:
    """Raise a ConfigError if another layout has left events that this one does not look for.

    Unavailable while processes of that layout run beside this one's.
    """
    mine = {stage.keeper for stage in topology.stages}
    others = [stage for stage in topology.ledgers if stage.service not in mine]
    with closing(Auditor(settings, topology)) as auditor:
        backlogs = auditor.audit_of(0).backlogs
    for stage in others:
        if (left := backlogs[stage.service]) > 0:
            raise ConfigError(
                f"{left:,} events of {topology.pipeline.name} wait on {stage.reads.name}, where "
                f"{LAID_OUT[topology.fused]} does not look: start it as it was laid out before, "
                f"drain it, and change the layout then"
            )
    for stage in others:
        _require_gone(settings, Written((), topology.group(stage.service), stage.reads))


def require_no_progress(ledger: Ledger, partition: int, reads: Topic) -> None:
    """Raise a ConfigError if a fused node has answered events above what it has committed.

    For whoever reads where a node may have read before, and knows nothing of that.
    """
    if ledger.progress(partition):
        raise ConfigError(
            f"a fused node has answered events of {reads.name} above what it has committed, and "
            f"they would be answered once more: start it as it was laid out before, drain it, and "
            f"change the layout then"
        )


def _require_no_progress(topology: Topology, taken: Mapping[int, Committed]) -> None:
    if any(parse(at.text)[PROGRESS] for at in taken.values()):
        raise ConfigError(
            f"a fused node has answered events of {topology.pipeline.name} above what it has "
            f"committed, and they would be answered once more: start it with layout: fused once "
            f"more, drain it, and change the layout then"
        )


def left_by_services(settings: Settings, topology: Topology) -> dict[int, int]:
    """From where on the source's partitions are nobody's; a ConfigError if events are in flight.

    Unavailable while ingest runs.
    """
    with closing(OldStates(settings, topology)) as old:
        if old.are_elsewhere:
            return {}  # where ingest left off is long behind Spark
    ingest = Written((), topology.group(INGEST), topology.source)
    with closing(CommittedOffsets(settings, ingest.group, topology.source)) as offsets:
        # First, as it waits for the group's coordinator, which a new broker does not have yet.
        begun = offsets.read()
        _require_gone(settings, ingest)
        if begun:
            _fence(settings, ingest)
        # Afterwards: what was under way is committed by now, or never will be.
        taken = offsets.read()
    if taken:
        _require_no_progress(topology, taken)
        services = topology.pipeline.model_copy(update={"engine": Engine.SERVICES})
        if in_flight := _in_flight(settings, services):
            raise ConfigError(
                f"the services have {in_flight:,} events of {topology.pipeline.name} in flight: "
                f"let them answer those first, with engine: services, while nothing is sent"
            )
    return {number: at.offset for number, at in taken.items()}


def _in_flight(settings: Settings, services: Pipeline) -> int:
    """Events that the services have taken from the source, and not answered."""
    with closing(Auditor(settings, Topology(services))) as auditor:
        return auditor.audit_of(0).in_flight


def _require_gone(settings: Settings, stage: Written) -> None:
    if running := members(settings, stage):
        raise Unavailable(
            f"the services run the pipeline still ({', '.join(sorted(running))}): stop them. One "
            f"that was stopped counts as running for 45 s more"
        )


def _fence(settings: Settings, stage: Written) -> None:
    """End what a stage without members may have under way."""
    for name in absent(settings, stage):
        producer_of(settings, name, Written(())).close()
