"""What a run did and what came of it, as text."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from dovetail.audit import Audit
    from dovetail.verify import Verdict
    from tests.chaos.flow import Flow
    from tests.chaos.saboteur import Entry

_SHOWN = 20
_ALONE_S = 10.0
"""A kill with no other fault for so long before and after it is a single one."""
WANTED_S = 10.0
"""From a single kill to the next answer of every slot."""


@dataclass
class Outcome:
    """All that a run leaves; it has passed if `problems` is empty and it was finished."""

    name: str
    repeat: str
    """The command that runs the same schedule again."""
    folder: Path
    problems: list[str] = field(default_factory=list)
    timeline: list[Entry] = field(default_factory=list)
    kills: list[str] = field(default_factory=list)
    ends: list[str] = field(default_factory=list)
    """What the supervisor had to say: every end of a process, wanted or not."""
    zombies: list[str] = field(default_factory=list)
    sent: int = 0
    flow: Flow | None = None
    audit: Audit | None = None
    verdict: Verdict | None = None

    @property
    def passed(self) -> bool:
        return not self.problems and self.verdict is not None

    def lines(self) -> Iterator[str]:
        yield f"chaos: {self.name}"
        yield ""
        yield from self._faults()
        yield ""
        yield from self._counts()
        yield ""
        yield from self._conclusion()

    def _faults(self) -> Iterator[str]:
        yield "    time  caught up  fault"
        for entry in self.timeline:
            caught = ""
            if entry.is_fault and self.flow is not None:
                seconds = self.flow.answered_by(entry.sent, entry.at)
                caught = "never" if seconds is None else f"{seconds:.1f} s"
            yield f"{entry.at:6.1f} s {caught:>10}  {entry.text}"
        yield "Caught up: all that had been sent when the fault began is answered."

    def single_kills(self) -> Iterator[tuple[float, Entry]]:
        """The kills of one process while all else was well, with how long they were felt."""
        if self.flow is None:
            return
        for entry in self.timeline:
            near = (one for one in self.timeline if abs(one.at - entry.at) < _ALONE_S)
            if not entry.is_kill or any(one is not entry for one in near):
                continue
            seconds = self.flow.until_every_slot(entry.at)
            if seconds is not None:
                yield seconds, entry

    def _single(self) -> Iterator[str]:
        """What is told, never asserted: a machine that others share may take longer."""
        found = sorted(self.single_kills(), key=lambda one: one[0], reverse=True)
        if not found:
            yield "single kills  none: another fault was near each of them"
            return
        (longest, entry), late = found[0], sum(one > WANTED_S for one, _ in found)
        yield (
            f"single kills  {len(found)}, {longest:.1f} s at most until every slot had answered "
            f"({entry.text}, at {entry.at:.1f} s); {late} took longer than {WANTED_S:.0f} s"
        )

    def _counts(self) -> Iterator[str]:
        killed = Counter(name.partition("-")[0] for name in self.kills)
        each = ", ".join(f"{name} {number}" for name, number in sorted(killed.items()))
        faults = sum(entry.is_fault for entry in self.timeline)
        yield f"faults        {faults}; killed {len(self.kills)} times: {each or 'none'}"
        yield f"process ends  {len(self.ends)} that the supervisor mended"
        for zombie in self.zombies:
            yield f"zombie        {zombie}"
        if self.flow is not None:
            yield from self._single()
            silence, since = self.flow.longest_silence()
            yield f"silence       {silence:.1f} s at most without an answer, from {since:.1f} s on"
            for off in self.flow.off[:_SHOWN]:
                yield f"off meanwhile {off}"
        yield f"sent          {self.sent:,}"
        if self.audit is not None:
            yield f"conservation  {self.audit.equation()}"
        if self.verdict is not None:
            yield (
                f"SQL           {self.verdict.events:,} events, {self.verdict.expected:,} outputs "
                f"expected, {self.verdict.outputs:,} found"
            )

    def _conclusion(self) -> Iterator[str]:
        if self.passed:
            yield "passed: the output is SQL's, nothing is twice, and the sum is zero"
            return
        for problem in self.problems or ["the run was not finished"]:
            yield f"FAILED: {problem}"
        yield f"look at       {self.folder / 'services' / 'logs'} and {self.folder / 'logs'}:"
        yield "              a log for each start of a process: .log is the last, .log.1 the one"
        yield "              before; the timeline above says what to seek, and when"
        yield f"data          {self.folder / 'data'}: the topics and the table as the run left them"
        yield f"repeat it     {self.repeat}"
