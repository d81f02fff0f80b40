"""A join engine over the pipeline's master data: reads what it wants, one request after another.

    offer ──► engine ──wants──► relation.read ──► engine.feed ──► answers

A cycle of pages is read in one snapshot of R. Before its first page the relation is renewed: if
anything may have changed, everything that waits starts over, so that whoever is answered has seen
one whole state of R. While nothing waits nothing is read, and no snapshot is held. A join that
reads by key renews it once a minute, so that `auto` learns what indexes there are.
"""

from __future__ import annotations

import logging
import math
import time
from typing import TYPE_CHECKING, Any

from dovetail.errors import SlowError, Unavailable
from dovetail.join.auto import Auto
from dovetail.join.cost.factors import NAMES
from dovetail.join.engine import Engine
from dovetail.join.exchange import Pages
from dovetail.join.lookup import Lookup
from dovetail.join.pending import UNBOUNDED
from dovetail.join.policies import Inequality, Lru, Threshold
from dovetail.join.scan import Scan
from dovetail.master.pipeline import QUICK_S
from dovetail.node.contents import cached_at

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from dovetail.join.auto import Choice
    from dovetail.join.columns import Flags, JoinKeys
    from dovetail.join.engine import Offered
    from dovetail.join.exchange import Answers, Events, Request
    from dovetail.master.relation import ChangingRelation

log = logging.getLogger(__name__)

_LOOK_S = 60.0
"""How often R is looked at by a join that reads no pages: an index may be gone, or a new one."""
_SHOWN = 10
"""Of the choices that `auto` has made."""


