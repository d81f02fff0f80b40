"""Requests by HTTP on their way to the source topic, many in one Kafka transaction.

A thread takes whatever requests have arrived and

    1. answers those whose key has a marker: they are done
    2. begins a transaction
    3. sends the events of the others to the source, each to the partition of its join key
    4. sends a marker for each that has a key
    5. commits, and only then answers: all of a request is on the topic, or nothing

Whatever fails, the producer is given up and another one takes over its transactional id, as it does
when the process starts: Kafka then has ended what was open, one way or the other, and the markers
say which. One process a pipeline has the id at a time. A second one would take it away from the
first, which takes it back with its next request, having read what the other wrote: slow, and
still right.
"""

from __future__ import annotations

import contextlib
import logging
import queue
import threading
import time
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from dovetail.contracts.request_pb2 import Request
from dovetail.errors import DovetailError, Unavailable
from dovetail.permissions import Operation, Permission, Resource
from dovetail.stream.acls import refusal
from dovetail.stream.rdkafka import KafkaFailure, Producer
from dovetail.stream.takeover import Written, take_over
from dovetail.stream.topics import admin_of, partitions_of
from dovetail.topology import INGEST, LARGEST_MESSAGE_BYTES
from services.ingest.markers import Markers
from services.ingest.sorter import Sorter

if TYPE_CHECKING:
    from collections.abc import Callable

    from dovetail.join.columns import Column
    from dovetail.settings import Settings
    from dovetail.topology import Topology

log = logging.getLogger(__name__)

_TIMEOUT_S = 10.0
_TRANSACTION_MS = 15_000
"""Readers of the source wait so long at most for a transaction whose process is gone for good."""
_PAUSE_S = 0.5
_FORGET_EVERY_S = 600.0
_MOST_EVENTS = 100_000
"""In a transaction, or one request's more."""
_MESSAGE_TOO_LARGE = 10


class ReusedKeyError(DovetailError):
    """The key belongs to another body."""


class RefusedError(DovetailError):
    """The broker takes no message as large as one of the events."""


@dataclass(frozen=True, slots=True)
class Receipt:
    """Where a request's events are."""

    accepted: int
    partitions: list[int]
    repeated: bool
    """They were there before: the request came again."""


@dataclass(frozen=True, slots=True, eq=False)
class Delivery:
    """A request's events on their way."""

    key: bytes
    """Of its marker; empty if the sender gave none."""
    digest: bytes
    events: Column
    receipt: Future[Receipt] = field(default_factory=Future)
    """Or why there is none: Unavailable, ReusedKeyError, RefusedError."""


