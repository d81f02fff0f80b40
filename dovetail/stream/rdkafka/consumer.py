"""A member of a consumer group on one topic, which answers with columns instead of objects.

librdkafka hands over messages as an array of pointers. What is popped from it but not yet
returned (a batch stopped at its bytes, or a callback raised) is *held*: it comes first in the
next batch, and positions() counts it as not read.
"""

from __future__ import annotations

import ctypes
import logging
import weakref
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from dovetail.errors import ConfigError
from dovetail.stream.rdkafka import kernels
from dovetail.stream.rdkafka.client import Client, Config, milliseconds, new_conf
from dovetail.stream.rdkafka.errors import (
    FATAL,
    NO_OFFSET,
    PARTITION_EOF,
    STATE,
    KafkaFailure,
    check_code,
    check_error,
    describe,
)
from dovetail.stream.rdkafka.library import (
    CONSUMER,
    OFFSET_BEGINNING,
    Message,
    RebalanceCallback,
    library,
)
from dovetail.stream.rdkafka.partitions import (
    check_each,
    known_offsets,
    metadata_of,
    numbers,
    offset_list,
    partition_list,
)
from dovetail.stream.rdkafka.records import Records

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from numpy.typing import NDArray

_log = logging.getLogger(__name__)

_ASSIGN, _REVOKE = -175, -174

# What no waiting mends: topic, group, cluster or SASL refused.
_LASTING = frozenset({29, 30, 31, 58})

_NOTHING: NDArray[np.int64] = np.empty(0, np.int64)


class GroupMetadata:
    """A member's identity in its group, for offsets sent inside a transaction."""

    def __init__(self, pointer: int) -> None:
        self.pointer = pointer
        weakref.finalize(self, library().consumer_group_metadata_destroy, pointer)

    @classmethod
    def of_group(cls, group: str) -> Self:
        """Of nobody in particular: for whoever commits without being a member."""
        return cls(library().consumer_group_metadata_new(group.encode()))


