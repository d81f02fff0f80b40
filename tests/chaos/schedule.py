"""Which faults happen when: all of it follows from a seed, before anything runs.

First one process of each kind is killed, one at a time: what a single kill costs can be told only
where nothing else is wrong. Then two rows of faults overlap. The large ones are spread over the
whole run, a fault of every kind in each round; the kills fall anywhere, also into an outage, a
rebalance or a start.
"""

from __future__ import annotations

import random
from bisect import bisect_right
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import repeat
from typing import TYPE_CHECKING

from dovetail.topology import CACHE_PHASE, CONTROL, DISK_PHASE, ENRICH, INGEST, MAPPER, NODE

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator


class Runner(StrEnum):
    """Who runs the pipeline: the services in one of their layouts, or Spark."""

    SPLIT = "split"
    FUSED = "fused"
    SPARK = "spark"


SESSION_S = 6.0
"""After so much silence a node counts as dead to the others (`dovetail.stream.loop`)."""
NODES = 2
"""With how many nodes a run begins."""
ROUND_S = 300.0
"""A run this long has the `LARGE` faults once, and as many kills as `KILLS_A_ROUND` says."""
KILLS_A_ROUND = {Runner.SPLIT: 20, Runner.FUSED: 14, Runner.SPARK: 8}
"""Spark takes a quarter of a minute to start: with more of them it would do nothing else."""
STAGES = {
    Runner.SPLIT: (INGEST, MAPPER, CACHE_PHASE, DISK_PHASE),
    Runner.FUSED: (NODE,),
    Runner.SPARK: (ENRICH,),
}
"""The kinds of processes that events pass."""
_APART_S = {Runner.SPLIT: 25.0, Runner.FUSED: 25.0, Runner.SPARK: 60.0}
"""Between two single kills."""

_PER_NODE = (CACHE_PHASE, DISK_PHASE, NODE)
_WEIGHTS = {CONTROL: 1, INGEST: 2, MAPPER: 2, CACHE_PHASE: 3, DISK_PHASE: 3, NODE: 3, ENRICH: 3}
_AT_LEAST = 2
"""Kills of each kind of service in a round."""
_MARGIN_S = 2.0


class Kind(StrEnum):
    KILL = "kill -9"
    KILL_TWICE = "kill -9, and again while it starts"
    TERMINATE = "SIGTERM"
    FREEZE = "SIGSTOP, SIGCONT when it counts as dead"
    ZOMBIE = "SIGSTOP, replaced, SIGCONT"
    BROKER_KILL = "broker: kill -9"
    BROKER_STOP = "broker: clean stop"
    DATABASE_IMMEDIATE = "PostgreSQL: immediate stop"
    DATABASE_FAST = "PostgreSQL: fast stop"
    DATABASE_CUT = "PostgreSQL: all connections cut"
    NODE_ADDED = "node added"
    NODE_REMOVED = "node removed"
    NODE_LOST = "node lost (kill -9, not restarted)"
    NODES_EXCHANGED = "all nodes exchanged at once"
    ROLLING = "rolling restart of everything"


# A node is added for each that is taken away.
LARGE = (*(kind for kind in Kind if kind not in (Kind.KILL, Kind.KILL_TWICE)), Kind.NODE_ADDED)
_TAKES_A_NODE = (Kind.NODE_REMOVED, Kind.NODE_LOST)
_OF_NODES = (*_TAKES_A_NODE, Kind.NODE_ADDED, Kind.NODES_EXCHANGED)
"""Spark's nodes are tasks, and no processes."""
_LASTS_S = {
    Kind.FREEZE: (SESSION_S + 2, SESSION_S + 6),
    Kind.ZOMBIE: (SESSION_S + 2, SESSION_S + 6),
    Kind.BROKER_KILL: (0.0, 5.0),
    Kind.BROKER_STOP: (0.0, 5.0),
    Kind.DATABASE_IMMEDIATE: (0.0, 5.0),
    Kind.DATABASE_FAST: (0.0, 5.0),
    # How old the restarted process is when it is killed again: imports, topics, partitions.
    Kind.KILL_TWICE: (0.2, 3.0),
    # Between two services.
    Kind.ROLLING: (1.0, 3.0),
}


@dataclass(frozen=True, slots=True)
class Fault:
    at: float
    """Seconds after the beginning."""
    kind: Kind
    service: str = ""
    """The process it hits, or the kind of service if there is one process of it."""
    nodes: tuple[int, ...] = ()
    """The nodes that it takes away."""
    new_nodes: tuple[int, ...] = ()
    seconds: float = 0.0
    """How long it lasts; see `_LASTS_S`."""

    @property
    def kills(self) -> int:
        return {Kind.KILL: 1, Kind.KILL_TWICE: 2}.get(self.kind, 0)


