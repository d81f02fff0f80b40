"""A producer of columns: one message a row, queued by a compiled loop."""

from __future__ import annotations

import ctypes
import threading
import time
from concurrent.futures import Future
from typing import TYPE_CHECKING

import numpy as np

from dovetail.stream.rdkafka import kernels
from dovetail.stream.rdkafka.client import Client, Config, milliseconds, new_conf
from dovetail.stream.rdkafka.errors import (
    QUEUE_FULL,
    TIMED_OUT,
    UNKNOWN_PARTITION,
    KafkaFailure,
    StuckError,
    check_code,
    check_error,
    failure_of,
)
from dovetail.stream.rdkafka.library import PRODUCER, UNASSIGNED_PARTITION, library
from dovetail.stream.rdkafka.partitions import offset_list

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from numpy.typing import NDArray

    from dovetail.stream.rdkafka.consumer import GroupMetadata
    from dovetail.stream.rdkafka.parcel import Parcel

    Column = tuple[NDArray[np.uint8], NDArray[np.int64]]

# rd_kafka_vtype_t, and rd_kafka_vu_t as words: the kind, then its arguments.
_TOPIC, _PARTITION, _VALUE, _KEY, _FLAGS, _HEADER = 2, 3, 4, 5, 7, 9
_WORDS = 9

# What becomes of a value's memory: librdkafka takes it over, or copies it before it returns.
_FREE, _COPY = 1, 2
_REST_OF_TRANSACTION = -1
_CONNECTED_S = 1.0
_LOOK_S = 10.0
_LOOK_MS = 10
"""So often it is looked, in the end, whether everything is delivered."""
QUEUE_MESSAGES, QUEUE_BYTES = 100_000, 24 << 20
"""What a stage's producer holds at most before whoever sends has to wait; the largest message fits.
librdkafka takes some hundred bytes for a message beside its own."""
_LATE_S = 5.0  # what librdkafka may take beyond a timeout


_late: list[Future[int | None]] = []
"""Calls of this process that have not come back in time, and may still."""


def _require_one_at_most() -> None:
    """A client that is never let go costs its buffers, threads and connections: one may."""
    _late[:] = [call for call in _late if not call.done()]
    if len(_late) > 1:
        raise StuckError(
            "the Kafka client has not come back from two calls: only a new process is rid of them"
        )


