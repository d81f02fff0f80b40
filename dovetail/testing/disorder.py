"""How far a sink's order is from the order in which its events came.

assert disorder(came, left) == 0        # source order
assert disorder(came, left) <= 50       # within 50 events
"""

from __future__ import annotations

from collections import defaultdict, deque
from typing import TYPE_CHECKING

from dovetail.stream.batch import EventBatch
from dovetail.stream.whole import place_of
from dovetail.verify import Judge, read_all
from dovetail.verify.reading import origin_of

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Sequence

    from dovetail.settings import Settings
    from dovetail.stream.whole import Identity
    from dovetail.topology import Topology


def disorder(came: Iterable[Hashable], left: Sequence[Hashable]) -> int:
    """The scrambling distance: how many places the event is off that is off furthest.

    Places count among the events that have an output; one with several has its place once, and an
    error is raised if anything stands between its outputs.
    """
    events = [one for at, one in enumerate(left) if at == 0 or one != left[at - 1]]
    places = {event: place for place, event in enumerate(events)}
    if len(places) < len(events):
        raise ValueError("the outputs of one event do not stand together")
    answered = [event for event in came if event in places]
    return max((abs(places[event] - place) for place, event in enumerate(answered)), default=0)


def disorder_of_keys(came: Iterable[tuple[Hashable, Identity]], left: Sequence[Identity]) -> int:
    """The largest scrambling distance among the events of one key; `came` has keys with events."""
    events: dict[Hashable, list[Identity]] = defaultdict(list)
    outputs: dict[Hashable, list[Identity]] = defaultdict(list)
    key_of = {}
    for key, event in came:
        events[key].append(event)
        key_of[event] = key
    for event in left:
        outputs[key_of[event]].append(event)
    return max((disorder(events[key], outputs[key]) for key in outputs), default=0)


def left_by_slot(settings: Settings, topology: Topology) -> dict[int, list[Identity]]:
    """For each partition of the sink the events of its outputs, in order."""
    left: dict[int, list[Identity]] = defaultdict(list)
    for message in read_all(settings, topology.enriched):
        origin, slot = origin_of(message, topology.source), message.partition()
        assert origin is not None, "an output names its event"
        assert slot is not None
        left[slot].append(origin)
    return left


def came_by_slot(
    settings: Settings, topology: Topology
) -> dict[int, list[tuple[Hashable, Identity]]]:
    """For each slot its events, with their join keys, as the mapper put them; unless purged.

    Spark puts them nowhere, and neither does a fused node.
    """
    if topology.in_one:
        return _as_they_may_have_come(settings, topology)
    came: dict[int, list[tuple[Hashable, Identity]]] = defaultdict(list)
    for message in read_all(settings, topology.mapped):
        slot = message.partition()
        assert slot is not None
        batch = EventBatch.from_message(message.value() or b"")
        keys = zip(batch.keys.values.tolist(), batch.keys.texts, strict=True)
        events = zip(batch.partitions.tolist(), batch.offsets.tolist(), strict=True)
        came[slot] += zip(keys, events, strict=True)
    return came


def _as_they_may_have_come(
    settings: Settings, topology: Topology
) -> dict[int, list[tuple[Hashable, Identity]]]:
    """For each slot its events that have outputs, in an order that the outputs are closest to.

    A slot takes the events of each source partition in order, and those of different ones in any.
    So a partition's events have the places of its outputs, from the first to the last; where only
    the order of a key is kept, its events have those of their own outputs.
    """
    judge = Judge(topology.pipeline)
    key_of: dict[Identity, Hashable] = {
        place_of(message): judge.key_of(message.value())
        for message in read_all(settings, topology.source)
    }
    by_key = topology.pipeline.order.by_key
    came = {}
    for slot, left in left_by_slot(settings, topology).items():
        ranks = {event: (event[0], key_of[event] if by_key else None) for event in left}
        turns: dict[Hashable, deque[Identity]] = defaultdict(deque)
        for event in sorted(ranks):
            turns[ranks[event]].append(event)
        in_turn = [turns[ranks[event]].popleft() for event in dict.fromkeys(left)]
        came[slot] = [(key_of[event], event) for event in in_turn]
    return came