class MasterJoin:
    def __init__(
        self,
        engine: Engine | Auto,
        relation: ChangingRelation,
        clock: Callable[[], float] = time.monotonic,
        now: Callable[[], float] = time.time,
    ) -> None:
        """`now` is the clock by which cached rows grow old."""
        self.engine = engine
        self._relation = relation
        self._clock = clock
        self._now = now
        self._look_at = clock() + _LOOK_S
        self._in_cycle = False
        self._snapshot_at = 0.0
        self._oldest = math.inf
        self._told: Choice | None = None
        self.slow = ""
        """Why a read may take longer than a transaction; empty while reads are quick."""
        self.choices = 0
        """How often `auto` has chosen an algorithm, the first time included."""
        self._tell()

    @property
    def pending(self) -> int:
        return self.engine.pending

    def figures(self) -> dict[str, float]:
        """What the engine holds, has read, and how it goes about it."""
        engine = self.engine.engine if isinstance(self.engine, Auto) else self.engine
        figures: dict[str, float] = {
            "pending_events": engine.pending,
            "pending_bytes": engine.held.pending_bytes,
            "collected_bytes": engine.held.collected_bytes,
            "accepted": engine.figures.accepted,
            "reads": engine.figures.reads,
            "read_units": engine.figures.read_units,
            "rows_read": engine.figures.rows_read,
            "queries": self._relation.queries,
            "cycle": engine.cycle,
            "choices": self.choices,
            f"algorithm.{engine.algorithm}": 1.0,
            **{f"component_bytes.{name}": size for name, size in self.engine.components.items()},
        }
        if isinstance(self.engine, Auto):
            figures["promised_rate"] = self.engine.choice.rate
        if isinstance(phase := engine.phase, Scan):
            figures["scan_pages"] = phase.pages
            figures["scan_page"] = phase.next_page
            figures["master_pages"] = engine.relation.pages
        return figures

    def keep(self, slots: Iterable[int]) -> None:
        """Let a scan bring the rows of these slots alone."""
        self._relation.keep(frozenset(slots))
        self._in_cycle = False

    def offer(self, events: Events) -> Offered:
        """Let events in, from the batch's start; what the engine has cached is answered."""
        return self.engine.offer(events)

    def forget(self) -> None:
        """Let go of all that waits: it is offered again."""
        self.engine.forget()
        self._rest()

    def awaited(self, keys: JoinKeys) -> Flags:
        """Which of these keys have pending events."""
        return self.engine.awaited(keys)

    def step(self) -> Answers | None:
        """Read once and answer whom that completes; None when nothing waits.

        A slice of them: `more` has the others, and is to be called while the engine is answering.

        Raises Unavailable while R cannot be read; what waits goes on waiting.
        """
        request = self.engine.wants()
        if request is None:
            self._rest()
            return None
        try:
            if self._is_to_renew(request):
                request = self._renewed(request)
            self._in_cycle = isinstance(request, Pages)
            began = time.monotonic()
            if not self._in_cycle:
                self._snapshot_at = self._relation.now()
            read = self._relation.read(request, self.engine.disk_buffer)
        except Unavailable as error:
            self._in_cycle = False
            self.slow = str(error) if isinstance(error, SlowError) else self.slow
            raise
        if time.monotonic() - began < QUICK_S / 2:
            self.slow = ""
        self._oldest = min(self._oldest, self._snapshot_at)
        self.engine.held.cached.read_at = cached_at(self._snapshot_at, self._now())
        answers = self.engine.feed(read)
        self._tell()
        return answers

    @property
    def answering(self) -> bool:
        """Whether there are more answers to the last read."""
        return self.engine.answering

    def more(self) -> Answers:
        """The next slice of the answers to the last read."""
        answers = self.engine.more()
        self._tell()
        return answers

    def rows_since(self) -> float:
        """The moment, by R's clock, of the oldest state that was read since this was last asked.

        All rows that keys were answered with meanwhile are as of then, or later.
        """
        oldest, self._oldest = self._oldest, math.inf
        return min(oldest, self._snapshot_at)

    def explained(self) -> dict[str, Any]:
        """What runs, why, what it has measured, and where a scan is."""
        engine, auto = self.engine, self.engine
        facts = self._relation.facts
        explained: dict[str, Any] = {
            "reason": "the pipeline names it",
            "choices": self.choices,
            "factors": {},
            "ranking": [],
            "chosen": [],
        }
        if isinstance(auto, Auto):
            engine = auto.engine
            explained = {
                "reason": auto.choice.reason,
                "choices": self.choices,
                "factors": {
                    name: {"assumed": getattr(auto.first_factors, name), "measured": measured}
                    for name in NAMES
                    if (measured := getattr(auto.factors, name))
                },
                "ranking": [{"algorithm": name, "rate": rate} for name, rate in auto.ranking()],
                "chosen": [
                    {"algorithm": choice.algorithm, "reason": choice.reason}
                    for choice in auto.choices[-_SHOWN:]
                ],
            }
        assert isinstance(engine, Engine)
        explained["parameters"] = parameters_shown(engine)
        scans = isinstance(engine.phase, Scan)
        return {
            "running": engine.algorithm,
            **explained,
            "pending_events": engine.pending,
            "reads": engine.figures.reads,
            "rows_read": engine.figures.rows_read,
            "page": engine.phase.next_page if isinstance(engine.phase, Scan) else None,
            "pages": facts.pages if scans else None,
        }

    def close(self) -> None:
        self._relation.close()

    def _is_to_renew(self, request: Request) -> bool:
        if isinstance(request, Pages):
            return not (request.goes_on and self._in_cycle)
        return self._clock() >= self._look_at

    def _renewed(self, request: Request) -> Request:
        self._look_at = self._clock() + _LOOK_S
        self._snapshot_at = self._relation.now()
        facts = self._relation.renew()
        if facts is None:
            return request
        self.engine.renew(facts)
        renewed = self.engine.wants()
        assert renewed is not None, "what waited waits still"
        return renewed

    def _tell(self) -> None:
        """Every choice of an algorithm is visible, with its reason."""
        if not isinstance(self.engine, Auto) or self.engine.choice is self._told:
            return
        self._told = choice = self.engine.choice
        self.choices += not self.engine.named
        log.info(
            "parameters planned" if self.engine.named else "algorithm chosen",
            extra={"algorithm": choice.algorithm, "reason": choice.reason},
        )

    def _rest(self) -> None:
        if self._in_cycle:
            self._relation.rest()
            self._in_cycle = False


def parameters_shown(engine: Engine) -> dict[str, float]:
    """What an algorithm runs with, as far as it concerns it."""
    given, phase = engine.parameters, engine.phase
    shown: dict[str, float] = {"disk_buffer_bytes": engine.disk_buffer}
    if isinstance(phase, Scan):
        shown["b_pages"] = phase.pages
        if phase.events != UNBOUNDED:
            shown["w_events"] = phase.events
    elif isinstance(phase, Lookup):
        shown["k_keys"] = phase.keys
    elif phase_pages := given.pages:
        shown["b_pages"] = phase_pages
    if isinstance(engine.policy, Lru | Threshold):
        shown["cache_share"] = given.cache_share
    elif isinstance(engine.policy, Inequality):
        shown["s_f"] = given.switching_factor
    return shown