class Producer(Client):
    """Transactional where the settings have a transactional.id, else idempotent.

    A message is queued by send and send_many; that it could not be delivered is raised by
    commit() or flush() at the latest. close() lets go at once: what is neither flushed nor
    committed is lost. Not for several threads at once.
    """

    def __init__(self, config: Config, compressed: Collection[str] = ()) -> None:
        """Messages to the topics in `compressed` are packed with lz4, a batch at a time."""
        self._compressed = frozenset(compressed)
        self._produceva = library().address("produceva")
        self._undelivered = np.zeros(2, np.int64)  # how many, and the first one's code
        self._topics: dict[str, int] = {}
        self._late: Future[int | None] | None = None  # a call that has outstayed its time
        own = {"enable.idempotence": True, "delivery.report.only.error": True}
        conf = new_conf(dict(config) | own)
        library().conf_set_opaque(conf, self._undelivered.ctypes.data)
        library().conf_set_dr_msg_cb(conf, kernels.count_undelivered.address)
        super().__init__(PRODUCER, conf)

    # ── messages ─────────────────────────────────────────────────────────────────────────

    def send(
        self,
        topic: str,
        value: bytes | NDArray[np.uint8] | None,
        partition: int = UNASSIGNED_PARTITION,
        key: bytes | None = None,
        headers: Sequence[tuple[bytes, bytes]] = (),
    ) -> None:
        data, bounds = _column(b"" if value is None else value)
        self.send_many(
            topic,
            partition,
            data,
            bounds,
            keys=None if key is None else _column(key),
            headers=headers,
            tombstones=np.array([value is None]),
        )

    def give(self, topic: str, parcel: Parcel, partition: int) -> None:
        """Queue a message whose memory librdkafka takes over: the caller's no more."""
        assert parcel.address is not None
        value = _argument(_VALUE, parcel.address, len(parcel))
        message = _Message(self._topic(topic), 1, _FREE, value)
        self._queue(topic, message, np.array([partition], np.int32), np.empty(0, np.bool_), 1)
        # Not before: what is refused stays the parcel's.
        parcel.forget()

    def send_many(
        self,
        topic: str,
        partitions: int | NDArray[np.int32],
        data: NDArray[np.uint8],
        bounds: NDArray[np.int64],
        *,
        keys: Column | None = None,
        headers: Sequence[tuple[bytes, bytes | Column]] = (),
        tombstones: NDArray[np.bool_] | None = None,
    ) -> None:
        """Queue a message for each row; row i's value is data[bounds[i]:bounds[i + 1]].

        A header's value is the same in all rows or a column. Rows in `tombstones` have a null
        value. All is copied: the arrays are the caller's again. A full queue is waited out. If
        a row is refused, the rows before it are queued and the error names the row.
        """
        rows = len(bounds) - 1
        message = _Message(self._topic(topic), rows, _COPY)
        message.add_column(_VALUE, data, bounds)
        if keys is not None:
            message.add_column(_KEY, *keys)
        for name, value in headers:
            message.add_header(name, value)
        # Copies, so that the kernel sees one type of array and is compiled once.
        chosen = np.array(partitions, np.int32, ndmin=1)
        if len(chosen) not in (1, rows):
            raise ValueError(f"{len(chosen)} partitions for {rows} rows")
        nulls = np.array(() if tombstones is None else tombstones, np.bool_)
        if len(nulls) not in (0, rows):
            raise ValueError(f"{len(nulls)} tombstones for {rows} rows")
        self._queue(topic, message, chosen, nulls, rows)

    def _queue(
        self,
        topic: str,
        message: _Message,
        partitions: NDArray[np.int32],
        tombstones: NDArray[np.bool_],
        rows: int,
    ) -> None:
        arguments, columns = message.arguments(), message.columns()
        row, looked = 0, False
        while row < rows:
            row, error = kernels.produce(
                self._produceva, self._handle, arguments, partitions, tombstones, columns, row, rows
            )
            if error:
                failure = failure_of(error, f"sending row {row} to {topic}")
                if failure.code == UNKNOWN_PARTITION and not looked:
                    looked = True
                    self._look_at(topic)
                elif failure.code == QUEUE_FULL:
                    self._lib.poll(self._handle, 10)
                else:
                    raise failure
        self._lib.poll(self._handle, 0)

    def _topic(self, name: str) -> int:
        if name not in self._topics:
            conf = self._packed() if name in self._compressed else None
            pointer = self._lib.topic_new(self._handle, name.encode(), conf)
            if not pointer:
                raise KafkaFailure(f"opening topic {name}", -186)
            self._topics[name] = pointer
        return self._topics[name]

    def _packed(self) -> int:
        """The client's own settings of a topic, and compression."""
        conf: int = self._lib.default_topic_conf_dup(self._handle)
        problem = ctypes.create_string_buffer(512)
        refused = self._lib.topic_conf_set(
            conf, b"compression.codec", b"lz4", problem, len(problem)
        )
        assert not refused, problem.value.decode()
        return conf

    def flush(self, timeout_s: float) -> None:
        """Wait until everything queued is delivered; raise if something was not."""
        check_code(self._deliver(timeout_s), "flushing")
        self._raise_undelivered()

    def _deliver(self, timeout_s: float, enough: Callable[[], bool] = lambda: False) -> int:
        """Have delivered what is queued; gives librdkafka's code.

        Its own flush, that of a commit included, looks every 10 ms: it is woken by reports, and of
        what is delivered there are none. So it is called again and again, at first after 1 ms.
        """
        end = time.monotonic() + timeout_s
        code, look_ms = TIMED_OUT, 1
        while code == TIMED_OUT and not enough():
            left_ms = milliseconds(end - time.monotonic())
            code = self._lib.flush(self._handle, min(look_ms, left_ms))
            look_ms = min(_LOOK_MS, look_ms + 1)
            if not left_ms:
                break
        return code

    # ── transactions ─────────────────────────────────────────────────────────────────────

    def init_transactions(self, timeout_s: float) -> None:
        """Fence whoever used this transactional.id before, and end what it left open."""
        # Whoever looks for a coordinator before there is a broker looks again after 0.5 s.
        self.reaches_a_broker(min(timeout_s, _CONNECTED_S))
        check_error(
            self._lib.init_transactions(self._handle, milliseconds(timeout_s)),
            "starting transactions",
        )

    def _look_at(self, topic: str) -> None:
        """Hear of the partitions that a topic has got since the last look."""
        self.reaches_a_broker(_LOOK_S, self._topic(topic))

    def begin(self) -> None:
        check_error(self._lib.begin_transaction(self._handle), "beginning a transaction")

    def send_offsets(
        self,
        topic: str,
        offsets: Mapping[int, tuple[int, str]],
        group: GroupMetadata,
        timeout_s: float,
    ) -> None:
        """Make the group's next offsets, each with its metadata, part of the transaction.

        librdkafka does not look at its timeout: it waits until the group's coordinator is there,
        and for ever for one that a starting broker's metadata did not name (its issues 5456 and
        5511, open in 2.16). So another thread calls it, and keeps the client when the time is up:
        the failure is fatal, and what close() would let go goes when the call has come back.
        """
        doing = f"sending offsets of {topic}"
        answer: Future[int | None] = Future()

        def call() -> None:
            # What librdkafka looks at has to live for as long as it does: self, group, the list.
            try:
                with offset_list(topic, offsets) as listed:
                    error = self._lib.send_offsets_to_transaction(
                        self._handle, listed, group.pointer, milliseconds(timeout_s)
                    )
            except BaseException as raised:  # noqa: BLE001 - raised below, by the caller's thread
                answer.set_exception(raised)
            else:
                answer.set_result(error)

        end = time.monotonic() + timeout_s + _LATE_S
        threading.Thread(target=call, name="send-offsets", daemon=True).start()
        # Two ways to the broker at once: the commit then finds nothing left to be delivered.
        self._deliver(timeout_s, answer.done)
        try:
            error = answer.result(max(0.0, end - time.monotonic()))
        except TimeoutError:
            self._late = answer
            _late.append(answer)
            _require_one_at_most()
            raise KafkaFailure(doing, TIMED_OUT, "no answer yet", fatal=True) from None
        check_error(error, doing)

    def commit(self, timeout_s: float | None = None) -> None:
        """Deliver what is queued and commit; a retriable failure may be called again.

        Without a timeout it waits for what is left of transaction.timeout.ms, as librdkafka
        advises.
        """
        if timeout_s is not None:
            began = time.monotonic()
            self._deliver(timeout_s)
            timeout_s -= time.monotonic() - began
        check_error(self._lib.commit_transaction(self._handle, _limit(timeout_s)), "committing")
        self._raise_undelivered()

    def abort(self, timeout_s: float | None = None) -> None:
        """Drop what is queued and take back what was delivered since begin()."""
        check_error(self._lib.abort_transaction(self._handle, _limit(timeout_s)), "aborting")
        self._undelivered[:] = 0

    def _raise_undelivered(self) -> None:
        count, code = self._undelivered.tolist()
        self._undelivered[:] = 0
        if count:
            raise KafkaFailure(f"{count} messages were not delivered", code)

    def close(self) -> None:
        if self._late is None or self._client is None:
            super().close()
            return
        # For good: another close(), while that thread is at it, has nothing to let go.
        client, self._client = self._client, None

        def close(answer: Future[int | None]) -> None:
            if error := answer.result():
                self._lib.error_destroy(error)
            self._end()
            self._lib.destroy(client)

        # By the thread that is inside, as its last act.
        self._late.add_done_callback(close)

    def _end(self) -> None:
        for pointer in self._topics.values():
            self._lib.topic_destroy(pointer)
        self._topics.clear()


