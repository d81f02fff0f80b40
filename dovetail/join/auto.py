"""auto: the algorithm that the cost model ranks first, measured and changed while it runs.

    offer, wants, feed ──► observe ──► workload, factors ──► every model's plan ──► switch
                           seconds, sizes,   refined              × what it was off by, if
                           sample of keys                         it has run before

1. A stretch is several turns of what is pending: its first part settles, its second is measured.
2. At its end the workload is drawn up (sizes, skew of the keys) and the factors are refined.
3. Every candidate's plan is asked for: the highest rate in this memory while events are refused
   for want of room; else the least memory at the rate at which they come, which is also the
   shortest wait. A prediction is corrected by what the algorithm's last stretch had shown, and
   what slows down the one that runs now, a busy disk, counts for all that read alike.
4. Another algorithm takes over if it promises a tenth more, a fifth if it has not run yet. The
   engine keeps what is pending and cached, so that no answer is lost or repeated.

An algorithm that somebody has named is the only candidate: it stays, and runs with what its own
model plans for this memory, this R and the factors as they are measured, always for the highest
rate. AMESHJOIN's tuner asks the same model before every step, for the rate at which events arrive.

An order constraint leaves a scan little to wait with: its plans get no more memory than the events
that it may hold back, and a lookup wins. Every choice is kept with its reason.

The engine measures in counts; seconds come from the clock that is passed in. Only the time within
`offer` and from `wants` to the end of `feed` counts, never that of waiting for the stream.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from dovetail.join.algorithms import Parameters
from dovetail.join.cost.factors import TYPICAL, Factors, Work
from dovetail.join.cost.footprint import engine_workload, entry_footprint
from dovetail.join.cost.plan import Parts, Plan
from dovetail.join.cost.popularity import ZipfPopularity
from dovetail.join.cost.sample import KeySample
from dovetail.join.cost.sizing import READ_AHEAD_FROM, memory_for, rate_for
from dovetail.join.cost.srj import best_batch
from dovetail.join.engine import DISK_BUFFER_SHARE, Engine
from dovetail.join.exchange import NO_ANSWERS
from dovetail.join.pending import UNBOUNDED
from dovetail.join.tuning import ArrivalTuner

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from dovetail.join.columns import Flags, JoinKeys
    from dovetail.join.cost.workload import Workload
    from dovetail.join.engine import Figures, Offered
    from dovetail.join.entry import Entries
    from dovetail.join.exchange import Answers, Events, Read, Request
    from dovetail.join.held import Held
    from dovetail.join.pending import Left
    from dovetail.join.phase import Relation
    from dovetail.join.policies import CachePolicy

SCANNING = ("ssbj",)
BY_KEY = ("ssbj", "cachejoin", "hybridjoin", "srj")
SCANNING_ALONE = ("meshjoin",)
BY_KEY_ALONE = ("srj", "meshjoin", "hybridjoin")
"""Candidates of a join whose cache is another process's."""
_SHARING = ("cmeshjoin", "cachejoin", "pcsrj", "srj")
"""Whose cache takes a share of the memory that is set."""
CACHING = ("ssbj", "cachejoin", "srj")
"""Candidates of a node: its cache is worth keeping when little comes, too."""
MODELLED_BY = {"cmeshjoin": "ssbj"}
"""An algorithm without a model of its own: its best split is the one that this one finds."""
ALONE = {
    "cmeshjoin": "meshjoin",
    "ssbj": "meshjoin",
    "cachejoin": "hybridjoin",
    "pcsrj": "hybridjoin",
    "ssbj-index": "hybridjoin",
}
"""What models the disk phase of an algorithm whose cache is another process's."""
BY_LOOKUPS = ("srj",)
"""Whose reads are priced by `request` and `key`; those of all others by `seek` and `page`."""
ADVANTAGE, UNTRIED = 1.1, 1.2
"""How much better another algorithm must promise to be; and one that has not run yet, because a
trial costs, and models err."""
SETTLING, MEASURED = 2, 2
"""Turns of the pending events that a stretch waits, and measures."""
_SAMPLE_SHARE = 128
_LARGEST_SAMPLE = 1 << 16
_SAMPLED_FROM = 4096
"""Events from one look at their keys to the next."""
_GUESSED_SKEW = 0.5
PATIENCE = 16
"""Reads that a stretch takes at least."""
_HEADROOM = 1.25
"""A rate is planned with so much to spare."""
_KEPT_CHOICES = 100
_CHANGE = 0.4
"""A rate that falls by more, and stays so, is looked into at once."""
_NO_ACCIDENT = 3
_FAILING = 0.5
_RESTING = 100
"""So many times as long as the models took they are not asked again."""
_LESSON = 16
"""Steps that are learnt from at once."""
_WEIGHT = 0.3
"""Of a lesson against all before it."""
_BATCH_SHARE = 4
"""A batch of lookups takes at most one part in so many of the memory."""
_LEAST_BUFFER_SHARE = 16
_MOST_CACHED = 0.95
_HARDLY = 0.1
"""A share of the memory that a cache may as well have or not."""
_SHIFT = 0.15
"""A skew that moves by more makes what other algorithms once showed worthless."""


