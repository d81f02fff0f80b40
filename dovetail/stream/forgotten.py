"""Whether the broker has forgotten what a stage has read.

A broker forgets a consumer group's offsets some time after its last member has left
(`offsets.retention.minutes`), and with them the ledger. Who began anew then would answer everything
once more. What tells it from a first start is that the stage has written: it commits where it
begins before it writes anything (places.py), so that offsets were there once. Or that what it reads
was purged: control deletes what a stage has committed and nothing else (services/control/purge.py).

On Spark nothing of the kind is forgotten by itself, but the topic `states` may be deleted. What is
remembered from before it was there, by ingest or by an older release, must not be begun with then.
"""

from __future__ import annotations

import time
from contextlib import closing
from typing import TYPE_CHECKING

from dovetail.errors import ConfigError
from dovetail.stream.offsets import CommittedOffsets
from dovetail.stream.old_states import OldStates
from dovetail.stream.places import AstrayError
from dovetail.stream.topics import admin_of, beginnings, spans
from dovetail.topology import INGEST, Keeps

if TYPE_CHECKING:
    from collections.abc import Iterable

    from confluent_kafka.admin import AdminClient

    from dovetail.settings import Settings
    from dovetail.topology import Stage, Topic, Topology

_SURELY_S = 10.0
"""A commit shows on one partition after another: for so long offsets are looked for again."""
_LOOK_EVERY_S = 0.5


def require_remembered(settings: Settings, topology: Topology, stage: Stage) -> None:
    """Raise a ConfigError if the stage has committed offsets, and they are gone."""
    group = topology.group(stage.keeper)
    with closing(CommittedOffsets(settings, group, stage.reads)) as offsets:
        if offsets.read():
            return
        admin = admin_of(settings)
        purged = stage.reads.keeps is Keeps.UNREAD and any(beginnings(admin, stage.reads))
        shown = [one for one in topology.witnesses(stage) if has_written(admin, [one])]
        if not purged and not shown:
            return
        witness = (*shown, stage.reads)[0]
        deadline = time.monotonic() + _SURELY_S
        while time.monotonic() < deadline:
            time.sleep(_LOOK_EVERY_S)
            if offsets.read():
                return
    internal = [one.reads.name for one in topology.ledgers if one.reads.keeps is Keeps.UNREAD]
    for link in topology.links:
        internal += [link.progress.name, link.node_progress.name]
    internal.append(topology.source_progress.name)
    raise ConfigError(
        f"the broker has forgotten what {group} has read, as {witness.name} shows: begun anew, it "
        f"would answer once more what is answered. Stop all services; set the offsets of "
        f"{topology.group(INGEST)} on {topology.source.name} to where it is to go on, unless that "
        f"is the beginning; delete the topics {', '.join(internal)}; and start again "
        f"(docs/operations.md, Forgotten offsets)"
    )


def require_states(settings: Settings, topology: Topology) -> None:
    """Raise an AstrayError if Spark has no states of the pipeline, and must have had some."""
    with closing(OldStates(settings, topology)) as old:
        if old.are_elsewhere:
            raise AstrayError(_deleted(topology, "it has had the states of all slots"))
    answers = (topology.enriched, topology.unmatched, topology.dead_letter, topology.parked)
    # A sink of another name may be somebody else's, too.
    own = [topic for topic in answers if topic.name.startswith(f"{topology.pipeline.name}.")]
    if has_written(admin_of(settings), own):
        raise AstrayError(_deleted(topology, f"there are answers of {topology.pipeline.name}"))


def _deleted(topology: Topology, why: str) -> str:
    return (
        f"{topology.states.name} has nothing of what was read, and {why}: begun anew, it would "
        f"answer once more what is answered. See docs/operations.md, Forgotten offsets"
    )


def has_written(admin: AdminClient, topics: Iterable[Topic]) -> bool:
    """Whether anything was ever written to one of these topics, be it aborted or deleted since."""
    return any(span.end for topic in topics for span in spans(admin, topic).values())
