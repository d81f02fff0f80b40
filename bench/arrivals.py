"""The warehouse's side: a reader of committed outputs that notes when it had each of them.

    python -m bench.arrivals TOPIC GROUP FILE

It says `ready` when it has its partitions, reads until SIGTERM and on to the end, then writes
sale ids and arrival times to FILE. Latency is from the source record's own Kafka timestamp to
this reader having the output in hand: queueing, every hop, the commits and read_committed's
wait for them included. Every output counts, there is no sampling and no settling time left out.
"""

from __future__ import annotations

import signal
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from bench.ranges import NO_ID, consumer_of, read, sale_ids
from dovetail.errors import StackError
from dovetail.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

_EMPTY_AT_END = 5
"""Empty answers in a row, after the stop, that mean the end: a second without anything."""


@dataclass(frozen=True)
class Latency:
    outputs: int
    p50_ms: float
    p99_ms: float
    max_ms: float


def latency_of(arrived: Path, sent_ms: NDArray[np.int64], first: int) -> Latency:
    """Join arrivals with the source's times; an output nobody sent, or sent twice, is an error."""
    with np.load(arrived) as saved:
        ids, at_ms = saved["ids"] - first, saved["at_ms"]
    ours = (ids >= 0) & (ids < len(sent_ms))
    ids, at_ms = ids[ours], at_ms[ours]
    if not len(ids) or np.any(sent_ms[ids] < 0) or len(np.unique(ids)) != len(ids):
        raise StackError("the outputs that arrived are not those of the events sent, each once")
    late = at_ms - sent_ms[ids]
    p50, p99 = np.percentile(late, [50, 99])
    return Latency(len(late), float(p50), float(p99), float(late.max()))


def first_arrival(arrived: Path) -> float:
    """When the reader had its first output (ms)."""
    with np.load(arrived) as saved:
        at_ms = saved["at_ms"]
    if not len(at_ms):
        raise StackError("no output has arrived")
    return float(at_ms.min())


def sent_times(
    settings: Settings,
    topic: str,
    starts: list[int],
    first: int,
    count: int,
    check: Callable[[], None],
) -> NDArray[np.int64]:
    """Read when each event from sale_id `first` on entered the source topic (ms), -1 if bad."""
    sent = np.full(count, -1, np.int64)
    for records in read(settings, topic, starts, count, check):
        ids = sale_ids(records.data, records.bounds)
        known = (ids != NO_ID) & (ids >= first) & (ids < first + count)
        sent[ids[known] - first] = records.timestamps[known]
    return sent


def main() -> int:
    topic, group, path = sys.argv[1:]
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    sale_ids(np.zeros(1, np.uint8), np.array([0, 1], np.int64))  # compiled before it counts
    ids: list[NDArray[np.int64]] = []
    at_ms: list[NDArray[np.float64]] = []
    with consumer_of(Settings.from_environment(), topic, group, _tell_ready) as consumer:
        empty = 0
        while empty < _EMPTY_AT_END or not stop.is_set():
            records = consumer.consume(50_000, 0.2)
            now = time.time_ns() / 1e6
            empty = 0 if len(records) else empty + 1
            if len(records):
                ids.append(sale_ids(records.data, records.bounds))
                at_ms.append(np.full(len(records), now))
    with Path(path).open("wb") as file:
        np.savez(
            file,
            ids=np.concatenate([*ids, np.empty(0, np.int64)]),
            at_ms=np.concatenate([*at_ms, []]),
        )
    return 0


def _tell_ready(partitions: list[int]) -> None:
    if partitions:
        print("ready", flush=True)


if __name__ == "__main__":
    sys.exit(main())