class Consumer(Client):
    """Not for several threads at once. The two callbacks run inside consume() and close().

    on_assign is called after partitions were added, on_revoke before they go; under an eager
    assignor the list may be empty. What a callback raises, consume() or close() raises.
    Nothing is committed by itself, whatever the settings say: offsets belong to transactions.
    """

    def __init__(
        self,
        config: Config,
        topic: str,
        on_assign: Callable[[list[int]], None],
        on_revoke: Callable[[list[int]], None],
    ) -> None:
        if not config.get("group.id"):
            raise ConfigError(f"a consumer of {topic} needs the Kafka setting group.id")
        self.topic = topic
        self._on_assign, self._on_revoke = on_assign, on_revoke
        self._assigned: list[int] = []
        self._held = _NOTHING
        self._mean_size = 1024.0  # bytes of a value, learnt from each batch
        self._starts: dict[int, int | None] = {}  # of partitions with nothing read since
        self._astray: set[int] = set()
        self._raised: BaseException | None = None
        # librdkafka keeps the bare pointer: the object has to live as long as the client.
        self._rebalance_callback = RebalanceCallback(self._rebalance)
        self._destroy_message = library().address("message_destroy")
        self._timestamp_of = library().address("message_timestamp")
        own = {"enable.auto.commit": False, "enable.auto.offset.store": False}
        conf = new_conf(dict(config) | own)
        library().conf_set_rebalance_cb(conf, self._rebalance_callback)
        super().__init__(CONSUMER, conf)
        self._lib.poll_set_consumer(self._handle)
        with partition_list(topic, [-1]) as topics:
            check_code(self._lib.subscribe(self._handle, topics), f"subscribing to {topic}")

    # ── reading ──────────────────────────────────────────────────────────────────────────

    def consume(self, max_records: int, timeout_s: float, max_bytes: int = 16 << 20) -> Records:
        """Wait up to timeout_s for the first record, then take at once what is there.

        Values come to at most max_bytes, or are a single larger one. Call it at least every
        max.poll.interval.ms. Passing errors are logged; a lasting or fatal one is raised, and
        nothing read is lost by that.
        """
        expected = min(max_records, int(max_bytes / self._mean_size))
        self._pop(max(1, expected - len(self._held)), 0)
        if not len(self._held) and timeout_s > 0 and self._raised is None:
            self._pop(1, milliseconds(timeout_s))
            if expected > 1 and len(self._held):
                self._pop(expected - 1, 0)
        self._raise_what_was_raised()
        return self._take(min(max_records, len(self._held)), max_bytes)

    def _pop(self, most: int, timeout_ms: int) -> None:
        popped = np.empty(most, np.int64)
        queue = self._lib.queue_get_consumer(self._handle)
        count = self._lib.consume_batch_queue(queue, timeout_ms, popped.ctypes.data, most)
        self._lib.queue_destroy(queue)
        if count <= 0:
            return
        messages = popped[:count]
        errors = kernels.failed(messages)
        if errors.any():
            for message in messages[errors].tolist():
                self._hear(message)
            messages = messages[~errors]
        self._held = np.concatenate((self._held, messages)) if len(self._held) else messages

    def _hear(self, message: int) -> None:
        """Log the error that a message carries, or keep it to be raised."""
        code, partition = Message.from_address(message).err, Message.from_address(message).partition
        reason = (self._lib.message_errstr(message) or b"").decode(errors="replace")
        self._lib.message_destroy(message)
        if code == FATAL:
            text = ctypes.create_string_buffer(512)
            code = self._lib.fatal_error(self._handle, text, len(text)) or FATAL
            self._keep(KafkaFailure(self._reading, code, text.value.decode(), fatal=True))
        elif code in _LASTING:
            self._keep(KafkaFailure(self._reading, code, reason))
        elif code == NO_OFFSET:
            _log.info("%s: partition %d: %s", self._reading, partition, reason)
            self._astray.add(partition)
        elif code != PARTITION_EOF:
            _log.warning("%s: %s", self._reading, reason or describe(code))

    def _take(self, most: int, max_bytes: int) -> Records:
        bounds = np.empty(most + 1, np.int64)
        count = kernels.measure(self._held[:most], max_bytes, bounds)
        taken, self._held = self._held[:count], self._held[count:]
        bounds = bounds[: count + 1]
        data = np.empty(bounds[-1], np.uint8)
        partitions, offsets = _locate(taken)
        timestamps = np.empty(count, np.int64)
        tombstones = np.empty(count, np.bool_)
        kernels.take(
            taken, self._timestamp_of, self._destroy_message, bounds, data, timestamps, tombstones
        )
        if count:
            self._mean_size += (max(1.0, len(data) / count) - self._mean_size) / 4
            if self._starts:
                for partition in np.unique(partitions).tolist():
                    self._starts.pop(partition, None)
        return Records(partitions, offsets, timestamps, data, bounds, tombstones)

    @property
    def astray(self) -> set[int]:
        """Partitions that stand still, under auto.offset.reset=error.

        Nothing is committed of them, or not an offset that the log has. They are read on by
        rewind(), once that is mended.
        """
        return self._astray & set(self._assigned)

    # ── positions ────────────────────────────────────────────────────────────────────────

    def positions(self) -> dict[int, int]:
        """Give the next offset by assigned partition, past all records returned so far.

        Past the transaction markers behind them, too. A partition of which nothing was returned
        since it was assigned or rewound is left out: there is nothing of it to commit.
        """
        positions = {
            partition: offset
            for partition, offset in self._librdkafka_positions().items()
            if partition not in self._starts
        }
        if len(self._held):
            partitions, offsets = _locate(self._held)
            first = np.unique(partitions, return_index=True)
            for partition, row in zip(*(column.tolist() for column in first), strict=True):
                if partition in positions:
                    positions[partition] = int(offsets[row])
        return positions

    def _librdkafka_positions(self) -> dict[int, int]:
        with partition_list(self.topic, self.assignment()) as listed:
            check_code(self._lib.position(self._handle, listed), f"position on {self.topic}")
            return known_offsets(listed)

    def committed(self, timeout_s: float = 30) -> dict[int, tuple[int, str]]:
        """Give committed offset and metadata by assigned partition, where there is one."""
        with partition_list(self.topic, self.assignment()) as listed:
            doing = f"reading committed offsets of {self.topic}"
            check_code(self._lib.committed(self._handle, listed, milliseconds(timeout_s)), doing)
            check_each(listed, doing)
            metadata = metadata_of(listed)
            return {
                partition: (offset, metadata[partition])
                for partition, offset in known_offsets(listed).items()
            }

    def rewind(self, committed: Mapping[int, tuple[int, str]], timeout_s: float = 30) -> bool:
        """Read on from what is `committed`, or from the start where nothing is.

        What was held or fetched ahead is dropped: no record of before comes after this call. True
        if no partition is paused after it.
        """
        if not self._assigned:
            return True
        starts = {
            partition: committed.get(partition, (OFFSET_BEGINNING, ""))
            for partition in self.assignment()
        }
        self._drop(list(starts))
        sought = not self._astray and self._seek(starts, timeout_s)
        if not sought:
            self._assign_anew({number: (offset, "") for number, (offset, _) in starts.items()})
        self._starts = {
            partition: offset if offset >= 0 else None for partition, (offset, _) in starts.items()
        }
        return not sought

    def _assign_anew(self, starts: dict[int, tuple[int, str]]) -> None:
        doing = f"assigning partitions of {self.topic} anew"
        with offset_list(self.topic, starts) as listed:
            if self._lib.rebalance_protocol(self._handle) == b"COOPERATIVE":
                check_error(self._lib.incremental_unassign(self._handle, listed), doing)
                check_error(self._lib.incremental_assign(self._handle, listed), doing)
            else:
                check_code(self._lib.assign(self._handle, listed), doing)
        self._astray.clear()
        self.resume(starts)

    def _seek(self, starts: dict[int, tuple[int, str]], timeout_s: float) -> bool:
        """Seek, if that can be done.

        Not while the client itself looks for where to read, nor when it has found nothing.
        """
        doing = f"rewinding {self.topic}"
        try:
            with offset_list(self.topic, starts) as listed:
                check_error(
                    self._lib.seek_partitions(self._handle, listed, milliseconds(timeout_s)), doing
                )
                check_each(listed, doing)
        except KafkaFailure as failure:
            if failure.code != STATE:
                raise
            return False
        return True

    def lag(self) -> dict[int, int]:
        """Count what is left to read by partition, as of the last fetch, where it is known yet."""
        starts = {p: offset for p, offset in self._starts.items() if offset is not None}
        lag = {}
        for partition, position in (starts | self.positions()).items():
            high = self.high_watermark(partition)
            if high is not None:
                lag[partition] = max(0, high - position)
        return lag

    def high_watermark(self, partition: int) -> int | None:
        """Give the end of a partition as of the last fetch, without asking the broker."""
        low, high = ctypes.c_int64(), ctypes.c_int64()
        code = self._lib.get_watermark_offsets(
            self._handle, self.topic.encode(), partition, ctypes.byref(low), ctypes.byref(high)
        )
        return high.value if code == 0 and high.value >= 0 else None

    # ── membership ───────────────────────────────────────────────────────────────────────

    def assignment(self) -> list[int]:
        """As of the last rebalance: to ask librdkafka takes the way to its thread and back."""
        return self._assigned

    def assignment_lost(self) -> bool:
        """Inside on_revoke: the partitions may be another member's already."""
        return bool(self._lib.assignment_lost(self._handle))

    def group_metadata(self) -> GroupMetadata:
        return GroupMetadata(self._lib.consumer_group_metadata(self._handle))

    def pause(self, partitions: Iterable[int]) -> None:
        """Fetch no more of these partitions; what is held of them still comes."""
        self._switch(self._lib.pause_partitions, partitions, "pausing")

    def resume(self, partitions: Iterable[int]) -> None:
        self._switch(self._lib.resume_partitions, partitions, "resuming")

    def _switch(
        self, call: Callable[[Any, Any], int], partitions: Iterable[int], doing: str
    ) -> None:
        with partition_list(self.topic, partitions) as listed:
            check_code(call(self._handle, listed), f"{doing} {self.topic}")
            check_each(listed, f"{doing} {self.topic}")

    def close(self) -> None:
        """Leave the group, through on_revoke; committed offsets are all that stays."""
        super().close()
        self._raise_what_was_raised()

    def _end(self) -> None:
        code = self._lib.consumer_close(self._handle)
        if code:
            self._keep(KafkaFailure(f"leaving the group of {self.topic}", code))
        kernels.discard(self._held, self._destroy_message)
        self._held = _NOTHING

    def _rebalance(self, handle: Any, event: int, listed: Any, _opaque: Any) -> None:
        cooperative = self._lib.rebalance_protocol(handle) == b"COOPERATIVE"
        try:
            if event == _ASSIGN:
                self._assign(listed, cooperative)
                self._starts |= dict.fromkeys(numbers(listed))
                self._on_assign(sorted(numbers(listed)))
            elif event == _REVOKE:
                self._revoke(listed, cooperative)
            else:
                check_code(self._lib.assign(handle, None), f"resetting {self.topic}")
                self._assigned = []
                _log.warning("rebalancing %s: %s", self.topic, describe(event))
        except BaseException as raised:  # noqa: BLE001 - C cannot pass it on; consume() does
            self._keep(raised)

    def _assign(self, listed: Any, cooperative: bool) -> None:
        doing = f"assigning partitions of {self.topic}"
        if cooperative:
            check_error(self._lib.incremental_assign(self._handle, listed), doing)
        else:
            check_code(self._lib.assign(self._handle, listed), doing)
            self._assigned = []
        self._assigned = sorted({*self._assigned, *numbers(listed)})

    def _revoke(self, listed: Any, cooperative: bool) -> None:
        doing = f"revoking partitions of {self.topic}"
        partitions = sorted(numbers(listed))
        try:
            self._on_revoke(partitions)
        finally:
            self._drop(partitions)
            self._astray.difference_update(partitions)
            for partition in partitions:
                self._starts.pop(partition, None)
            if cooperative:
                check_error(self._lib.incremental_unassign(self._handle, listed), doing)
                self._assigned = sorted(set(self._assigned).difference(partitions))
            else:
                check_code(self._lib.assign(self._handle, None), doing)
                self._assigned = []

    def _drop(self, partitions: list[int]) -> None:
        if len(self._held):
            outdated = np.isin(_locate(self._held)[0], partitions)
            kernels.discard(self._held[outdated], self._destroy_message)
            self._held = self._held[~outdated]

    # ── errors ───────────────────────────────────────────────────────────────────────────

    @property
    def is_done(self) -> bool:
        """Whether it is beyond use: closed, or its name is another process' by now."""
        return self._client is None or bool(self._lib.fatal_error(self._handle, None, 0))

    @property
    def _reading(self) -> str:
        return f"reading {self.topic}"

    def _keep(self, raised: BaseException) -> None:
        """Keep the first of what was raised where it cannot be passed on."""
        if self._raised is None:
            self._raised = raised
        else:
            _log.error("%s: one more failure", self._reading, exc_info=raised)

    def _raise_what_was_raised(self) -> None:
        raised, self._raised = self._raised, None
        if raised is not None:
            raise raised


def _locate(messages: NDArray[np.int64]) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
    partitions = np.empty(len(messages), np.int32)
    offsets = np.empty(len(messages), np.int64)
    kernels.locate(messages, partitions, offsets)
    return partitions, offsets
