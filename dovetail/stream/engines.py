"""From one engine to the other: a pipeline's events are taken by one of them alone.

Spark goes on where the services' ingest has left off, once that is gone and they have answered all
that it took. It is gone when it is no member of its group any more. Spark takes its transactional
ids over then, and ingest asks whose the pipeline is whenever it is given partitions: so one that
was only still for a while commits nothing, and ends.

Back to the services there is no way: their offsets stand where they were, and whatever Spark has
answered since would be answered again.
"""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING

from dovetail.audit import Auditor
from dovetail.errors import ConfigError, Unavailable
from dovetail.pipeline.spec import Engine
from dovetail.stream.offsets import CommittedOffsets
from dovetail.stream.old_states import OldStates
from dovetail.stream.takeover import Written, absent, members, producer_of
from dovetail.stream.topics import admin_of, ends
from dovetail.topology import INGEST, Topology

if TYPE_CHECKING:
    from dovetail.settings import Settings


def require_services(settings: Settings, topology: Topology) -> None:
    """Raise a ConfigError if Spark has run the pipeline."""
    with closing(OldStates(settings, topology)) as old:
        if any(ends(admin_of(settings), topology.states)) or old.read().run:
            raise ConfigError(
                f"{topology.pipeline.name} was run by Spark, and the services would answer its "
                f"events once more: write engine: spark, or give the pipeline another name"
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
        services = topology.pipeline.model_copy(update={"engine": Engine.SERVICES})
        with closing(Auditor(settings, Topology(services))) as auditor:
            in_flight = auditor.audit_of(0).in_flight
        if in_flight:
            raise ConfigError(
                f"the services have {in_flight:,} events of {topology.pipeline.name} in flight: "
                f"let them answer those first, with engine: services, while nothing is sent"
            )
    return {number: at.offset for number, at in taken.items()}


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
