"""Conservation: in = enriched + unmatched + parked + dead-lettered + shed + lost + in flight.

The ledgers of all stages are added up and every equation between them is checked: a
stage gives out what it took in, and between two stages there is only what is in flight. A fused
node goes on with the ledger of ingest, and counts an event when it has answered it.

In a chain an event with many rows in one table goes on as so many copies, which the next tables
count one by one: in + copies = enriched + ….

What was deleted from the source before ingest read it came in, and is lost.

What backfill has completed has moved from shed, unmatched and parked to enriched.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from dovetail import topology as services
from dovetail.stream import ledger
from dovetail.stream.late import LateReader, unbalanced
from dovetail.stream.ledger import dead_letters, of, parse, shed_events
from dovetail.stream.offsets import CommittedOffsets
from dovetail.stream.old_states import OldStates
from dovetail.stream.slot_state import SlotState, as_stages
from dovetail.stream.states import StatesReader
from dovetail.stream.topics import admin_of, beginnings, ends
from dovetail.stream.unread import Unread

if TYPE_CHECKING:
    from collections.abc import Iterator

    from dovetail.settings import Settings
    from dovetail.stream.offsets import Committed
    from dovetail.topology import Handover, Topology

_ANSWERED = (ledger.ENRICHED, ledger.UNMATCHED, ledger.PARKED)
_PASSED_ON = (ledger.CLEAN, ledger.MAPPED, ledger.MISSED)


@dataclass(frozen=True, slots=True)
class Audit:
    """Events, by outcome, as of one moment; `stages` holds each stage's ledger."""

    stages: dict[str, Counter[str]]
    topology: Topology
    waiting: int
    """Records of the source topic that ingest has not taken yet: not `in` so far."""
    problems: list[str] = field(default_factory=list)
    late: Counter[str] = field(default_factory=Counter)
    """What backfill has moved from one outcome to another (dovetail/stream/late.py)."""

    @property
    def taken(self) -> int:
        return self.stages[services.INGEST][ledger.IN]

    @property
    def enriched(self) -> int:
        """By the last table; what only some of a chain's tables have enriched is in flight."""
        return self._by(self.topology.links[-1], ledger.ENRICHED) + self.late[ledger.LATE]

    @property
    def copies(self) -> int:
        """What a chain's tables have made more of the events, for those with many rows."""
        return sum(
            self._by(link, ledger.OUTPUTS) - self._by(link, ledger.ENRICHED)
            for link in self.topology.links[:-1]
        )

    @property
    def unmatched(self) -> int:
        found = self.late[ledger.UNMATCHED] - self.late[of(ledger.UNMATCHED)]
        return self._by_all(ledger.UNMATCHED) + found

    @property
    def parked(self) -> int:
        found = self.late[ledger.PARKED] - self.late[of(ledger.PARKED)]
        return self._by_all(ledger.PARKED) + found

    @property
    def outputs(self) -> int:
        return self._by(self.topology.links[-1], ledger.OUTPUTS) + self.late[ledger.OUTPUTS]

    @property
    def hits(self) -> int:
        return self._by_all(ledger.HITS)

    @property
    def hit_rate(self) -> float | None:
        """Of the answers, those of the caches; None before there is one."""
        answers = sum(self._by_all(outcome) for outcome in (ledger.ENRICHED, ledger.UNMATCHED))
        return self.hits / answers if answers else None

    @property
    def counts(self) -> Counter[str]:
        """All ledgers' counts by outcome, whichever stage has them."""
        total: Counter[str] = Counter()
        for counts in self.stages.values():
            total.update(counts)
        return total

    @property
    def dead_lettered(self) -> int:
        return dead_letters(self.counts)

    @property
    def shed(self) -> int:
        return shed_events(self.counts) - self.late[of(ledger.SHED)]

    @property
    def lost(self) -> int:
        return self.stages[services.INGEST][ledger.LOST]

    @property
    def in_flight(self) -> int:
        answered = self.enriched + self.unmatched + self.parked
        aside = self.dead_lettered + self.shed + self.lost
        return self.taken + self.copies - answered - aside

    @property
    def backlogs(self) -> dict[str, int]:
        """Events in front of each stage: passed on to it, not taken in yet."""
        waiting = {services.INGEST: self.waiting}
        for one in self.topology.handovers:
            waiting[one.taker] = _given(self.stages, one) - self.stages[one.taker][ledger.IN]
        return waiting

    @property
    def drained(self) -> bool:
        """Whether all that was sent is answered."""
        return self.waiting == 0 and self.in_flight == 0

    @property
    def off(self) -> bool:
        return bool(self.problems)

    def equation(self) -> str:
        copies = f" + copies {self.copies:,}" if self.topology.next else ""
        lost = f"+ lost {self.lost:,} " if self.lost else ""
        late = f" ({self.late[ledger.LATE]:,} late)" if self.late[ledger.LATE] else ""
        return (
            f"in {self.taken:,}{copies} = enriched {self.enriched:,}{late} "
            f"+ unmatched {self.unmatched:,} + parked {self.parked:,} "
            f"+ dead-lettered {self.dead_lettered:,} + shed {self.shed:,} "
            f"{lost}+ in flight {self.in_flight:,}"
        )

    def _by(self, link: Topology, outcome: str) -> int:
        return sum(self.stages[service][outcome] for service in link.answering)

    def _by_all(self, outcome: str) -> int:
        return sum(self._by(link, outcome) for link in self.topology.links)


