"""Which strategy serves which purpose: Table 2 of MESHJOIN §4.1, as data.

|              | MAX-SUBSET | RANDOM-SAMPLE    |
| ------------ | ---------- | ---------------- |
| many-to-one  | keep-w     | sample-w         |
| many-to-many | topw       | cluster-sampling |
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from dovetail.join.shedding.strategies import ClusterSampling, KeepW, SampleW, TopW

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy as np

    from dovetail.join.phase import Relation
    from dovetail.join.shedding.frequency import Frequencies
    from dovetail.join.shedding.strategies import Strategy


class Relationship(StrEnum):
    """How many master rows an event joins with: exactly one, or any number."""

    MANY_TO_ONE = "many-to-one"
    MANY_TO_MANY = "many-to-many"

    @classmethod
    def of(cls, relation: Relation) -> Relationship:
        """Unique keys make it many-to-one, if every event has its row: a foreign key."""
        return cls.MANY_TO_ONE if relation.unique else cls.MANY_TO_MANY


class Criterion(StrEnum):
    """What the output should be while events are shed."""

    MAX_SUBSET = "max-subset"
    """As much of the join as possible."""
    RANDOM_SAMPLE = "random-sample"
    """A random sample of the join, from which the whole can be estimated."""


@dataclass(frozen=True, slots=True)
class Choice:
    strategy: str
    reason: str
    make: Callable[[Frequencies, np.random.Generator], Strategy]
    """Takes f_R and chance, and uses what concerns it."""


_TABLE = {
    (Relationship.MANY_TO_ONE, Criterion.MAX_SUBSET): Choice(
        KeepW.name,
        "every event has one result row, so any w events lose the fewest possible",
        lambda _frequencies, _chance: KeepW(),
    ),
    (Relationship.MANY_TO_ONE, Criterion.RANDOM_SAMPLE): Choice(
        SampleW.name,
        "every event has one result row, so a uniform sample of events is one of the join",
        lambda _frequencies, chance: SampleW(chance),
    ),
    (Relationship.MANY_TO_MANY, Criterion.MAX_SUBSET): Choice(
        TopW.name,
        "an event that is shed costs as many result rows as its key has master rows, so those "
        "with the fewest go",
        lambda frequencies, _chance: TopW(frequencies),
    ),
    (Relationship.MANY_TO_MANY, Criterion.RANDOM_SAMPLE): Choice(
        ClusterSampling.name,
        "events sampled in proportion to their master rows are no uniform sample of the join, "
        "but sums over it can be estimated without bias",
        ClusterSampling,
    ),
}


def strategy_named(name: str) -> Choice:
    return next(choice for choice in _TABLE.values() if choice.strategy == name)


def strategy_for(relationship: Relationship, criterion: Criterion) -> Choice:
    return _TABLE[relationship, criterion]
