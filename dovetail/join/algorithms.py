"""The table: every algorithm is a cache policy and a disk phase.

| name       | cache policy | disk phase                                | paper              |
| ---------- | ------------ | ----------------------------------------- | ------------------ |
| inlj       | none         | lookup, one key at a time                 | meshjoin §1        |
| meshjoin   | none         | scan, fixed b and w                       | meshjoin §3.1      |
| ameshjoin  | none         | scan, b and w set before any step         | meshjoin §3.3      |
| hybridjoin | none         | index                                     | hybridjoin §4      |
| cmeshjoin  | threshold    | scan                                      | ssbj §2.3          |
| cachejoin  | threshold    | index                                     | pcsrj §2, §3       |
| pcsrj      | threshold    | index, one engine a node behind the mapper | pcsrj §3           |
| ssbj       | inequality   | scan                                      | ssbj §3            |
| ssbj-index | inequality   | index                                     | ssbj §5            |
| srj        | lru          | lookup, batched                           | srj §2             |

`auto` is none of them: it runs whichever its cost model ranks first (auto.py).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from dovetail.errors import ConfigError
from dovetail.join.index import Index
from dovetail.join.lookup import Lookup
from dovetail.join.pending import UNBOUNDED
from dovetail.join.policies import AutoCache, Inequality, Lru, NoCache, Threshold
from dovetail.join.scan import Scan

if TYPE_CHECKING:
    from collections.abc import Callable

    from dovetail.join.phase import DiskPhase, Relation
    from dovetail.join.policies import Policy
    from dovetail.join.scan import Tuner


@dataclass(frozen=True, slots=True)
class Parameters:
    """What can be set, and what it is otherwise; each algorithm takes what concerns it."""

    pages: int = 0
    """b: pages a step of a scan reads, 0 = as many as the disk buffer holds; pages of a
    partition, 0 = as the store has them."""
    events: int = UNBOUNDED
    """w: events that a step of a scan lets in; unbounded = as many as the memory holds."""
    tuner: Tuner | None = None
    """Sets b and w of ameshjoin before every step."""
    keys: int = 1000
    """k: keys a lookup of SRJ asks for."""
    cache_share: float = 0.5
    """How much of the memory a cache of bounded size may take."""
    switching_factor: float = 1.0
    """s_f of the cache inequality."""
    remember: int = 0
    """Bytes to remember in who was looked up lately: SRJ caches who is again; 0 = everybody."""
    by_frequency: bool = False
    """Whether SRJ's cache lets go of the least frequent, as `auto` has it, not the least recent."""


@dataclass(frozen=True, slots=True)
class Algorithm:
    name: str
    policy: Callable[[Parameters], Policy]
    phase: Callable[[Parameters, Relation, int], DiskPhase]
    """Takes the size of the disk buffer in bytes as well."""


AUTO = "auto"


def _none(_: Parameters) -> Policy:
    return NoCache()


def _lru(given: Parameters) -> Policy:
    kind = AutoCache if given.by_frequency else Lru
    return kind(given.cache_share, given.remember)


def _threshold(given: Parameters) -> Policy:
    return Threshold(given.cache_share)


def _inequality(given: Parameters) -> Policy:
    return Inequality(given.switching_factor)


def _scan(given: Parameters, relation: Relation, disk_buffer: int) -> DiskPhase:
    return Scan(relation, disk_buffer, pages=given.pages, events=given.events)


def _tuned_scan(given: Parameters, relation: Relation, disk_buffer: int) -> DiskPhase:
    return Scan(relation, disk_buffer, pages=given.pages, events=given.events, tuner=given.tuner)


def _index(given: Parameters, _relation: Relation, _disk_buffer: int) -> DiskPhase:
    return Index(given.pages)


def _one_by_one(_: Parameters, _relation: Relation, _disk_buffer: int) -> DiskPhase:
    return Lookup(keys=1)


def _in_batches(given: Parameters, _relation: Relation, _disk_buffer: int) -> DiskPhase:
    return Lookup(given.keys)


ALGORITHMS = {
    algorithm.name: algorithm
    for algorithm in (
        Algorithm("inlj", _none, _one_by_one),
        Algorithm("meshjoin", _none, _scan),
        Algorithm("ameshjoin", _none, _tuned_scan),
        Algorithm("hybridjoin", _none, _index),
        Algorithm("cmeshjoin", _threshold, _scan),
        Algorithm("cachejoin", _threshold, _index),
        Algorithm("pcsrj", _threshold, _index),
        Algorithm("ssbj", _inequality, _scan),
        Algorithm("ssbj-index", _inequality, _index),
        Algorithm("srj", _lru, _in_batches),
    )
}


def algorithm_named(name: str) -> Algorithm:
    try:
        return ALGORITHMS[name]
    except KeyError:
        known = ", ".join(ALGORITHMS)
        if name == AUTO:
            raise ConfigError(
                f"auto is not one algorithm: make an Auto, or choose {known}"
            ) from None
        raise ConfigError(f"there is no join algorithm {name!r}: choose one of {known}") from None


def policy_named(name: str, parameters: Parameters | None = None) -> Policy:
    """The cache policy of an algorithm; that of `auto` holds whatever it runs."""
    given = parameters or Parameters()
    if name == AUTO:
        return AutoCache(given.cache_share)
    return algorithm_named(name).policy(given)