def schedule(
    seed: int,
    seconds: float,
    large: Iterable[Kind] | None = None,
    kills: int | None = None,
    runner: Runner = Runner.SPLIT,
) -> list[Fault]:
    """Faults in the order of time; unless they are given, as many as the time is long.

    Then there are single kills before, which take their own time (`lead_s`).
    """
    choice = random.Random(seed)
    rounds = max(1, round(seconds / ROUND_S))
    kinds = list(large_of(runner) * rounds if large is None else large)
    membership = _Membership()
    faults = list(_large(choice, seconds, kinds, membership, runner))
    count = KILLS_A_ROUND[runner] * rounds if kills is None else kills
    faults += _kills(choice, seconds, count, membership, runner)
    if kills is not None:
        return sorted(faults, key=lambda fault: fault.at)
    lead = lead_s(runner)
    later = [replace(fault, at=fault.at + lead) for fault in faults]
    return sorted([*_singles(choice, runner), *later], key=lambda fault: fault.at)


def large_of(runner: Runner) -> tuple[Kind, ...]:
    if runner is not Runner.SPARK:
        return LARGE
    return tuple(kind for kind in LARGE if kind not in _OF_NODES)


def lead_s(runner: Runner) -> float:
    """How long the single kills take that come before all else."""
    return _APART_S[runner] * len(_processes(runner))


def _processes(runner: Runner) -> tuple[str, ...]:
    return (CONTROL, *STAGES[runner])


def _singles(choice: random.Random, runner: Runner) -> Iterator[Fault]:
    nodes = tuple(range(NODES))
    for number, kind in enumerate(choice.sample(_processes(runner), len(_processes(runner)))):
        at = _MARGIN_S + number * _APART_S[runner]
        yield Fault(at, Kind.KILL, _process(choice, kind, nodes))


class _Membership:
    """Which nodes there are at what time."""

    def __init__(self) -> None:
        self._times = [0.0]
        self._nodes = [tuple(range(NODES))]
        self._next = NODES

    def at(self, moment: float) -> tuple[int, ...]:
        return self._nodes[bisect_right(self._times, moment) - 1]

    @property
    def last(self) -> tuple[int, ...]:
        return self._nodes[-1]

    def change(self, moment: float, gone: tuple[int, ...], new: int) -> tuple[int, ...]:
        """Take some away, add as many new ones as said; a number is never given twice."""
        added = tuple(range(self._next, self._next + new))
        self._next += new
        self._times.append(moment)
        self._nodes.append(tuple(node for node in self.last if node not in gone) + added)
        return added


def _large(
    choice: random.Random,
    seconds: float,
    kinds: list[Kind],
    membership: _Membership,
    runner: Runner,
) -> Iterator[Fault]:
    """One fault in each equal part of the time, at a random moment of it."""
    part = (seconds - 2 * _MARGIN_S) / max(1, len(kinds))
    left = list(kinds)
    for number in range(len(kinds)):
        at = _MARGIN_S + (number + choice.uniform(0.05, 0.95)) * part
        possible = [kind for kind in left if kind not in _TAKES_A_NODE or len(membership.last) > 1]
        if not possible:
            raise ValueError(f"no node is left for {', '.join(left)}: add one before")
        kind = choice.choice(possible)
        left.remove(kind)
        yield _fault(choice, at, kind, membership, runner)


def _fault(
    choice: random.Random, at: float, kind: Kind, membership: _Membership, runner: Runner
) -> Fault:
    lasts = choice.uniform(*_LASTS_S.get(kind, (0.0, 0.0)))
    if kind in _TAKES_A_NODE:
        leaving = (choice.choice(membership.last),)
        membership.change(at, leaving, 0)
        return Fault(at, kind, nodes=leaving)
    if kind is Kind.NODE_ADDED:
        return Fault(at, kind, new_nodes=membership.change(at, (), 1))
    if kind is Kind.NODES_EXCHANGED:
        gone = membership.last
        return Fault(at, kind, nodes=gone, new_nodes=membership.change(at, gone, len(gone)))
    hits_a_service = kind in (Kind.TERMINATE, Kind.FREEZE, Kind.ZOMBIE)
    service = ""
    if hits_a_service:
        service = _process(choice, choice.choice(STAGES[runner]), membership.last)
    return Fault(at, kind, service, seconds=lasts)


def _kills(
    choice: random.Random, seconds: float, count: int, membership: _Membership, runner: Runner
) -> Iterator[Fault]:
    """Each kind of service at least twice, if there are so many; a fifth while it starts."""
    kinds = _processes(runner)
    sure = [kind for kind in kinds for _ in repeat(None, _AT_LEAST)]
    choice.shuffle(sure)
    weights = [_WEIGHTS[kind] for kind in kinds]
    victims = sure[:count] + choice.choices(kinds, weights, k=max(0, count - len(sure)))
    twice = count // 5
    for number, victim in enumerate(victims[: count - twice]):
        at = choice.uniform(_MARGIN_S, seconds - _MARGIN_S)
        kind = Kind.KILL_TWICE if number < twice else Kind.KILL
        process = _process(choice, victim, membership.at(at))
        yield Fault(at, kind, process, seconds=choice.uniform(*_LASTS_S.get(kind, (0.0, 0.0))))


def _process(choice: random.Random, service: str, nodes: tuple[int, ...]) -> str:
    return f"{service}-{choice.choice(nodes)}" if service in _PER_NODE else service
