"""Cost factors: the seconds that one operation takes; and work, operations counted.

The papers write a step's cost as a sum of counts times factors, c_loop = c_I/O(b) + w·c_A + ….
Here the counts are a value of their own, `Work`, so that a model says what a step does, the
factors say how long that takes, and a measured step can correct the factors.

c_I/O(b) is affine, one `seek` and b times `page`: that is what disks and databases show over the
range that matters, and what gives the papers' curves their optimum.

The papers read and join by turns, so that a step takes the sum of both. A driver that reads ahead
while the engine joins takes the longer of the two.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Self

import numpy as np

from dovetail.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import ArrayLike, NDArray

PAGE_BYTES = 8192
"""Of a PostgreSQL heap page: what `Factors.page` reads."""


@dataclass(frozen=True, slots=True)
class _Operations:
    seek: float = 0.0
    """One read of R, whatever its size: the fixed part of c_I/O."""
    page: float = 0.0
    """One page of a read: c_I/O(b) = seek + b·page."""
    step: float = 0.0
    """One step, whatever it reads and answers."""
    probe: float = 0.0
    """c_H in H_R: find the entry of one event's key, and take event and entry out."""
    match: float = 0.0
    """c_H in H_S: look up the key of one row of R among the pending events; mostly a miss. The
    papers have one c_H for both; a miss ends sooner, and a scan lives on that."""
    output: float = 0.0
    """c_O: make one enriched event."""
    take: float = 0.0
    """c_S: read one event from the stream buffer."""
    append: float = 0.0
    """c_A: look up one event's key in vain, and add the event to H_S and the queue."""
    evict: float = 0.0
    """c_E: remove one event from H_S and the queue."""
    compare: float = 0.0
    """c_F: hold the frequency of one event's key against the threshold or the inequality."""
    switch: float = 0.0
    """c_B: move one master row into the cache."""
    request: float = 0.0
    """One lookup query, whatever the number of its keys: the fixed part of SRJ's C_batch."""
    key: float = 0.0
    """One key of a lookup: C_batch(k) = request + k·key."""


NAMES = tuple(field.name for field in fields(_Operations))
READING = ("seek", "page", "request", "key")
JOINING = tuple(name for name in NAMES if name not in READING)


@dataclass(frozen=True, slots=True)
class Work(_Operations):
    """How often each operation is done."""

    def __add__(self, other: Work) -> Work:
        return Work(*(getattr(self, name) + getattr(other, name) for name in NAMES))

    def __mul__(self, times: float) -> Work:
        return Work(*(getattr(self, name) * times for name in NAMES))


@dataclass(frozen=True, slots=True)
class Factors(_Operations):
    """How many seconds each operation takes."""

    read_ahead: bool = False
    """Whether R is read while the step before is joined."""

    def __post_init__(self) -> None:
        for name in NAMES:
            value = getattr(self, name)
            if not (math.isfinite(value) and value >= 0):
                raise ConfigError(f"the cost factor {name} must be 0 s or more, not {value}")

    @classmethod
    def of(cls, seconds: Mapping[str, float]) -> Self:
        """Take every factor by its name."""
        return cls(**{name: float(seconds[name]) for name in NAMES})  # type: ignore[arg-type]

    def cost(self, work: Work) -> float:
        """Predict the seconds that this work takes: c_loop, if it is that of one step."""
        return float(self.together(self.reading(work), self.joining(work)))

    def by_turns(self, work: Work) -> float:
        """As cost, of a step whose read nobody can foresee."""
        return self.reading(work) + self.joining(work)

    def reading(self, work: Work) -> float:
        """The seconds of a step's reads: c_I/O."""
        return self._sum(work, READING)

    def joining(self, work: Work) -> float:
        """The seconds of all the rest."""
        return self._sum(work, JOINING)

    def together(self, reading: ArrayLike, joining: ArrayLike) -> NDArray[np.float64]:
        """What the two of one step take, element by element."""
        if self.read_ahead:
            return np.maximum(reading, joining)
        return np.asarray(np.add(reading, joining))

    def keeping_up(
        self, reading: ArrayLike, joining: ArrayLike, an_event: ArrayLike, arrivals: float
    ) -> NDArray[np.float64]:
        """Events that a step must answer to keep up: w = λ·c_loop, solved for w.

        `joining` is what a step joins whatever it answers, `an_event` what each answer takes.
        """
        share = 1 - arrivals * np.asarray(an_event)
        if self.read_ahead:
            return np.maximum(
                arrivals * np.asarray(reading), arrivals * np.asarray(joining) / share
            )
        return np.asarray(arrivals * np.add(reading, joining) / share)

    def events_for(self, reading: Work, an_event: float, arrivals: float) -> float:
        """The same for one kind of step, of which this is the read and its scan."""
        return float(
            self.keeping_up(self.reading(reading), self.joining(reading), an_event, arrivals)
        )

    def _sum(self, work: Work, names: tuple[str, ...]) -> float:
        return math.fsum(getattr(self, name) * getattr(work, name) for name in names)

    def read(self, pages: float) -> float:
        """c_I/O(b)."""
        return self.seek + pages * self.page

    def refined(self, work: Work, seconds: float, weight: float = 0.1) -> Self:
        """Correct the factors by one measured step: an exponentially weighted mean of logarithms.

        Only the sum was measured. The factor with the largest share of the prediction moves by
        the whole weight, the others by their share of that; so a step that mostly reads says
        little about probing, and steps of different mixtures tell the factors apart. A factor
        stays positive, and the prediction never overshoots the measurement.
        """
        predicted = self.cost(work)
        if predicted <= 0 or seconds <= 0:
            return self
        names = NAMES
        if self.read_ahead:  # the shorter of the two was not seen
            names = READING if self.reading(work) >= self.joining(work) else JOINING
        times = {name: getattr(self, name) * getattr(work, name) for name in names}
        largest = max(times.values())
        correction = seconds / predicted
        return replace(
            self,
            **{
                name: getattr(self, name) * correction ** (weight * time / largest)
                for name, time in times.items()
                if time > 0
            },
        )


TYPICAL = Factors(
    seek=300e-6,
    page=3.5e-6,
    step=20e-6,
    probe=75e-9,
    match=15e-9,
    output=30e-9,
    take=1e-9,
    append=230e-9,
    evict=300e-9,
    compare=5e-9,
    switch=350e-9,
    request=300e-6,
    key=6.7e-6,
)
"""One virtual machine with two shared cores, R in snapshot files on a virtual SSD read past the
page cache (`python -m bench.cost_factors`); a lookup's two are PostgreSQL's `= ANY` over a local
socket. Yours differ: measure them, or let a running join refine these."""