NAMED = "the pipeline names it; "
_NO_PLAN = Plan(
    1.0, Parts(), 1, 1, 0.0, "so little memory, or so high a rate, is beyond the models"
)


@dataclass(frozen=True, slots=True)
class Choice:
    algorithm: str
    parameters: Parameters
    rate: float
    """Events a second that it promises."""
    reason: str


@dataclass(slots=True)
class _Stretch:
    """What happened since an algorithm began, or since it was last judged."""

    seconds: float = 0.0
    accepted: int = 0
    reads: int = 0
    refused: bool = False
    measuring: bool = False


@dataclass(slots=True)
class _Lesson:
    """Some steps: what they did, and the seconds that it took."""

    steps: int = 0
    rows: int = 0
    keys: int = 0
    answered: int = 0
    reading: float = 0.0
    joining: float = 0.0

    @property
    def joined(self) -> Work:
        return Work(step=self.steps, match=self.rows, evict=self.answered)


def _candidates(relation: Relation, *, alone: bool) -> tuple[str, ...]:
    if not relation.by_page:
        return BY_LOOKUPS
    if alone:
        return BY_KEY_ALONE if relation.by_key else SCANNING_ALONE
    return BY_KEY if relation.by_key else SCANNING


def _can_serve(relation: Relation, name: str) -> bool:
    if name in BY_LOOKUPS:
        return relation.by_key
    return relation.by_page and (relation.by_key or name in SCANNING + SCANNING_ALONE)