class Inbox:
    """Takes deliveries from any thread; one of its own sends them."""

    def __init__(self, settings: Settings, topology: Topology) -> None:
        self._settings = settings
        self._source, self._topic = topology.source, topology.requests
        self._name = f"{topology.group(INGEST)}.requests"
        self._waiting: queue.SimpleQueue[Delivery | None] = queue.SimpleQueue()
        self._pipeline = topology.pipeline
        self._sorter: Sorter
        self._markers = Markers()
        self._producer: Producer | None = None
        self._thread = threading.Thread(target=self._run, name="inbox")
        self._stopping = threading.Event()
        self._door = threading.Lock()
        """Held while a delivery comes in, and while `reason` changes: none is left behind."""
        self._failed: Callable[[BaseException], None]
        self.reason = "taking over the requests by HTTP"
        """Why it takes no delivery; empty when it does."""

    def start(self, failed: Callable[[BaseException], None]) -> None:
        self._failed = failed
        self._thread.start()

    def stop(self) -> None:
        """End when what was given in is answered."""
        self._stopping.set()
        self._waiting.put(None)
        self._thread.join()

    def deliver(self, delivery: Delivery) -> None:
        """Send a delivery's events, unless its key is known; its receipt says when it is done."""
        with self._door:
            if self.reason:
                raise Unavailable(self.reason)
            delivery.receipt.set_running_or_notify_cancel()  # it is answered, wanted or not
            self._waiting.put(delivery)

    # --- the thread

    def _run(self) -> None:
        deliveries: list[Delivery] = []
        try:
            forgotten = time.monotonic()
            while not self._stopping.is_set() or not self._waiting.empty():
                ready = self._producer is not None or self._take_over()
                deliveries = self._arrived()
                if ready:
                    self._settle(deliveries)
                else:
                    self._refuse(deliveries, Unavailable(self.reason))
                    self._stopping.wait(_PAUSE_S)
                if time.monotonic() - forgotten > _FORGET_EVERY_S:
                    self._markers.forget_old(_now_ms())
                    forgotten = time.monotonic()
        except BaseException as failure:  # noqa: BLE001 - told to the owner, who ends the process
            self._failed(failure)
            self._close("the service is about to restart")
            while deliveries or not self._waiting.empty():
                self._refuse(deliveries, Unavailable(self.reason))
                deliveries = self._arrived()
        finally:
            self._give_up()
            self._markers.close()

    def _arrived(self) -> list[Delivery]:
        """Wait for a delivery, if one may come, and take what is there."""
        found: list[Delivery] = []
        with contextlib.suppress(queue.Empty):
            delivery = self._waiting.get(timeout=0 if self.reason else None)
            while delivery is not None:
                found.append(delivery)
                if sum(len(delivery.events) for delivery in found) >= _MOST_EVENTS:
                    break
                delivery = self._waiting.get_nowait()
        return found

    def _settle(self, deliveries: list[Delivery]) -> None:
        """Answer each; of those with one key, the first is sent and the others repeat it."""
        # Step 1
        fresh: list[Delivery] = []
        repeated: list[Delivery] = []
        keys: set[bytes] = set()
        for delivery in deliveries:
            if not self._is_known(delivery):
                (repeated if delivery.key in keys else fresh).append(delivery)
                keys |= {delivery.key} - {b""}
        if fresh:
            self._send(fresh)
        if repeated:
            self._settle(repeated)

    def _is_known(self, delivery: Delivery) -> bool:
        """Answer a delivery whose key has a marker."""
        if not delivery.key:
            return False
        now = _now_ms()
        marker = self._markers.find(delivery.key, now) or self._markers.find_earlier(
            delivery.key, delivery.digest, now
        )
        if marker is None:
            return False
        if marker.digest == delivery.digest:
            # One of an earlier release has all its events on one partition.
            partitions = list(marker.partitions) or [marker.partition]
            delivery.receipt.set_result(Receipt(marker.accepted, partitions, repeated=True))
        else:
            delivery.receipt.set_exception(
                ReusedKeyError("this Idempotency-Key was used for another body within the last day")
            )
        return True

    def _send(self, deliveries: list[Delivery]) -> None:
        if self._producer is None:
            self._refuse(deliveries, Unavailable(self.reason))
            return
        placed = [self._sorter.by_partition(delivery.events) for delivery in deliveries]
        requests = [
            Request(
                digest=delivery.digest,
                accepted=len(delivery.events),
                partitions=list(events),
                at_ms=_now_ms(),
            )
            for delivery, events in zip(deliveries, placed, strict=True)
        ]
        try:
            self._transact(self._producer, placed, deliveries, requests)
        except KafkaFailure as failure:
            self._recover(deliveries, failure)
            return
        for delivery, request in zip(deliveries, requests, strict=True):
            if delivery.key:
                self._markers.keep(delivery.key, request)
            receipt = Receipt(request.accepted, list(request.partitions), repeated=False)
            delivery.receipt.set_result(receipt)

    def _transact(
        self,
        producer: Producer,
        placed: list[dict[int, Column]],
        deliveries: list[Delivery],
        requests: list[Request],
    ) -> None:
        # Step 2
        producer.begin()
        # Step 3
        for of_delivery in placed:
            for partition, events in of_delivery.items():
                producer.send_many(self._source.name, partition, events.data, events.bounds)
        # Step 4
        for delivery, request in zip(deliveries, requests, strict=True):
            if delivery.key:
                marker = request.SerializeToString()
                producer.send(self._topic.name, marker, 0, key=delivery.key)
        # Step 5
        producer.commit(_TIMEOUT_S)

    def _recover(self, deliveries: list[Delivery], failure: KafkaFailure) -> None:
        """Find out what became of a transaction, and answer its deliveries."""
        if failure.refused:
            raise self._refusal(failure) from failure
        log.warning("requests by HTTP undone", extra={"reason": str(failure)})
        self._give_up()
        if self._take_over():
            deliveries = [delivery for delivery in deliveries if not self._is_known(delivery)]
        if failure.code != _MESSAGE_TOO_LARGE:
            self._refuse(deliveries, failure)
        elif len(deliveries) > 1:  # one of them is to blame, and nothing of the others is there
            for delivery in deliveries:
                self._send([delivery])
        else:
            self._refuse(deliveries, RefusedError(f"the broker refuses it: {failure}"))

    def _refuse(self, deliveries: list[Delivery], error: DovetailError) -> None:
        for delivery in deliveries:
            if not delivery.receipt.done():
                delivery.receipt.set_exception(error)

    # --- the transactional id

    def _take_over(self) -> bool:
        """Take the id, which ends what its last holder left open; then read all markers."""
        try:
            self._producer = self._new_producer()
            take_over(self._settings, self._producer, Written((self._source, self._topic)))
            self._markers.load(self._settings, self._topic)
            partitions = partitions_of(admin_of(self._settings), self._source)
            self._sorter = Sorter(self._pipeline, partitions)
            self._sorter.warm()
        except Unavailable as unavailable:
            if isinstance(unavailable, KafkaFailure) and unavailable.refused:
                raise self._refusal(unavailable) from unavailable
            log.warning("requests by HTTP not taken over", extra={"reason": str(unavailable)})
            self._give_up()
            self._close(str(unavailable))
            return False
        self._close("")
        return True

    def _refusal(self, failure: KafkaFailure) -> DovetailError:
        return refusal(
            self._settings,
            failure,
            (
                Permission(Resource.TRANSACTIONAL_ID, self._name, Operation.WRITE),
                Permission(Resource.TOPIC, self._source.name, Operation.WRITE),
                Permission(Resource.TOPIC, self._topic.name, Operation.WRITE),
            ),
        )

    def _close(self, reason: str) -> None:
        """Take no delivery from now on, for this reason; an empty one opens again."""
        with self._door:
            self.reason = reason

    def _give_up(self) -> None:
        self._close(self.reason or "taking over the requests by HTTP")
        if self._producer is not None:
            self._producer.close()
            self._producer = None

    def _new_producer(self) -> Producer:
        return Producer(
            self._settings.client(
                {
                    "transactional.id": self._name,
                    "client.id": self._name,
                    "transaction.timeout.ms": _TRANSACTION_MS,
                    "retry.backoff.ms": 5,
                    "linger.ms": 5,
                    "message.max.bytes": LARGEST_MESSAGE_BYTES,
                    "batch.size": 1 << 20,
                    "queue.buffering.max.messages": 500_000,
                }
            )
        )


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