class Auditor:
    """Reads the ledgers and adds them up; holds a connection to the broker for it."""

    def __init__(self, settings: Settings, topology: Topology) -> None:
        self._topology = topology
        self._admin = admin_of(settings)
        self._gaps: dict[int, tuple[int, int]] = {}
        self._unread = Unread(settings, topology.source)
        self._late = LateReader(settings, topology, self._admin)
        self._offsets = {
            stage.service: CommittedOffsets(settings, topology.group(stage.service), stage.reads)
            for stage in topology.ledgers
            if not topology.by_spark
        }
        self._states = StatesReader(settings, topology.states, self._admin)
        self._old_states = OldStates(settings, topology) if topology.by_spark else None

    def audit(self) -> Audit:
        late = self._late.read().counts
        committed = self._committed()
        return self._of(committed, self._waiting(committed[services.INGEST]), late)

    def audit_of(self, sent: int) -> Audit:
        """The same for whoever knows how many events were sent: the source is not looked at."""
        late = self._late.read().counts
        committed = self._committed()
        taken = _ledger(committed[services.INGEST])[ledger.IN]
        return self._of(committed, max(0, sent - taken), late)

    def answered_by_slot(self) -> dict[int, int]:
        """Events that each slot of the last table has answered so far."""
        found: Counter[int] = Counter()
        committed = self._committed()
        for phase in self._topology.links[-1].phases:
            for slot, at in committed[phase.service].items():
                counts = parse(at.text)
                found[slot] += sum(counts[outcome] for outcome in _ANSWERED)
        return dict(found)

    def taken(self) -> dict[int, Committed]:
        """How far each partition of the source is taken in, with the ledger beside it."""
        return self._committed()[services.INGEST]

    def read_up_to(self) -> dict[int, int]:
        """The offsets alone, without partitions of which nothing is known.

        Spark's states may have been deleted.
        """
        known = {number: at.offset for number, at in self.taken().items()}
        if not self._topology.by_spark:
            return known
        placed = {number for slot in self._slot_states() for number in slot.positions}
        return {number: at for number, at in known.items() if number in placed}

    def _committed(self) -> dict[str, dict[int, Committed]]:
        """Read the last stage first: what moves on meanwhile is in flight, not lost."""
        if self._topology.by_spark:
            return as_stages(self._slot_states(), self._topology)
        return {
            stage.service: self._offsets[stage.service].read()
            for stage in reversed(self._topology.ledgers)
        }

    def _slot_states(self) -> list[SlotState]:
        found = self._states.read()
        if not found.run and self._old_states:
            found = self._old_states.read()
        # A slot that has not committed yet has everything before it.
        return [found.slots.get(slot, SlotState()) for slot in range(self._topology.pipeline.slots)]

    def _of(
        self, committed: dict[str, dict[int, Committed]], waiting: int, late: Counter[str]
    ) -> Audit:
        stages = {
            stage.service: _ledger(committed[stage.service]) for stage in self._topology.ledgers
        }
        found = [*_problems(stages, self._topology), *unbalanced(late)]
        seen = Audit(stages, self._topology, waiting, found, late)
        found.extend(_taken_too_often(seen))
        return seen

    def _waiting(self, committed: dict[int, Committed]) -> int:
        """Records of the source behind what ingest has committed, or behind its beginning.

        It counts the offsets, so that transactions add a little; but where there is none but
        theirs, nothing waits.
        """
        starts = beginnings(self._admin, self._topology.source)
        last = ends(self._admin, self._topology.source)
        taken = {
            number: max(start, committed[number].offset if number in committed else 0)
            for number, start in enumerate(starts)
        }
        gaps = {number: (at, last[number]) for number, at in taken.items() if at < last[number]}
        # What moves is being read: only what stands still may be nobody's to read.
        still = {
            number: gap[0] for number, gap in gaps.items() if self._gaps.get(number, gap) == gap
        }
        self._gaps = gaps
        waiting = self._unread.behind(still) | (gaps.keys() - still.keys())
        return sum(last[number] - taken[number] for number in waiting)

    def close(self) -> None:
        for reader in (*self._offsets.values(), self._states, self._old_states, self._late):
            if reader is not None:
                reader.close()


def _problems(stages: dict[str, Counter[str]], topology: Topology) -> Iterator[str]:
    for service, counts in stages.items():
        given = _given_out(counts)
        if given != counts[ledger.IN]:
            yield f"{service} took in {counts[ledger.IN]:,} events and gave out {given:,}"
    for one in topology.handovers:
        sent, received = _given(stages, one), stages[one.taker][ledger.IN]
        if received > sent:
            givers = " and ".join(one.givers)
            yield (
                f"{one.taker} took in {received:,} events, but {givers} had passed on only {sent:,}"
            )


def _taken_too_often(seen: Audit) -> Iterator[str]:
    """Say if backfill has completed more than there was."""
    for outcome in (ledger.SHED, ledger.UNMATCHED, ledger.PARKED):
        left = getattr(seen, outcome)
        if left < 0:
            yield f"backfill completed {-left:,} events more than were {outcome}"


def _given(stages: dict[str, Counter[str]], one: Handover) -> int:
    return sum(stages[giver][one.outcome] for giver in one.givers)


def _given_out(counts: Counter[str]) -> int:
    """Add up what became of a stage's events: passed on, answered, buried, shed or lost."""
    passed_on = sum(counts[outcome] for outcome in _PASSED_ON)
    answered = sum(counts[outcome] for outcome in _ANSWERED)
    return passed_on + answered + dead_letters(counts) + shed_events(counts) + counts[ledger.LOST]


def _ledger(committed: dict[int, Committed]) -> Counter[str]:
    """A stage's counts over all partitions."""
    total: Counter[str] = Counter()
    for at in committed.values():
        total.update(parse(at.text))
    return total
