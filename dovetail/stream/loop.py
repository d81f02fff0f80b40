"""The one consume–work–produce loop, which every stage runs.

A step, all of it one Kafka transaction:

    1. consume what has arrived, at most a batch
    2. begin the transaction
    3. let the handler work and send its output
    4. send the offsets, with the ledger beside them, into the transaction
    5. commit: output, offsets and counts become visible together, or never

A handler may hold records beyond their step (the disk phase does): it says which offsets can be
committed, steps go on without new records while it has work, and nothing is consumed while it has
no room. What it holds is never more than what can be read again: it is dropped with an undone step,
and when partitions move to another node. One that takes little at a time, for want of memory, takes
several times in a step.

A step ends when there is nothing more to take. Between two of them records gather for as long as
keeps transactions to their share of the stage's time (docs/decisions/0042).

While it is paused nothing more is consumed; what a handler holds is answered, the partitions stay
this process's, and nobody notices but who waits for outputs. Paused, it can be told to read on from
earlier offsets: they are committed with the ledger as it is, so that what comes again is counted
again.

A step that fails is aborted and read again. What failed decides how:

    abortable             the same producer goes on
    fatal, fenced, or the a new producer takes over the transactional id; whatever the
    outcome is unknown    old one may have had under way is settled by that
    broker or database    the step is tried again after a pause, until it is there
    away
    a permission is       the process ends, and says which
    missing
    the consumer is done  the process ends, and whoever supervises it starts it anew: another
    or anything else      process has its name, or it is a bug
"""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter
from contextlib import closing, suppress
from typing import TYPE_CHECKING

from dovetail.errors import Unavailable
from dovetail.permissions import Operation, Permission, Resource
from dovetail.stream import ledger as outcome
from dovetail.stream.acls import refusal
from dovetail.stream.handler import A_LOT, Pace
from dovetail.stream.ledger import Ledger
from dovetail.stream.places import AstrayError, new_places
from dovetail.stream.rdkafka import Consumer, KafkaFailure, Records
from dovetail.stream.rdkafka.errors import TIMED_OUT
from dovetail.stream.takeover import (
    RECONNECT_MS,
    TRANSACTION_S,
    Written,
    abort_forgotten,
    absent,
    members,
    producer_of,
)
from dovetail.stream.topics import admin_of, answers, spans

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from dovetail.settings import Settings
    from dovetail.stream.handler import Handler, Move, Step
    from dovetail.stream.places import Place
    from dovetail.topology import Stage

log = logging.getLogger(__name__)

_TIMEOUT_S = 30.0
_UNSETTLED_S = 60.0
"""For so long offsets can pend that are not lost: a transaction whose producer is gone is aborted
within its time and ten seconds more."""
_NEW_PARTITIONS_MS = 10_000
_IDLE_S = 0.1
"""What comes ends the wait: so often a stage to which nothing comes makes a turn."""
_LOOK_EVERY_S = 5.0
"""So often a stage to which nothing comes asks whether the broker is there."""
_ANSWER_S = 3.0
_ABSENT_S = 0.5
"""So often it is looked whether the broker is back."""
_PAUSES_S = (0.1, 0.5, 1.0, 2.0, 5.0)
_HALTED_S = 1.0
_LASTING_S = 1.0
"""A handler that has no room for so long has its partitions paused. Not before: what is fetched
ahead would be dropped, and fetched again."""


