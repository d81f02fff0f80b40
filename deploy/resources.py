"""How much memory a process's container has: what the chart computes, and what Compose says.

The pipeline's `memory` is what a node's join may hold; a process takes more. Beside it stand the
interpreter with its libraries and kernels, what the Kafka client has fetched ahead or not sent
yet, and a step's batches on their way. Both phases of a node get room for all of its memory: which
of them holds how much depends on the algorithm, which may be changed while they run. A fused node
is one process with both budgets, which together are the node's memory.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from dovetail.topology import CACHE_PHASE, CONTROL, DISK_PHASE, NODE

if TYPE_CHECKING:
    from dovetail.pipeline.spec import Pipeline

_MIB = 1 << 20
BASE = 384 * _MIB
"""Of a process, without the join's. With 32 MiB a node and 20,000 events a second for 40 s, at most
385 MiB were resident in a cache phase, 339 in a disk phase and in the mapper, 324 in ingest, 247 in
control: all of it, libraries that processes of one machine share included."""
BESIDE = 768 * _MIB
"""Of a phase's limit, for all that is not the join's."""
STAGE = 1024 * _MIB
"""The limit of ingest, which may hold 64 MiB of requests beside its steps, and of the mapper."""


@dataclass(frozen=True, slots=True)
class Memory:
    """Bytes."""

    request: int
    limit: int


def memory_of(kind: str, pipeline: Pipeline) -> Memory:
    """Of a service's process; of a chain, `pipeline` is seen from its link."""
    if kind in (CACHE_PHASE, DISK_PHASE, NODE):
        return Memory(BASE + pipeline.memory, BESIDE + 2 * pipeline.memory)
    return Memory(BASE, BESIDE if kind == CONTROL else STAGE)
