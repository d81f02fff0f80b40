"""The ledger: exact counts of events by outcome, kept where the offsets are kept.

Every stage commits its offsets in the transaction that carries its output. A committed
offset may have a text beside it, and there the stage writes how many events of that
partition it has seen so far and what became of them. So the counts are as exact as the
output itself: they survive `kill -9`, move with the partition to another node, and
anyone with access to the broker can add them up.
"""

from __future__ import annotations

from collections import Counter

from dovetail.errors import DovetailError

IN = "in"
CLEAN = "clean"
MAPPED = "mapped"
MISSED = "missed"
ENRICHED = "enriched"
UNMATCHED = "unmatched"
PARKED = "parked"
DEAD = "dead"
"""Dead letters are counted by reason: `dead.invalid-json`."""
SHED = "shed"
"""Shed events are counted by strategy: `shed.topw`."""

LOST = "lost"
"""Deleted from the source before ingest read it, counted in offsets (places.py)."""

LATE = "late"
"""Events that backfill completed; it counts what it took `of` shed, unmatched and parked ones."""

PROGRESS = "progress"
"""Not a count: the number of the progress that belongs to the offset; 0 if none does."""
MOVED = "moved"
"""Not a count either: the number of the order by which the offset was moved back last."""
CUT = "cut"
"""Nor this: where the log ended when that was found to be before the offset (places.py)."""
OUTPUTS = "outputs"
HITS = "hits"
"""Not outcomes: output messages, of which an event may have many or none, and events
answered from the cache."""


class LedgerError(DovetailError):
    pass


def dead(reason: str) -> str:
    return f"{DEAD}.{reason}"


def dead_letters(counts: Counter[str]) -> int:
    return sum(count for name, count in counts.items() if name.startswith(f"{DEAD}."))


def shed(strategy: str) -> str:
    return f"{SHED}.{strategy}"


def shed_events(counts: Counter[str]) -> int:
    return sum(count for name, count in counts.items() if name.startswith(f"{SHED}."))


def of(outcome: str) -> str:
    """Events that had this outcome and have another one now, by backfill."""
    return f"of.{outcome}"


class Ledger:
    """The counts of the partitions that a stage holds, and those of the step under way."""

    def __init__(self) -> None:
        self._committed: dict[int, Counter[str]] = {}
        self._step: dict[int, Counter[str]] = {}
        self._progress: dict[int, int] = {}
        self._moved: dict[int, int] = {}
        self._cut: dict[int, int] = {}

    def open(self, partition: int, text: str) -> None:
        """Take over a partition with what its last owner wrote."""
        counts = parse(text)
        self._progress[partition] = counts.pop(PROGRESS, 0)
        self._moved[partition] = counts.pop(MOVED, 0)
        self._cut.pop(partition, None)
        if CUT in counts:
            self._cut[partition] = counts.pop(CUT)
        self._committed[partition] = counts

    def close(self, partition: int) -> None:
        """Give a partition up; what it has in the step under way is another's to count."""
        self._committed.pop(partition, None)
        self._step.pop(partition, None)
        self._progress.pop(partition, None)
        self._moved.pop(partition, None)
        self._cut.pop(partition, None)

    def progress(self, partition: int) -> int:
        """The number of the partition's progress, 0 if it has none."""
        return self._progress.get(partition, 0)

    def set_progress(self, partition: int, number: int) -> None:
        self._progress[partition] = number

    def moved(self, partition: int) -> int:
        """The number of the order by which its offset was moved last, 0 if it never was."""
        return self._moved.get(partition, 0)

    def set_moved(self, partition: int, number: int) -> None:
        """Nothing above the new offset counts as answered."""
        self._moved[partition] = number
        self._progress[partition] = 0
        self._cut.pop(partition, None)

    @property
    def cut(self) -> dict[int, int]:
        """Where logs ended, by partition, that ended before their offset."""
        return self._cut

    def set_cut(self, partition: int, end: int) -> None:
        """Until the offset is moved by an order."""
        self._cut[partition] = end

    def add(self, partition: int, outcome: str, events: int) -> None:
        if events:
            self._step.setdefault(partition, Counter())[outcome] += int(events)

    def count(self, partition: int, outcome: str) -> int:
        """Events of the partition by outcome, the step under way included."""
        before, step = self._committed.get(partition), self._step.get(partition)
        return (before[outcome] if before else 0) + (step[outcome] if step else 0)

    def has_begun(self, partition: int) -> bool:
        """Whether a step has counted events of the partition."""
        return bool(self._committed.get(partition))

    def text(self, partition: int) -> str:
        """Return what to commit beside the partition's offset: all before, and this step."""
        counts = self._committed.get(partition, Counter()) + self._step.get(partition, Counter())
        if number := self.progress(partition):
            counts[PROGRESS] = number
        if number := self.moved(partition):
            counts[MOVED] = number
        if (end := self._cut.get(partition)) is not None:
            counts[CUT] = end
        return ",".join(f"{name}={count}" for name, count in sorted(counts.items()))

    def commit(self) -> Counter[str]:
        """Count the step as committed; return its counts over all partitions."""
        total: Counter[str] = Counter()
        for partition, counts in self._step.items():
            self._committed.setdefault(partition, Counter()).update(counts)
            total.update(counts)
        self._step.clear()
        return total

    def abort(self) -> None:
        """Forget the step: it did not happen."""
        self._step.clear()

    def total(self) -> Counter[str]:
        """Return the committed counts of all partitions held."""
        total: Counter[str] = Counter()
        for counts in self._committed.values():
            total.update(counts)
        return total


def parse(text: str) -> Counter[str]:
    """Read what `Ledger.text` wrote; an offset committed by someone else has no text."""
    pairs = (item.split("=", 1) for item in text.split(",") if "=" in item)
    try:
        return Counter({name: int(count) for name, count in pairs})
    except ValueError:
        raise LedgerError(
            f"beside an offset stands what no ledger has written: {text[:80]!r}; somebody else has "
            "committed to the group of a stage. Set that offset once more, without a text"
        ) from None