class Loop:
    def __init__(
        self,
        stage: Stage,
        group: str,
        settings: Settings,
        handler: Handler,
        step: Step,
        committed: Callable[[Counter[str], float], None],
    ) -> None:
        self.stage = self._stage = stage
        self._settings = settings
        self._handler = handler
        self._size = step
        self._committed = committed
        self._member = f"{group}.{settings.node}"
        self._group = group
        self._written = Written(stage.writes, group, stage.reads)
        self._ledger = Ledger()
        self._opened: set[int] = set()
        self._paused: set[int] = set()
        self._full_since: float | None = None
        self._read_again = False
        self._moved = False
        self._rebalanced = False
        self._placed = False
        self._stopping = threading.Event()
        self._failures = 0
        self._step_started = 0.0
        self._step_ended = 0.0
        self._taken = 0
        self._pace = Pace()
        self._was_full = False
        self._worked_s = 0.0
        self._spoilt = False
        self._known: set[str] = set()
        self._looked_at = 0.0
        self._turned_at: float | None = None
        self.counts: Counter[str] = Counter()
        """Events by outcome, committed by this process."""
        self.lag = 0
        """Records behind the end of the partitions held, as of the last fetch."""
        self.reason = "starting"
        """Why it is not ready; empty when it is."""
        self.paused = False
        """Whether nothing more is to be consumed; set from any thread."""
        self.move: Move | None = None
        """Where to read on once it is paused; set from any thread."""
        self.resting = False
        """Whether nothing came in its last turn, and nothing is left to do."""
        self.halted = False
        """Whether it reads nothing until somebody has moved the offsets, for `reason`."""

    @property
    def partitions(self) -> list[int]:
        """Those that it reads."""
        return sorted(self._opened)

    @property
    def ready(self) -> bool:
        return not self.reason

    @property
    def spare(self) -> bool:
        """Whether it is in its group, which has no partition for it."""
        return self._placed and not (self._opened or self._consumer.assignment())

    @property
    def still_s(self) -> float:
        """For how long it has neither made a turn nor known what it waits for."""
        return 0.0 if self._turned_at is None else time.monotonic() - self._turned_at

    def stop(self) -> None:
        """End after the step under way."""
        self._stopping.set()

    def run(self) -> None:
        try:
            self._run()
        except Unavailable as error:
            if isinstance(error, KafkaFailure) and error.refused:
                raise refusal(self._settings, error, self._needed()) from error
            # Whoever waits for the broker stops at once, with nothing to finish.
            if not self._stopping.is_set():
                raise

    def _needed(self) -> Iterator[Permission]:
        """What a step needs of the broker (permissions.py has all that a service does)."""
        yield Permission(Resource.GROUP, self._group, Operation.READ)
        yield Permission(Resource.TRANSACTIONAL_ID, self._member, Operation.WRITE)
        yield Permission(Resource.TOPIC, self._stage.reads.name, Operation.READ)
        for topic in self._stage.writes:
            yield Permission(Resource.TOPIC, topic.name, Operation.WRITE)

    def _run(self) -> None:
        self._turned_at = time.monotonic()
        self._consumer = self._new_consumer()
        with closing(self._handler):
            try:
                self._patiently(self._new_producer)
                try:
                    while not self._stopping.is_set():
                        self._turn()
                finally:
                    # Not closing it cleanly is fine: nothing is open between steps.
                    self._producer.close()
            finally:
                self._consumer.close()

    def _new_consumer(self) -> Consumer:
        return Consumer(
            self._settings.client(
                {
                    "group.id": self._group,
                    "group.instance.id": self._member,
                    "client.id": self._member,
                    "isolation.level": "read_committed",
                    # Where nothing is committed, or not what is there, we say where to read.
                    "auto.offset.reset": "error",
                    "enable.auto.commit": False,
                    "partition.assignment.strategy": "cooperative-sticky",
                    # Others take the partitions over of a node that is lost. Where there are no
                    # others, whoever is started again finds its membership as it was.
                    "session.timeout.ms": 6_000 if self._stage.per_node else 45_000,
                    "heartbeat.interval.ms": 1_500,
                    "reconnect.backoff.max.ms": RECONNECT_MS,
                    # How soon partitions are noticed that were added to the topic.
                    "topic.metadata.refresh.interval.ms": _NEW_PARTITIONS_MS,
                    # What comes ends the wait; it is only how often the broker is asked in vain.
                    "fetch.wait.max.ms": 100,
                    # After a full queue; a whole second, otherwise, with nothing to work on.
                    "fetch.queue.backoff.ms": 20,
                    "fetch.message.max.bytes": A_LOT,
                    "fetch.max.bytes": max(A_LOT, self._size.max_bytes),
                    # Not less than one fetch may bring, or the next would have to wait.
                    "queued.max.messages.kbytes": max(A_LOT, self._size.max_bytes) >> 10,
                    "queued.min.messages": 200_000,
                }
            ),
            self._stage.reads.name,
            self._assign,
            self._revoke,
        )

    def _turn(self) -> None:
        self._worked_s = 0.0
        try:
            busy = self._handler.busy
            if not busy:
                self._linger()
            # Step 1
            records = self._arrived(0.0 if busy else _IDLE_S)
            if self._read_again:
                self._read_from_committed()
                return
            if self._begins_anew():
                return
            self.halted = False
            self._handler.between_steps()
            if len(records) or self._handler.busy:
                self._step(records)
                self.resting = False
            elif self.paused and self._move_back():
                return
            else:
                self.resting = bool(self._opened) and not self._handler.waits
            self._failures = 0
            self._turned_at = time.monotonic()
            self.lag = sum(self._consumer.lag().values())
            self._handler.behind(self.lag)
            self.reason = self._waiting_for(idle=not len(records))
        except Unavailable as error:
            # Before anything is taken over.
            if self._is_lasting(error):
                raise
            self._recover(error)

    def _waiting_for(self, *, idle: bool) -> str:
        """Why it is not ready. To whom nothing comes, nobody says that the broker is away."""
        now = time.monotonic()
        if idle and now - self._looked_at > _LOOK_EVERY_S:
            if not self._consumer.reaches_a_broker(_ANSWER_S):
                self._sit_out()
            self._looked_at = time.monotonic()
        return self._handler.waiting_for() if self._opened else "waiting for partitions"

    def _sit_out(self) -> None:
        """Wait for a broker that is away, out of the group, and join it anew.

        A consumer that outlives its session there comes back under a new id while its heartbeat
        has still the old one: it is fenced by itself, and beyond use (librdkafka 2.16).
        """
        self.reason = f"waiting for the Kafka broker at {self._settings.bootstrap}"
        with suppress(KafkaFailure):
            self._consumer.close()
        while not self._stopping.is_set() and not answers(self._settings, _ANSWER_S):
            self._turned_at = time.monotonic()  # to wait for what is away is not to be stuck
            self._stopping.wait(_ABSENT_S)
        self._turned_at = time.monotonic()
        if self._stopping.is_set():
            raise Unavailable(self.reason)
        log.info("the broker is back")
        self._consumer = self._new_consumer()

    def _linger(self) -> None:
        """Let records gather: a transaction costs the same for one event as for thousands.

        For as long as that keeps transactions to their share of the time, counted from the start
        of the last step: what comes after a while of nothing is not waited for. Not behind a full
        step: more are there than the next one can take.
        """
        rest = self._step_started + self._size.pause(self._pace) - time.monotonic()
        if rest > 0 and not self._was_full:
            self._stopping.wait(rest)

    def _arrived(self, timeout_s: float) -> Records:
        """What has come, at most a batch; nothing while the handler has no room."""
        now = time.monotonic()
        if not self._handler.full:
            self._full_since = None
        elif self._full_since is None:
            self._full_since = now
        lasting = self._full_since is not None and now - self._full_since > _LASTING_S
        self._pause_or_resume(pause=lasting or self.paused)
        if self._full_since is None or lasting:
            return self._consume(timeout_s)
        if timeout_s:
            self._stopping.wait(timeout_s)
        return Records.none()

    def _consume(self, timeout_s: float) -> Records:
        return self._consumer.consume(self._size.max_records, timeout_s, self._size.max_bytes)

    def _step(self, records: Records) -> None:
        started = self._step_started = time.monotonic()
        self._was_full = self._size.is_full(records)
        # Step 2
        self._producer.begin()
        # Step 3
        try:
            touched = self._work(records)
        finally:
            self._worked_s = time.monotonic() - started
        # Step 4
        offsets = self._handler.offsets(self._consumer.positions(), touched)
        if offsets:
            self._send_offsets(offsets)
        # Step 5
        self._producer.commit(_TIMEOUT_S)
        counts = self._ledger.commit()
        self.counts.update(counts)
        ended = time.monotonic()
        self._pace.note(self._taken, self._worked_s, ended - started, ended - self._step_ended)
        self._step_ended = ended
        self._committed(counts, ended - started)

    def _send_offsets(self, offsets: dict[int, int]) -> None:
        self._producer.send_offsets(
            self._stage.reads.name,
            {
                partition: (offset, self._ledger.text(partition))
                for partition, offset in offsets.items()
            },
            self._consumer.group_metadata(),
            _TIMEOUT_S,
        )

    def _work(self, records: Records) -> set[int]:
        """Let the handler work on these records, and on more that is there while it is hungry.

        Gives the partitions that they came from.
        """
        self._taken = 0
        self._moved = False
        touched: set[int] = set()
        while True:
            self._taken += len(records.data)
            touched.update(records.partitions.tolist())
            self._handler.handle(records, self._producer, self._ledger)
            taken_for = time.monotonic() - self._step_started
            over = taken_for > self._size.longest(self._taken)
            if over or self.paused or not self._handler.hungry:
                return touched
            records = self._consume(0.0)
            if self._moved:
                raise Unavailable("partitions moved in the middle of a step")
            if not len(records):
                return touched

    def _move_back(self) -> bool:
        """Commit the offsets that are ordered, beside the ledger as it is, and read from there."""
        if (move := self.move) is None:
            return False
        due = {
            partition: offset
            for partition, offset in move.offsets.items()
            if partition in self._opened and self._ledger.moved(partition) < move.number
        }
        if not due:
            return False
        for partition in due:
            self._ledger.set_moved(partition, move.number)
        self._producer.begin()
        self._send_offsets(due)
        self._producer.commit(_TIMEOUT_S)
        log.info("reading on from elsewhere", extra={"offsets": due, "number": move.number})
        self._read_from_committed()
        return True

    def _recover(self, error: Unavailable) -> None:
        """Undo the step under way, so that its records are read again."""
        self._ledger.abort()
        self._spoilt = isinstance(error, KafkaFailure) and not error.abortable
        self._tell_and_wait(error)
        self._patiently(self._end_transaction)
        self._patiently(self._read_from_committed)

    def _patiently(self, do: Callable[[], None]) -> None:
        """Do what needs the broker, as often as it takes: one that is away comes back."""
        while True:
            try:
                do()
            except Unavailable as error:
                if self._is_lasting(error) or self._stopping.is_set():
                    raise
                self._tell_and_wait(error)
            else:
                return

    def _is_lasting(self, error: Unavailable) -> bool:
        """Whether no other try helps. If the consumer is done, all of it may be another's."""
        return self._consumer.is_done or (isinstance(error, KafkaFailure) and error.refused)

    def _tell_and_wait(self, error: Unavailable) -> None:
        """Say why there is no turn. To wait for what is away is not to be stuck."""
        self.reason = self._why(error)
        if not isinstance(error, KafkaFailure):
            self._turned_at = time.monotonic()
        elif not self._consumer.reaches_a_broker(_ANSWER_S):
            log.warning("the broker is away", extra={"reason": self.reason})
            self._sit_out()
            return
        pause = _PAUSES_S[min(self._failures, len(_PAUSES_S) - 1)]
        self._failures += 1
        log.warning("step undone, trying again", extra={"reason": self.reason, "pause_s": pause})
        self._stopping.wait(pause)

    def _why(self, error: Unavailable) -> str:
        """Say what failed; the broker ends a transaction for which too much was done."""
        if self._worked_s < TRANSACTION_S:
            return str(error)
        return (
            f"a step's own work took {self._worked_s:.0f} s, but the broker ends a transaction "
            f"after {TRANSACTION_S:.0f} s: {error}"
        )

    def _begins_anew(self) -> bool:
        """Whether partitions are read from elsewhere, or nothing is: what was consumed is not."""
        try:
            return self._open_partitions()
        except AstrayError as astray:
            if not (self.paused and self._move_back()):
                self._write_down(astray)
                self._halt(astray)
            return True

    def _write_down(self, astray: AstrayError) -> None:
        """Commit where logs end that were cut: once they have grown nothing else tells."""
        new = {one: cut for one, cut in astray.cut.items() if one not in self._ledger.cut}
        if not new:
            return
        for partition, cut in new.items():
            self._ledger.set_cut(partition, cut.end)
        self._producer.begin()
        self._send_offsets({partition: cut.committed for partition, cut in new.items()})
        self._producer.commit(_TIMEOUT_S)

    def _halt(self, astray: AstrayError) -> None:
        """Read nothing, and say why, until somebody has moved the offsets."""
        if self.reason != str(astray):
            log.critical("nothing is read", extra={"reason": str(astray)})
        self.reason = str(astray)
        self.halted = self.resting = self._read_again = True
        self._turned_at = time.monotonic()  # no restart helps
        self._stopping.wait(_HALTED_S)

    def _read_from_committed(self) -> None:
        """Read again what is not committed; the ledger goes back with it."""
        self._read_again = False
        self._look_around()
        if self._consumer.rewind(self._settled()):
            self._paused.clear()
        self._handler.drop()
        self._opened.clear()

    def _pause_or_resume(self, *, pause: bool) -> None:
        """Fetch nothing while the handler has no room for long."""
        if not pause and not self._paused:
            return
        held = set(self._consumer.assignment())
        wanted = held if pause else set()
        self._paused &= held
        if stop := wanted - self._paused:
            self._consumer.pause(stop)
        if go_on := self._paused - wanted:
            self._consumer.resume(go_on)
        self._paused = wanted

    def _end_transaction(self) -> None:
        """Abort it, or let a new producer do so whose id it is then."""
        if not self._spoilt:
            try:
                self._producer.abort(_TIMEOUT_S)
                abort_forgotten(self._settings, self._producer, self._written)
            except KafkaFailure as failure:
                log.warning("abort failed, taking a new producer", extra={"reason": str(failure)})
            else:
                return
        self._spoilt = True
        self._producer.close()
        self._new_producer()

    def _new_producer(self) -> None:
        self._producer = producer_of(self._settings, self._member, self._written)
        self._spoilt = False

    def _assign(self, partitions: list[int]) -> None:
        log.info("partitions assigned", extra={"partitions": partitions})
        self._moved = self._rebalanced = True
        if self.paused and partitions:
            # At once: what is fetched of them before the next turn would be worked on.
            self._consumer.pause(partitions)
            self._paused.update(partitions)
        self._placed = True
        self._handler.assign(partitions)

    def _revoke(self, partitions: list[int]) -> None:
        log.info("partitions revoked", extra={"partitions": partitions})
        self._moved = self._rebalanced = True
        for partition in partitions:
            self._ledger.close(partition)
        self._opened.difference_update(partitions)
        self._paused.difference_update(partitions)
        self._handler.revoke(partitions)
        # What is held of the others is dropped with it, and read again: it cannot be told apart.
        self._read_again |= self._handler.holds

    def _settled(self) -> dict[int, tuple[int, str]]:
        """Read what is committed.

        Offsets that pend for longer than any transaction lasts are of one that the broker has
        forgotten to end (docs/decisions/0025). If it was ours, to recover ends it; if it was that
        of a node which never came back, somebody has to take its place for a moment.
        """
        if not self._consumer.assignment():
            return {}
        try:
            return self._consumer.committed(_UNSETTLED_S)
        except KafkaFailure as failure:
            if failure.code == TIMED_OUT:
                self._take_over_absent()
            raise

    def _take_over_absent(self) -> None:
        names = absent(self._settings, self._written)
        log.warning("offsets pend: ending what absent nodes left open", extra={"ids": names})
        for name in names:
            producer_of(self._settings, name, self._written).close()

    def _look_around(self) -> None:
        """After a rebalance, see who is there.

        End what nodes left open that were members before: nobody has to wait for their time.
        """
        if not self._rebalanced:
            return
        present = members(self._settings, self._written)
        lost = sorted(self._known - present)
        if lost:
            log.info("taking over from nodes that are lost", extra={"ids": lost})
        for name in lost:
            producer_of(self._settings, name, self._written).close()
        self._known = present | {self._member}
        self._rebalanced = False

    def _open_partitions(self) -> bool:
        """Read the ledger of newly assigned partitions, before anything is added to it.

        True if some of them are read from elsewhere than was committed, and all of them anew.
        """
        self._look_around()
        held, astray = set(self._consumer.assignment()), self._consumer.astray
        if held == self._opened and not astray:
            return False
        committed = self._settled()
        new = (held - self._opened) | astray
        for partition in new:
            self._ledger.open(partition, committed.get(partition, (0, ""))[1])
        self._opened = held
        at = {one: committed[one][0] if one in committed else None for one in sorted(new)}
        there = spans(admin_of(self._settings), self._stage.reads)
        if places := new_places(self._stage.reads, at, there, self._ledger.cut):
            self._begin(places)
        if places or astray:
            self._read_from_committed()
            return True
        for partition in sorted(new):
            self._handler.open(partition, self._ledger)
        return False

    def _begin(self, places: dict[int, Place]) -> None:
        """Commit where partitions are read from, with what was lost of them."""
        started = time.monotonic()
        for partition, place in places.items():
            lost = place.lost
            if lost:
                lost -= self._handler.answered_below(partition, place.offset, self._ledger)
                log.error(
                    "events were deleted before they were read: keep them longer (retention.ms)",
                    extra={"partition": partition, "events": lost, "from": place.offset},
                )
            self._ledger.add(partition, outcome.IN, lost)
            self._ledger.add(partition, outcome.LOST, lost)
        self._producer.begin()
        self._send_offsets({partition: place.offset for partition, place in places.items()})
        self._producer.commit(_TIMEOUT_S)
        if counts := self._ledger.commit():
            self.counts.update(counts)
            self._committed(counts, time.monotonic() - started)
