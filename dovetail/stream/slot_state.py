"""What a slot has behind it where Spark runs the pipeline: its latest message on `states`.

    enriched=790,in=812,outputs=801,unmatched=22,@0=1205,@1=1188

The ledger's counts (ledger.py), and for each source partition the offset below which every event
of the slot is answered. It is written in the transaction that carries the answers (states.py). What
became of the slot's events at a chain's further tables stands in lines of its own behind it.

So output, counts and positions become visible together or never, and who begins again has only to
leave out what is below the slot's positions, whatever batches it is given.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from dovetail import topology as services
from dovetail.stream import ledger
from dovetail.stream.offsets import Committed

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

_AT = "@"
_CUT = f"{ledger.CUT}."


@dataclass(frozen=True, slots=True)
class SlotState:
    counts: Counter[str] = field(default_factory=Counter)
    positions: dict[int, int] = field(default_factory=dict)
    """By source partition; what is not there begins with the partition."""
    further: tuple[Counter[str], ...] = ()
    """The counts of a chain's other tables, in their order."""
    cut: dict[int, int] = field(default_factory=dict)
    """Where source partitions ended that were found to end before a slot's position."""

    @classmethod
    def parse(cls, text: str, *further: str) -> SlotState:
        counts = ledger.parse(text)
        positions, cut = (_numbered(counts, mark) for mark in (_AT, _CUT))
        return cls(counts, positions, tuple(map(ledger.parse, further)), cut)

    @classmethod
    def of_message(cls, message: bytes) -> SlotState:
        return cls.parse(*message.decode().split("\n"))

    @property
    def message(self) -> bytes:
        links = range(1, len(self.further) + 2)
        return "\n".join(self.of_link(number).text for number in links).encode()

    @property
    def text(self) -> str:
        items = {
            **dict(sorted(self.counts.items())),
            **{f"{_AT}{number}": at for number, at in sorted(self.positions.items())},
            **{f"{_CUT}{number}": end for number, end in sorted(self.cut.items())},
        }
        return ",".join(f"{name}={count}" for name, count in items.items())

    def of_link(self, number: int) -> SlotState:
        """What is written for one table of a chain: for the first of them, all but the others."""
        if number == 1:
            return SlotState(self.counts, self.positions, cut=self.cut)
        at = number - 2
        return SlotState(self.further[at] if at < len(self.further) else Counter())

    def moved(self, number: int, offsets: Mapping[int, int]) -> SlotState:
        """The same, read on from elsewhere by the order of this number; an order is obeyed once."""
        if self.counts[ledger.MOVED] >= number:
            return self
        counts = Counter({**self.counts, ledger.MOVED: number})
        cut = {one: end for one, end in self.cut.items() if one not in offsets}
        return replace(self, counts=counts, positions={**self.positions, **offsets}, cut=cut)

    def placed(self, partition: int, offset: int, lost: int) -> SlotState:
        """The same, reading nothing of a partition before this offset; so much of it is lost."""
        at = max(self.position(partition), offset)
        counted = Counter({ledger.IN: lost, ledger.LOST: lost}) if lost else Counter()
        return replace(
            self, counts=self.counts + counted, positions={**self.positions, partition: at}
        )

    def position(self, partition: int) -> int:
        return self.positions.get(partition, 0)


def beginnings(states: Iterable[SlotState], partitions: int) -> dict[int, int]:
    """From where each source partition has to be read, so that no slot misses an event."""
    slots = list(states)
    return {
        number: min((slot.position(number) for slot in slots), default=0)
        for number in range(partitions)
    }


def as_stages(
    states: Iterable[SlotState], topology: services.Topology
) -> dict[str, dict[int, Committed]]:
    """What all slots have committed, as the stages would have whose place the application takes.

    It passes nothing on by a topic: what one stage gives out the next has taken in.
    """
    slots = list(states)
    first, *others = (
        sum((slot.of_link(link.number).counts for slot in slots), Counter())
        for link in topology.links
    )
    moved = min((slot.counts[ledger.MOVED] for slot in slots), default=0)
    del first[ledger.MOVED]  # the number of an order, which counts nothing
    dead, shed = _named(first, ledger.DEAD), _named(first, ledger.SHED)
    lost = first.pop(ledger.LOST, 0)
    clean = first[ledger.IN] - dead.total() - lost
    mapped = clean - shed.total()
    ledgers = {
        services.INGEST: {
            ledger.IN: first[ledger.IN],
            ledger.CLEAN: clean,
            **dead,
            **({ledger.LOST: lost} if lost else {}),
        },
        services.MAPPER: {ledger.IN: clean, ledger.MAPPED: mapped, **shed},
    }
    answered = Counter({name: n for name, n in first.items() if name not in {*dead, *shed}})
    answered[ledger.IN] = mapped
    for link, counts in zip(topology.links, (answered, *others), strict=True):
        cache, disk = (stage.service for stage in link.phases)
        ledgers[cache] = {ledger.IN: counts[ledger.IN], ledger.MISSED: counts[ledger.IN]}
        ledgers[disk] = dict(counts)
    committed = {service: {0: Committed(0, _text(one))} for service, one in ledgers.items()}
    by_order = {ledger.MOVED: moved} if moved else {}
    committed[services.INGEST] = {
        number: Committed(at, _text(by_order if number else by_order | ledgers[services.INGEST]))
        for number, at in beginnings(slots, _partitions(slots, topology)).items()
    }
    return committed


def _numbered(counts: Counter[str], mark: str) -> dict[int, int]:
    """Take what stands behind a mark out of the counts, by the partition's number."""
    names = [name for name in counts if name.startswith(mark)]
    return {int(name.removeprefix(mark)): counts.pop(name) for name in names}


def _partitions(slots: Iterable[SlotState], topology: services.Topology) -> int:
    """How many the source has, as far as the slots know."""
    known = (number + 1 for slot in slots for number in slot.positions)
    return max(topology.source.partitions, *known, 0)


def _text(counts: Mapping[str, int]) -> str:
    return SlotState(Counter(counts)).text


def _named(counts: Counter[str], kind: str) -> Counter[str]:
    """Those that are told by reason."""
    return Counter({name: n for name, n in counts.items() if name.startswith(f"{kind}.")})
