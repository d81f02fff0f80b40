"""From one engine to the other: a pipeline's events are taken by one of them alone.

Spark goes on where the services' ingest has left off, once they have answered all that they took.
Back to the services there is no way: their offsets stand where they were, and whatever Spark has
answered since would be answered again.
"""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING

from dovetail.audit import Auditor
from dovetail.errors import ConfigError
from dovetail.pipeline.spec import Engine
from dovetail.stream.offsets import CommittedOffsets
from dovetail.stream.old_states import OldStates
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
    """From where on the source's partitions are nobody's; a ConfigError if events are in flight."""
    with closing(CommittedOffsets(settings, topology.group(INGEST), topology.source)) as offsets:
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
