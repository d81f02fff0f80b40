"""How much memory for this rate, which rate in this memory, and by which algorithm.

The design's algorithms with the models that stand for them. `cmeshjoin` has none: no paper gives
one, and its best split between cache and pending is what `ssbj` finds.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from dovetail.errors import ConfigError
from dovetail.join.cost import hybridjoin, inlj, meshjoin, pcsrj, srj, ssbj

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from dovetail.join.cost.factors import Factors
    from dovetail.join.cost.plan import Plan
    from dovetail.join.cost.workload import Workload

    Question = Callable[[Workload, Factors, float], Plan]


@dataclass(frozen=True)
class Model:
    least_memory: Question
    highest_rate: Question
    needs_index: bool


READ_AHEAD_FROM = 4 << 20
"""Bytes of the disk buffer from which on a driver reads ahead: below, waking a thread takes longer
than reading itself."""


def _perhaps_ahead(question: Question, better: Callable[[Plan, Plan], bool]) -> Question:
    """Read ahead, with twice the disk buffer, where the driver does and it is worth it."""

    def asked(workload: Workload, factors: Factors, amount: float) -> Plan:
        by_turns = question(workload, replace(factors, read_ahead=False), amount)
        if not factors.read_ahead:
            return by_turns
        doubled = replace(workload, buffer_fudge=2 * workload.buffer_fudge)
        ahead = question(doubled, factors, amount)
        if ahead.parts.disk_buffer < READ_AHEAD_FROM:
            return by_turns
        too_large = by_turns.parts.disk_buffer >= READ_AHEAD_FROM
        return ahead if too_large or better(ahead, by_turns) else by_turns

    return asked


def _reading_on(least_memory: Question, highest_rate: Question, *, needs_index: bool) -> Model:
    """A model whose next read can be foreseen."""
    return Model(
        _perhaps_ahead(least_memory, lambda one, other: one.memory < other.memory),
        _perhaps_ahead(highest_rate, lambda one, other: one.rate > other.rate),
        needs_index=needs_index,
    )


def models(nodes: int = 2) -> dict[str, Model]:
    """Every algorithm that has a model; `nodes` is for `pcsrj` alone, the others run on one."""

    def index(nodes: int) -> Model:
        return _reading_on(
            partial(pcsrj.least_memory, nodes=nodes),
            partial(pcsrj.highest_rate, nodes=nodes),
            needs_index=True,
        )

    scan = _reading_on(meshjoin.least_memory, meshjoin.highest_rate, needs_index=False)
    return {
        "inlj": Model(inlj.least_memory, inlj.highest_rate, needs_index=True),
        "meshjoin": scan,
        "ameshjoin": scan,
        "hybridjoin": _reading_on(
            hybridjoin.least_memory, hybridjoin.highest_rate, needs_index=True
        ),
        "cachejoin": index(1),
        "pcsrj": index(nodes),
        "ssbj": _reading_on(ssbj.least_memory, ssbj.highest_rate, needs_index=False),
        "ssbj-index": index(1),
        "srj": Model(srj.least_memory, srj.highest_rate, needs_index=True),
    }


@dataclass(frozen=True)
class Sizing:
    """One algorithm's answer, or why it has none."""

    algorithm: str
    plan: Plan | None
    reason: str


def memory_for(
    workload: Workload, factors: Factors, rate: float, among: Iterable[str], nodes: int = 2
) -> list[Sizing]:
    """Answer for each algorithm how much memory this rate takes, the least first."""
    known = models(nodes)
    answers = [
        _answer(name, partial(known[name].least_memory, workload, factors, rate)) for name in among
    ]
    return sorted(answers, key=_by(lambda plan: plan.memory))


def rate_for(
    workload: Workload, factors: Factors, memory: float, among: Iterable[str], nodes: int = 2
) -> list[Sizing]:
    """Answer for each algorithm which rate this memory gives, the highest first."""
    known = models(nodes)
    answers = [
        _answer(name, partial(known[name].highest_rate, workload, factors, memory))
        for name in among
    ]
    return sorted(answers, key=_by(lambda plan: -plan.rate))


def enough_for(answers: Sequence[Sizing], rate: float) -> list[Sizing]:
    """Those of `rate_for` that reach this rate."""
    return [answer for answer in answers if answer.plan and answer.plan.rate >= rate]


def _answer(name: str, question: Callable[[], Plan]) -> Sizing:
    try:
        plan = question()
    except ConfigError as refusal:
        return Sizing(name, None, str(refusal))
    return Sizing(name, plan, plan.reason)


def _by(measure: Callable[[Plan], float]) -> Callable[[Sizing], tuple[bool, float]]:
    """Those without an answer come last."""

    def order(answer: Sizing) -> tuple[bool, float]:
        return (True, 0.0) if answer.plan is None else (False, measure(answer.plan))

    return order