class _Message:
    """The argument list of rd_kafka_produceva, and which of its words change with the row.

    Keeps every buffer alive whose address it has taken.
    """

    def __init__(self, topic: int, rows: int, flags: int, *others: tuple[int, ...]) -> None:
        self._rows = rows
        self._kept: list[object] = []
        self._columns: list[tuple[int, int, int]] = []
        self._arguments = [
            _argument(_TOPIC, topic),
            _argument(_PARTITION),
            _argument(_FLAGS, flags),
            *others,
        ]

    def add_column(
        self, kind: int, data: NDArray[np.uint8], bounds: NDArray[np.int64], *first: int
    ) -> None:
        data = np.ascontiguousarray(data, np.uint8)
        bounds = np.ascontiguousarray(bounds, np.int64)
        _require_bounds(data, bounds, self._rows)
        slot = _WORDS * len(self._arguments) + 1 + len(first)
        self._columns.append((slot, data.ctypes.data, bounds.ctypes.data))
        self._arguments.append(_argument(kind, *first))
        self._kept += [data, bounds]

    def add_header(self, name: bytes, value: bytes | Column) -> None:
        label = np.frombuffer(name + b"\0", np.uint8)
        self._kept.append(label)
        if isinstance(value, bytes):
            data, bounds = _column(value)
            self._kept.append(data)
            self._arguments.append(
                _argument(_HEADER, label.ctypes.data, data.ctypes.data, int(bounds[1]))
            )
        else:
            self.add_column(_HEADER, *value, label.ctypes.data)

    def arguments(self) -> NDArray[np.int64]:
        return np.array(self._arguments, np.int64)

    def columns(self) -> NDArray[np.int64]:
        return np.array(self._columns, np.int64).reshape(-1, 3)


def _argument(kind: int, *words: int) -> tuple[int, ...]:
    return (kind, *words, *(0,) * (_WORDS - 1 - len(words)))


def _column(value: bytes | NDArray[np.uint8]) -> Column:
    return np.frombuffer(value, np.uint8), np.array([0, len(value)], np.int64)


def _require_bounds(data: NDArray[np.uint8], bounds: NDArray[np.int64], rows: int) -> None:
    """Wrong bounds would read foreign memory."""
    if len(bounds) != rows + 1:
        raise ValueError(f"{len(bounds)} bounds for {rows} rows")
    if bounds[0] < 0 or bounds[-1] > len(data) or np.any(bounds[1:] < bounds[:-1]):
        raise ValueError(f"bounds do not rise within 0..{len(data)}")


def _limit(timeout_s: float | None) -> int:
    return _REST_OF_TRANSACTION if timeout_s is None else milliseconds(timeout_s)