class Auto:
    """An engine that chooses its algorithm itself; used like `Engine`."""

    def __init__(
        self,
        relation: Relation,
        memory: int,
        clock: Callable[[], float],
        *,
        factors: Factors = TYPICAL,
        row_bytes: float = 120.0,
        event_bytes: float = 120.0,
        distance: int = UNBOUNDED,
        patience: int = PATIENCE,
        policy: CachePolicy | None = None,
        among: Sequence[str] | None = None,
        remember: int = 0,
    ) -> None:
        """`among` are the candidates, whatever the relation can do; one alone is never left.

        `remember` are bytes to remember in who was looked up lately: where that is done, only who
        is looked up again is cached, and a batch is no larger than it has to be.
        """
        self.budget = memory
        self.factors = self._first_factors = factors
        self.choices: list[Choice] = []
        self._clock = clock
        self._relation = relation
        self._row_bytes = row_bytes
        self._event_bytes = event_bytes
        self.distance = distance
        self._patience = patience
        self._alone = policy is not None
        self._among = among
        self._candidates = self._candidates_for(relation)
        self.named = among is not None and len(among) == 1
        """Whether somebody has chosen the algorithm, and its parameters alone are planned."""
        self._sample = KeySample(min(_LARGEST_SAMPLE, max(64, memory // _SAMPLE_SHARE // 8)))
        self._unsampled = 0
        self._skew = _GUESSED_SKEW
        self._corrections: dict[str, float] = {}
        self._stretch = _Stretch()
        self._lesson = _Lesson()
        self._asked_at = 0.0
        self._remember = remember
        self._memory = memory - self._sample.nbytes - remember
        self._rows_seen = self._row_bytes_seen = 0
        self._rate, self._saturated = 0.0, True
        self._behind = 0
        self._last_rate = 0.0
        self._busy = self._asked_models = self._models_took = 0.0
        self._tuner: ArrivalTuner | None = None
        if "ameshjoin" in self._candidates:
            self._tuner = ArrivalTuner(self._workload(), factors, self._memory, clock)
        self._buffered = math.inf
        self._plans = self._planned()
        first = self._first()
        plan = self._plans[first]
        self._buffered = disk_buffer = self._disk_buffer(plan)
        self.engine = Engine(
            first,
            relation,
            self._memory,
            parameters=self._parameters(plan, disk_buffer),
            disk_buffer=disk_buffer,
            distance=distance,
            policy=policy,
        )
        self._note(first, plan, "to begin with, " if not self.named else NAMED)

    def _candidates_for(self, relation: Relation) -> Sequence[str]:
        if self._among is None:
            return _candidates(relation, alone=self._alone)
        if len(self._among) == 1:
            return self._among
        return [name for name in self._among if _can_serve(relation, name)] or BY_LOOKUPS

    def _first(self) -> str:
        """The scan that adapts its cache to any skew, unless another promises far more."""
        best = next(iter(self._plans))
        usual = self._candidates[0]
        if usual not in self._plans:
            return best
        return best if self._plans[best].rate > UNTRIED * self._plans[usual].rate else usual

    @property
    def choice(self) -> Choice:
        """The algorithm that runs now, and why."""
        return self.choices[-1]

    @property
    def first_factors(self) -> Factors:
        """What was assumed before anything was measured."""
        return self._first_factors

    def ranking(self) -> list[tuple[str, float]]:
        """The candidates, the best first, each with the events a second that it promises."""
        return [(name, plan.rate) for name, plan in self._ranked()]

    @property
    def allocated(self) -> int:
        return sum(self.components.values())

    @property
    def components(self) -> dict[str, int]:
        remembered = {"remembered": self._remember} if self._remember else {}
        return {**self.engine.components, **remembered, "sample": self._sample.nbytes}

    @property
    def disk_buffer(self) -> int:
        return self.engine.disk_buffer

    @property
    def pending(self) -> int:
        return self.engine.pending

    @property
    def figures(self) -> Figures:
        return self.engine.figures

    @property
    def held(self) -> Held:
        return self.engine.held

    @property
    def policy(self) -> CachePolicy:
        return self.engine.policy

    @property
    def cycle(self) -> int:
        return self.engine.cycle

    def offer(self, events: Events) -> Offered:
        began = self._clock()
        offered = self.engine.offer(events)
        self._spend(self._clock() - began)
        self._unsampled += offered.accepted
        if self._unsampled >= _SAMPLED_FROM:
            self._unsampled = 0
            self._look_at(events, offered.accepted)
        self._stretch.accepted += offered.accepted
        self._stretch.refused |= offered.accepted < len(events)
        if self._tuner is not None:
            self._tuner.arrived(offered.accepted, more=offered.accepted < len(events))
        return offered

    def wants(self) -> Request | None:
        request = self.engine.wants()
        self._asked_at = self._clock()
        return request

    @property
    def answering(self) -> bool:
        return self.engine.answering

    def feed(self, read: Read) -> Answers:
        handed, before = self._clock(), self.engine.figures.answered
        answers = self.engine.feed(read)
        ended = self._clock()
        self._spend(ended - self._asked_at)
        self._stretch.reads += 1
        self._rows_seen += len(read.rows)
        self._row_bytes_seen += int(read.rows.rows.bounds[-1] - read.rows.rows.bounds[0])
        answered = self.engine.figures.answered - before
        self._learn(read, answered, handed - self._asked_at, ended - handed)
        if not self.engine.answering:
            self._judge()
        return answers

    def more(self) -> Answers:
        if not self.engine.answering:
            return NO_ANSWERS
        began = self._clock()
        answers = self.engine.more()
        took = self._clock() - began
        self._spend(took)
        self._lesson.joining += took
        if not self.engine.answering:
            self._judge()
        return answers

    def awaited(self, keys: JoinKeys) -> Flags:
        return self.engine.awaited(keys)

    def warm(self, entries: Entries) -> None:
        self.engine.warm(entries)

    def dismiss(self) -> Left:
        return self.engine.dismiss()

    def forget(self) -> None:
        """Let go of all that waits; what is cached and learnt stays."""
        self.engine.forget()
        self._stretch, self._lesson = _Stretch(), _Lesson()

    def renew(self, relation: Relation) -> None:
        self._relation = relation
        self.engine.renew(relation)
        candidates = self._candidates_for(relation)
        if candidates != self._candidates:
            self._candidates = candidates
            self._choose_anew()

    def _choose_anew(self) -> None:
        """An index has gone, or a new one has come: compare those that there are now."""
        self._plans = self._planned()
        if self.choice.algorithm in self._candidates:
            return  # others are tried as soon as a stretch has shown what this one does
        best, promised = self._ranked()[0]
        was = f"{self.choice.algorithm} can no longer read the relation; "
        self.engine.switch(best, self._parameters(promised, self.disk_buffer))
        self._note(best, promised, was)
        self._rate = self._last_rate = 0.0
        self._behind = 0
        self._stretch, self._lesson = _Stretch(), _Lesson()

    def _spend(self, seconds: float) -> None:
        self._stretch.seconds += seconds
        self._busy += seconds

    def _look_at(self, events: Events, accepted: int) -> None:
        size = (events.data.bounds[-1] - events.data.bounds[0]) / len(events)
        self._event_bytes += 0.1 * (float(size) - self._event_bytes)
        self._sample.see(events.keys.values[:accepted])

    def _learn(self, read: Read, answered: int, reading: float, joining: float) -> None:
        """Refine the factors by some steps together: what was read, and what was joined."""
        lesson = self._lesson
        lesson.steps += 1
        lesson.rows += len(read.rows)
        lesson.keys += read.covers
        lesson.answered += answered
        lesson.reading += reading
        lesson.joining += joining
        if lesson.steps < _LESSON:
            return
        self._lesson = _Lesson()
        self.factors = self._refined_by(lesson).refined(lesson.joined, lesson.joining, _WEIGHT)

    def _refined_by(self, lesson: _Lesson) -> Factors:
        if self.choice.algorithm in BY_LOOKUPS:
            asked = Work(request=lesson.steps, key=lesson.keys)
            return self.factors.refined(asked, lesson.reading, _WEIGHT)
        pages = lesson.rows * self._row_bytes / self._page_bytes()
        looked_up = Work(seek=lesson.steps, page=pages)
        if not (self.factors.read_ahead and self.disk_buffer >= READ_AHEAD_FROM):
            return self.factors.refined(looked_up, lesson.reading, _WEIGHT)
        if lesson.reading < lesson.joining:  # hidden behind it
            return self.factors
        # It was under way already while the step before was joined.
        return self.factors.refined(looked_up, lesson.reading + lesson.joining, _WEIGHT)

    def _judge(self) -> None:
        stretch = self._stretch
        turn = max(1, self.engine.pending)
        if stretch.reads < self._patience:
            return
        if self._failing(stretch, turn):
            self._consider(stretch.accepted / stretch.seconds, saturated=True)
            return
        if not stretch.measuring:
            if stretch.accepted >= SETTLING * turn:
                self._stretch = _Stretch(measuring=True)
            return
        if stretch.accepted >= MEASURED * turn and stretch.seconds > 0:
            self._stretch = _Stretch(measuring=True)
            self._consider(stretch.accepted / stretch.seconds, saturated=stretch.refused)

    def _failing(self, stretch: _Stretch, turn: int) -> bool:
        """Whether a new algorithm is so much slower than the last that its trial can end."""
        if stretch.measuring or not self._last_rate:
            return False
        long_enough = stretch.seconds * self._last_rate > SETTLING * turn
        return long_enough and stretch.accepted < _FAILING * stretch.seconds * self._last_rate

    def _consider(self, rate: float, *, saturated: bool) -> None:
        """Judge a stretch; two that fall far behind the ones before are no accident."""
        self._behind = self._behind + 1 if rate < (1 - _CHANGE) * self._rate else 0
        slower = self._behind == _NO_ACCIDENT
        if slower:
            self._forget()
        # The models take their time: a hundredth of the join's, at most, unless it has become
        # slower.
        due = slower or self._busy - self._asked_models >= _RESTING * self._models_took
        other = saturated != self._saturated
        if other and not due:
            return  # it has no plans to be compared with; on a bursty stream it comes and goes
        self._rate = (self._rate + rate) / 2 if self._rate and not (slower or other) else rate
        self._saturated = saturated
        if due:
            self._ask_models()
        last_rate = self._rate
        if self._choose():
            self._last_rate = last_rate
            self._rate = 0.0
            self._stretch = _Stretch()

    def _forget(self) -> None:
        """What the other kinds of read once cost was learnt under other circumstances."""
        self._corrections.clear()
        looked_up = self.choice.algorithm in BY_LOOKUPS
        unused = ("seek", "page") if looked_up else ("request", "key")
        first = {name: getattr(self._first_factors, name) for name in unused}
        self.factors = replace(self.factors, **first)

    def _ask_models(self) -> None:
        """Draw up the workload as it is now, and every candidate's plan for it."""
        began = self._clock()
        self._row_bytes = self._row_bytes_seen / max(1, self._rows_seen) or self._row_bytes
        skew = self._sample.skew(self._keys())
        if abs(skew - self._skew) > _SHIFT:
            self._corrections.clear()
        self._skew = skew
        self._plans = self._planned()
        if self._tuner is not None:
            self._tuner.learn(self._workload(), self.factors)
        self._asked_models = self._busy
        self._models_took = self._clock() - began

    def _choose(self) -> bool:
        """Compare the plans; tell whether another algorithm has taken over."""
        current = self.choice.algorithm
        plan = self._plans.get(current)
        if plan and self._saturated:
            self._correct(current, self._rate / plan.rate)
        best, promised = self._ranked()[0]
        if best == current or not self._worth(best, promised, plan):
            if plan:
                self._tune(current, plan)
            return False
        was = f"{current} reached {self._rate:,.0f} events/s; "
        self.engine.switch(best, self._parameters(promised, self.disk_buffer))
        self._note(best, promised, was)
        return True

    def _tune(self, current: str, plan: Plan) -> None:
        """Let the algorithm that runs go on with what its plan says now."""
        planned, now = self._parameters(plan, self.disk_buffer), self.engine.parameters
        moved = abs(planned.cache_share - now.cache_share) > _HARDLY
        other = self.named and not now.keys / 2 <= planned.keys <= now.keys * 2
        if (moved and current in _SHARING) or (other and current in BY_LOOKUPS):
            self.engine.switch(current, planned)
            if self.named:
                self._note(current, plan, f"{NAMED}by what was measured since, ")

    def _correct(self, current: str, seen: float) -> None:
        """Note what the current plan is off by; those that read alike are off by as much more.

        So a disk that is busy for a while does not make an algorithm look worse than another
        that was tried when it was not.
        """
        before = self._corrections.get(current, 0.0)
        if before > 0 and seen > 0:  # a trial may have answered nothing
            for name in self._alike(current):
                self._corrections[name] *= seen / before
        self._corrections[current] = seen

    def _alike(self, name: str) -> list[str]:
        """Those that have run and whose reads are priced by the same factors."""
        by_lookups = name in BY_LOOKUPS
        return [other for other in self._corrections if (other in BY_LOOKUPS) == by_lookups]

    def _worth(self, name: str, promised: Plan, current: Plan | None) -> bool:
        if self._saturated:
            needed = ADVANTAGE if name in self._corrections else UNTRIED
            return promised.rate > needed * self._rate
        return current is None or promised.memory * ADVANTAGE < current.memory

    def _planned(self) -> dict[str, Plan]:
        """What each candidate's model says, the best first."""
        workload = self._workload()
        models = {self._model_of(name): name for name in self._candidates}
        if self._saturated or self.named:
            memory = self._allowed(workload)
            found = rate_for(workload, self.factors, memory, models)
        else:
            found = memory_for(workload, self.factors, self._rate * _HEADROOM, models)
        plans = {
            models[answer.algorithm]: self._frugal(models[answer.algorithm], answer.plan)
            for answer in found
            if answer.plan
        }
        return plans or {self._candidates[0]: _NO_PLAN}

    def _frugal(self, name: str, plan: Plan) -> Plan:
        """A batch for lookups that is as large as it has to be, and no smaller.

        The cache has the rest; and who waits and is not in this query causes another one.
        """
        if name not in BY_LOOKUPS or not (self._remember or self.named):
            return plan
        load = self._workload()
        event = load.fudge * load.event_bytes
        row = load.popularity.rows_a_key * load.row_bytes * load.buffer_fudge
        a_key = event + load.pointer_bytes + row
        room = min(self._memory / _BATCH_SHARE / a_key, self._buffered / row)
        keys = max(1, min(best_batch(self.factors, 0.0), int(room)))
        cache = max(0.0, self._memory - keys * a_key)
        parts = Parts(cache, keys * event, keys * load.pointer_bytes, keys * row)
        return replace(plan, parts=parts, events=keys)

    def _model_of(self, name: str) -> str:
        modelled = MODELLED_BY.get(name, name)
        return ALONE.get(name, name) if self._alone else modelled

    def _ranked(self) -> list[tuple[str, Plan]]:
        """The plans as corrected, the best first; the least memory needs no correction."""
        if not self._saturated:
            return list(self._plans.items())
        corrected = [(name, self._corrected(name, plan)) for name, plan in self._plans.items()]
        return sorted(corrected, key=lambda named: -named[1].rate)

    def _corrected(self, name: str, plan: Plan) -> Plan:
        """A plan by what was seen of its algorithm, or of others that read alike; else as it is."""
        seen = self._corrections.get(name)
        if seen is None:
            seen = max((self._corrections[other] for other in self._alike(name)), default=1.0)
        return replace(plan, rate=plan.rate * seen)

    def _allowed(self, workload: Workload) -> float:
        """The memory that an order constraint lets a join make use of."""
        if self.distance == UNBOUNDED:
            return self._memory
        least = 4 * workload.buffer_bytes
        return min(self._memory, least + self.distance * workload.pending_event_bytes)

    def _workload(self) -> Workload:
        return engine_workload(
            ZipfPopularity(self._keys(), self._skew),
            self._row_bytes,
            self._event_bytes,
            page_bytes=self._page_bytes(),
            unique=self._relation.unique,
        )

    def _keys(self) -> float:
        rows = self._relation.rows or self._relation.pages * self._rows_a_page()
        return max(1.0, float(rows))

    def _rows_a_page(self) -> float:
        in_buffer = entry_footprint(self._row_bytes, 1)
        return max(1.0, self._relation.page_bytes / in_buffer)

    def _page_bytes(self) -> float:
        if self._relation.rows:
            return max(1.0, self._relation.rows / self._relation.pages) * self._row_bytes
        return self._rows_a_page() * self._row_bytes

    def _disk_buffer(self, plan: Plan) -> int:
        """What the plan says, or a little more: it stays, whatever takes over.

        The rows of a key that is looked up have to fit, however many they are: where the cache is
        another process's, this memory is a small part of the node's.
        """
        a_page = self._relation.page_bytes
        share = DISK_BUFFER_SHARE if self.named and self._alone else _LEAST_BUFFER_SHARE
        least = max(a_page, self._memory // share)
        return int(min(max(least, plan.parts.disk_buffer + 2 * a_page), self._memory // 2))

    def _parameters(self, plan: Plan, disk_buffer: int) -> Parameters:
        """As the plan says, but reads fill the disk buffer that there is."""
        ahead = self.factors.read_ahead and disk_buffer >= READ_AHEAD_FROM
        room = disk_buffer // 2 if ahead else disk_buffer
        pages = max(1, room // self._relation.page_bytes)
        if plan is _NO_PLAN:
            return Parameters(pages=pages, tuner=self._tuner, remember=self._remember)
        # What the plan does not need for events that wait is the cache's, also where it is a plan
        # for less than all of the memory.
        pool = self._memory - disk_buffer
        waiting = plan.parts.pending + plan.parts.queue
        return Parameters(
            pages=pages,
            keys=max(1, int(plan.events)),
            cache_share=min(_MOST_CACHED, max(0.1, 1 - waiting / pool)),
            tuner=self._tuner,
            remember=self._remember,
            by_frequency=self._remember > 0 and not self.named,
        )

    def _note(self, algorithm: str, plan: Plan, why: str) -> None:
        parameters = self._parameters(plan, self.engine.disk_buffer)
        reason = f"{why}{algorithm} promises {plan.rate:,.0f} events/s: {plan.reason}"
        self.choices.append(Choice(algorithm, parameters, plan.rate, reason))
        del self.choices[:-_KEPT_CHOICES]
