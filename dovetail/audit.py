"""Conservation: in = enriched + unmatched + parked + dead-lettered + shed + in flight.

The ledgers of all stages are added up and every equation between them is checked: a
stage gives out what it took in, and between two stages there is only what is in flight.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from dovetail import topology as services
from dovetail.stream import ledger
from dovetail.stream.ledger import dead_letters, parse, shed_events
from dovetail.stream.offsets import CommittedOffsets
from dovetail.stream.topics import admin_of, beginnings, ends
from dovetail.stream.unread import Unread

if TYPE_CHECKING:
    from collections.abc import Iterator

    from dovetail.settings import Settings
    from dovetail.stream.offsets import Committed
    from dovetail.topology import Topology

_ANSWERED = (ledger.ENRICHED, ledger.UNMATCHED, ledger.PARKED)
_HANDOVERS = (
    (services.INGEST, ledger.CLEAN, services.MAPPER),
    (services.MAPPER, ledger.MAPPED, services.CACHE_PHASE),
    (services.CACHE_PHASE, ledger.MISSED, services.DISK_PHASE),
)
"""Which stage passes events on, as which outcome, and to which stage."""


@dataclass(frozen=True, slots=True)
class Audit:
    """Events, by outcome, as of one moment; `stages` holds each stage's ledger."""

    stages: dict[str, Counter[str]]
    waiting: int
    """Records of the source topic that ingest has not taken yet: not `in` so far."""
    problems: list[str] = field(default_factory=list)

    @property
    def taken(self) -> int:
        return self.stages[services.INGEST][ledger.IN]

    @property
    def enriched(self) -> int:
        return self._both(ledger.ENRICHED)

    @property
    def unmatched(self) -> int:
        return self._both(ledger.UNMATCHED)

    @property
    def parked(self) -> int:
        return self._both(ledger.PARKED)

    @property
    def outputs(self) -> int:
        return self._both(ledger.OUTPUTS)

    @property
    def hits(self) -> int:
        return self._both(ledger.HITS)

    @property
    def dead_lettered(self) -> int:
        return dead_letters(self.stages[services.INGEST])

    @property
    def shed(self) -> int:
        return shed_events(self.stages[services.MAPPER])

    @property
    def in_flight(self) -> int:
        answered = self.enriched + self.unmatched + self.parked
        return self.taken - answered - self.dead_lettered - self.shed

    @property
    def backlogs(self) -> dict[str, int]:
        """Events in front of each stage: passed on to it, not taken in yet."""
        waiting = {services.INGEST: self.waiting}
        for before, outcome, after in _HANDOVERS:
            waiting[after] = self.stages[before][outcome] - self.stages[after][ledger.IN]
        return waiting

    @property
    def drained(self) -> bool:
        """Whether all that was sent is answered."""
        return self.waiting == 0 and self.in_flight == 0

    @property
    def off(self) -> bool:
        return bool(self.problems)

    def equation(self) -> str:
        return (
            f"in {self.taken:,} = enriched {self.enriched:,} + unmatched {self.unmatched:,} "
            f"+ parked {self.parked:,} + dead-lettered {self.dead_lettered:,} + shed {self.shed:,} "
            f"+ in flight {self.in_flight:,}"
        )

    def _both(self, outcome: str) -> int:
        return (
            self.stages[services.CACHE_PHASE][outcome] + self.stages[services.DISK_PHASE][outcome]
        )


class Auditor:
    """Reads the ledgers and adds them up; holds a connection to the broker for it."""

    def __init__(self, settings: Settings, topology: Topology) -> None:
        self._topology = topology
        self._admin = admin_of(settings)
        self._gaps: dict[int, tuple[int, int]] = {}
        self._unread = Unread(settings, topology.source)
        self._offsets = {
            stage.service: CommittedOffsets(settings, topology.group(stage.service), stage.reads)
            for stage in topology.stages
        }

    def audit(self) -> Audit:
        committed = self._committed()
        return self._of(committed, self._waiting(committed[services.INGEST]))

    def audit_of(self, sent: int) -> Audit:
        """The same for whoever knows how many events were sent: the source is not looked at."""
        committed = self._committed()
        taken = _ledger(committed[services.INGEST])[ledger.IN]
        return self._of(committed, max(0, sent - taken))

    def _committed(self) -> dict[str, dict[int, Committed]]:
        """Read the last stage first: what moves on meanwhile is in flight, not lost."""
        return {
            stage.service: self._offsets[stage.service].read()
            for stage in reversed(self._topology.stages)
        }

    def _of(self, committed: dict[str, dict[int, Committed]], waiting: int) -> Audit:
        stages = {
            stage.service: _ledger(committed[stage.service]) for stage in self._topology.stages
        }
        return Audit(stages, waiting, list(_problems(stages)))

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
        for offsets in self._offsets.values():
            offsets.close()


def _problems(stages: dict[str, Counter[str]]) -> Iterator[str]:
    for service, counts in stages.items():
        given = _given_out(counts)
        if given != counts[ledger.IN]:
            yield f"{service} took in {counts[ledger.IN]:,} events and gave out {given:,}"
    for before, outcome, after in _HANDOVERS:
        sent, received = stages[before][outcome], stages[after][ledger.IN]
        if received > sent:
            yield f"{after} took in {received:,} events, but {before} had passed on only {sent:,}"


def _given_out(counts: Counter[str]) -> int:
    """Add up what became of a stage's events: passed on, answered, buried or shed."""
    passed_on = sum(counts[outcome] for _, outcome, _ in _HANDOVERS)
    answered = sum(counts[outcome] for outcome in _ANSWERED)
    return passed_on + answered + dead_letters(counts) + shed_events(counts)


def _ledger(committed: dict[int, Committed]) -> Counter[str]:
    """A stage's counts over all partitions."""
    total: Counter[str] = Counter()
    for at in committed.values():
        total.update(parse(at.text))
    return total
