"""The whole pipeline as one Structured Streaming application: `dovetail spark enrich`.

    source ─► decode, a task a partition ─► by slot to its node ─► enrich, a task a node ─► topics

Topics, bytes and headers are those of the services. What is answered is known by the slots' states
in Kafka alone (enrich_commit.py): Spark's checkpoint is scratch, and a start, whatever happened
before, reads from the least position of all slots. A batch is answered to its end.

A query that fails is started again after a pause, as a run of its own. So it is when control orders
something else (enrich_orders.py): another revision, another place to read from, or to rest.
"""

from __future__ import annotations

import json
import logging
import pickle
import signal
import threading
import time
from collections import Counter
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException

from dovetail.errors import ConfigError, SlowError, Unavailable
from dovetail.join.line import CrowdedError
from dovetail.pipeline.check import require_master
from dovetail.pipeline.spec import Engine
from dovetail.service import logs
from dovetail.stream import ledger
from dovetail.stream.acls import settle_topics
from dovetail.stream.engines import left_by_services
from dovetail.stream.forgotten import require_states
from dovetail.stream.places import AstrayError
from dovetail.stream.slot_state import beginnings
from dovetail.stream.topics import admin_of, ends, partitions_of, spans
from dovetail.topology import ENRICH, Topology
from services.disk_phase.settings import budget as disk_budget
from services.spark import enrich_arrow, enrich_decode, enrich_node
from services.spark.enrich_arrow import ArrowLimit
from services.spark.enrich_commit import note_states, take_over, write_states
from services.spark.enrich_node import Job, Report
from services.spark.enrich_orders import EnrichOrders
from services.spark.enrich_overload import BatchGuard
from services.spark.enrich_places import placed
from services.spark.enrich_service import EnrichService
from services.spark.enrich_size import BatchSize
from services.spark.kafka import kafka_options
from services.spark.scratch import Scratch, local_folder, unwritable
from services.spark.session import is_local

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Mapping
    from contextlib import AbstractContextManager
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from dovetail.pipeline.spec import Pipeline
    from dovetail.settings import Settings
    from dovetail.stream.handler import Move
    from dovetail.stream.slot_state import SlotState
    from services.spark.enrich_look import Question, Said
    from services.spark.runs import Run
    from services.spark.settings import SparkSettings

log = logging.getLogger(__name__)

_PAUSES_S = (1.0, 2.0, 5.0, 10.0)
_LOOK_EVERY_S = 0.2
_NEW_PARTITIONS_S = 10.0
"""So often it is looked whether the source has got more of them."""
_IDLE = "Waiting for data to arrive"
"""What Spark says of a query that has nothing to do."""
_ASKED_WITHIN_S = 5.0
_SCANS = 4
"""So many times what the nodes' memory holds is a batch: it then reads R so often, and what Spark
takes for a batch itself, however small, is paid by many events."""
_HELD_AN_EVENT = 256
_OPTIONS = {
    # One job a batch: there is nothing to adapt in a plan of one small shuffle.
    "spark.sql.adaptive.enabled": "false",
    # Large Arrow batches: the way to Python costs by the batch, and events are small.
    "spark.sql.execution.arrow.maxRecordsPerBatch": "20000",
    # Scratch need not appear atomically; the usual way starts a process for every file.
    "spark.sql.streaming.checkpointFileManagerClass": "org.apache.spark.sql.execution.streaming."
    "checkpointing.FileSystemBasedCheckpointFileManager",
    "spark.sql.streaming.checkpoint.fileChecksum.enabled": "false",
    # How soon it is looked again whether events have come.
    "spark.sql.streaming.pollingDelay": "50ms",
}
_LEAST_BATCH, _MOST_BATCH = 50_000, 500_000
_MORE_CAUTION = 4
"""So much fewer events are let in where answers did not find room in line, each time again."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--batch", type=int, help="events a batch at most; else by the memory")


def run(
    settings: SparkSettings,
    pipeline: Pipeline,
    spark: SparkSession,
    run: Run,
    args: argparse.Namespace,
) -> None:
    logs.configure(service=ENRICH, node=0)
    logging.getLogger("py4j").setLevel(logging.WARNING)
    if pipeline.engine is not Engine.SPARK:
        raise ConfigError(
            f"{pipeline.name} is run by the services: write engine: spark in its file, or set "
            f"DOVETAIL_ENGINE=spark"
        )
    for link in map(pipeline.link, range(1, pipeline.links + 1)):
        if link.master.snapshot is None:
            require_master(link, settings.database_url)
    settle_topics(settings, Topology(pipeline), ENRICH)
    orders = EnrichOrders(settings, args.pipeline or settings.pipeline, pipeline)
    stopping = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stopping.set())
    counts: Counter[str] = Counter()
    with EnrichService(settings, orders.standing, stopping) as service, orders:

        def note(reports: list[Report], seconds: float, figures: Mapping[str, float]) -> None:
            service.note(reports, seconds, figures)
            for report in reports:
                counts.update(report.counts)
            for name in (ledger.IN, ledger.ENRICHED, ledger.UNMATCHED, ledger.OUTPUTS):
                run.figure(name, float(counts[name]))

        def build(pipeline: Pipeline) -> Enrichment:
            return Enrichment(settings, pipeline, spark, note, args.batch or batch_events(pipeline))

        keep_running(build, orders, stopping, run.require, service)
    if service.failure is not None:
        raise service.failure


def batch_events(pipeline: Pipeline) -> int:
    """How many events a batch has at most."""
    held = pipeline.nodes * disk_budget(pipeline) // _HELD_AN_EVENT
    return min(max(_SCANS * held, _LEAST_BATCH), _MOST_BATCH)


def keep_running(
    build: Callable[[Pipeline], Enrichment],
    orders: EnrichOrders,
    stopping: threading.Event,
    require: Callable[[], None],
    service: EnrichService,
) -> None:
    """Run as ordered until told to stop; what fails is tried again after a pause."""
    failures = 0
    trouble = ""
    application = build(orders.standing.revision.pipeline)
    service.ask = application.ask
    while not stopping.is_set():
        standing = orders.standing
        if standing.revision.pipeline != application.pipeline:
            application = build(standing.revision.pipeline)
            service.ask = application.ask
        answered = application.batches
        try:
            require()
            if standing.move:
                application.move(standing.move)
            if not standing.rests:
                application.start()
            service.obeys(standing, trouble)
            while not stopping.wait(_LOOK_EVERY_S):
                latest = orders.standing
                if not latest.is_like(standing):
                    service.trouble = "it ends a batch, to go on as it was ordered to"
                    break
                if not standing.rests:
                    application.check()
                trouble = _still(trouble, application, answered)
                service.obeys(latest, trouble)
        except (Unavailable, PySparkException) as error:
            if application.batches > answered:
                failures = 0
            pause = _PAUSES_S[min(failures, len(_PAUSES_S) - 1)]
            failures += 1
            service.trouble = trouble = _cause(error)
            log.warning("batch undone, trying again", extra={"reason": trouble, "pause_s": pause})
            stopping.wait(pause)
        finally:
            application.stop()


def _still(trouble: str, application: Enrichment, answered: int) -> str:
    """What a batch has failed by, until another is answered, or none waits."""
    return "" if not trouble or application.works(answered) else trouble


class Enrichment:
    """The streaming query of one pipeline; `note` is told what each batch did and took."""

    def __init__(
        self,
        settings: Settings,
        pipeline: Pipeline,
        spark: SparkSession,
        note: Callable[[list[Report], float, Mapping[str, float]], None],
        batch: int,
    ) -> None:
        self._settings = settings
        self.pipeline = pipeline
        self._topology = Topology(pipeline)
        self._spark = spark
        self._note = note
        self._size = BatchSize(batch)
        self._guard = threading.Lock()
        self._stopping = False
        self._query: StreamingQuery | None = None
        self._scratch: Scratch | None = None
        self._job: Job | None = None
        self._caution = 1
        self._partitions = 0
        self._looked = time.monotonic()
        self._settled = False
        self._arrow = ArrowLimit(batch)
        # A cluster may lose a machine, and run a stage again, of which no task is told.
        self._is_local = is_local(str(spark.sparkContext.master))
        self._overload: BatchGuard | None = None
        if pipeline.overload is not None:
            there = partial(ends, admin_of(settings), self._topology.source)
            self._overload = BatchGuard(pipeline.overload, there, batch)
        self.batches = 0
        """Committed so far."""

    def start(self) -> None:
        """Take the pipeline over and begin where its slots are."""
        self._job, committed = self._take_over()
        source = self._topology.source
        self._partitions = self._job.pipeline.source.partitions
        states = self._placed(self._job, committed)
        positions = beginnings(states.values(), self._partitions)
        if self._overload:
            self._overload.begin(positions)
            self._overload.most_events = self._size.events
        self._stopping = self._settled = False
        self._arrow.begin()
        for option, value in _OPTIONS.items():
            self._spark.conf.set(option, value)
        self._scratch = Scratch(local_folder(self._spark), "dovetail-enrich")
        stream = (
            self._spark.readStream.format("kafka")
            .options(**kafka_options(self._settings))
            .option("assign", json.dumps({source.name: list(positions)}))
            .option("startingOffsets", json.dumps({source.name: positions}))
            .option("maxOffsetsPerTrigger", self._size.events)
            .option("kafka.isolation.level", "read_committed")
            .option("kafka.max.poll.records", 20_000)
            .option("kafka.max.partition.fetch.bytes", 8 << 20)
            # As the system sizes it: 64 KiB, as usual, are filled and waited for at every turn.
            .option("kafka.receive.buffer.bytes", -1)
            .load()
        )
        self._query = self._started(stream, self._scratch.path / "checkpoint")

    def _started(self, stream: DataFrame, checkpoint: Path) -> StreamingQuery:
        writer = stream.writeStream.foreachBatch(self._work)
        try:
            return writer.option("checkpointLocation", f"file://{checkpoint}").start()
        except Py4JJavaError as error:
            # All that is done at once is to begin the checkpoint.
            raise unwritable(checkpoint, error.java_exception.toString()) from error

    def move(self, move: Move) -> None:
        """Let all slots read on from elsewhere, unless they do so by the same order already."""
        job, committed = self._take_over()
        states = self._states(job, committed)
        moved = {slot: state.moved(move.number, move.offsets) for slot, state in states.items()}
        if moved != states:
            write_states(self._settings, self._topology, job.run, moved)
            log.info(
                "reading on from elsewhere",
                extra={"offsets": move.offsets, "number": move.number},
            )

    def _take_over(self) -> tuple[Job, dict[int, SlotState]]:
        """Begin a run; also what slots have committed."""
        settle_topics(self._settings, self._topology, ENRICH)
        run, states = take_over(self._settings, self._topology)
        begun = len(states) == self.pipeline.slots
        left = {} if begun else left_by_services(self._settings, self._topology)
        job = Job(self._settings, self._as_it_is(), run, left, self._caution)
        return job, states

    def _states(self, job: Job, committed: dict[int, SlotState]) -> dict[int, SlotState]:
        """What every slot has behind it."""
        return {slot: job.state(committed.get(slot)) for slot in range(self.pipeline.slots)}

    def _as_it_is(self) -> Pipeline:
        """The pipeline with as many source partitions as there are now."""
        partitions = partitions_of(admin_of(self._settings), self._topology.source)
        source = self.pipeline.source.model_copy(update={"partitions": partitions})
        return self.pipeline.model_copy(update={"source": source})

    def check(self) -> None:
        """Raise what the query has ended by, if it has; begin anew if partitions were added."""
        assert self._query is not None
        error = self._query.exception()
        if error is not None:
            raise error
        if not self._query.isActive:
            raise Unavailable("the streaming query has ended by itself")
        if self._size.may_grow:
            self._size.grow()
            self._begin_anew(f"batches have up to {self._size.events} events again")
        now = time.monotonic()
        if now - self._looked < _NEW_PARTITIONS_S:
            return
        self._looked = now
        if partitions_of(admin_of(self._settings), self._topology.source) > self._partitions:
            self._begin_anew("partitions added to the source")

    def _begin_anew(self, why: str) -> None:
        log.info("beginning anew", extra={"reason": why})
        self.stop()
        self.start()

    def works(self, answered: int) -> bool:
        """Whether more batches than so many are answered, or none waits, or it is to rest."""
        query = self._query
        return self.batches > answered or query is None or query.status["message"] == _IDLE

    def stop(self) -> None:
        """End when the batch under way is committed; a later start goes on behind it."""
        self._stopping = True
        if self._query is not None:
            with self._guard:
                pass  # not while it stops: a batch that comes meanwhile would wait for the guard
            self._query.stop()
            self._query = None
        if self._scratch is not None:
            self._scratch.remove()
            self._scratch = None

    def _figures(self) -> dict[str, float]:
        return self._overload.figures() if self._overload else {}

    def ask(self, question: Question) -> list[Said]:
        """Ask the workers between two batches; what is to be told of each node."""
        if question.link > self.pipeline.links:
            raise Unavailable(f"there is no table {question.link} in {self.pipeline.name}")
        if not self._guard.acquire(timeout=_ASKED_WITHIN_S):
            raise Unavailable("the batch under way takes long: ask again later")
        try:
            if self._stopping or self._job is None:
                raise Unavailable("it rests, or begins anew: ask again later")
            # As many as there may be workers, all at once: so each worker takes one.
            tasks = self._spark.sparkContext.defaultParallelism
            ask = partial(enrich_node.asked, self._job, question)
            rows = (
                self._spark.range(0, tasks, 1, tasks).mapInArrow(ask, enrich_node.SCHEMA).collect()
            )
        except PySparkException as error:
            raise Unavailable(_cause(error)) from error
        finally:
            self._guard.release()
        # Our own workers wrote it.
        said = [pickle.loads(row.report) for row in rows]  # noqa: S301
        return question.gathered(said, self.pipeline.nodes)

    def _work(self, frame: DataFrame, _number: int) -> None:
        with self._guard:
            if self._stopping:
                return  # nothing is lost by that: Spark's own notes are not looked at again
            began = time.monotonic()
            assert self._job is not None, "start() comes first"
            job = replace(self._job, settled=self._settled)
            if self._overload:
                job = replace(job, admission=self._overload.admission())
            self._settled = False
            frame.sparkSession.conf.set(enrich_arrow.OPTION, str(self._arrow.bytes))
            try:
                with self._shelf() as shelf:
                    reports = answer(frame, job, shelf)
            except PySparkException as error:
                if CrowdedError.__name__ in str(error):
                    self._caution *= _MORE_CAUTION
                if SlowError.__name__ in str(error):
                    self._size.too_slow()
                raise
            self._caution, self._settled = 1, self._is_local
            self._arrow.note(reports)
            seconds = time.monotonic() - began
            events = sum(report.counts[ledger.IN] for report in reports)
            self._size.took(events, max((report.seconds for report in reports), default=0.0))
            if self._overload:
                self._overload.note(reports, seconds)
            self.batches += 1
            self._note(reports, seconds, self._figures())

    def _shelf(self) -> AbstractContextManager[Path | None]:
        """Where map tasks leave events for the nodes; None on several machines."""
        assert self._scratch is not None, "start() comes first"
        return self._scratch.folder() if self._is_local else nullcontext()

    def _placed(self, job: Job, committed: dict[int, SlotState]) -> dict[int, SlotState]:
        """All slots' states with a place for each partition, committed before it is read from."""
        source, states = self._topology.source, self._states(job, committed)
        if not any(state.positions for state in states.values()):
            require_states(self._settings, self._topology)
        try:
            found = placed(source, states, spans(admin_of(self._settings), source))
        except AstrayError as astray:
            # Once the log has grown nothing else tells that it was cut.
            ends = {number: cut.end for number, cut in astray.cut.items()}
            told = {slot: replace(state, cut=state.cut | ends) for slot, state in states.items()}
            if told != committed:
                write_states(self._settings, self._topology, job.run, told)
            raise
        if found != committed:
            write_states(self._settings, self._topology, job.run, found)
        note_states(self._settings, self._topology, job.run)
        return found


def answer(frame: DataFrame, job: Job, shelf: Path | None) -> list[Report]:
    """Answer the source records of one batch, all of them, exactly once."""
    pipeline = job.pipeline
    rows = (
        frame.selectExpr(*enrich_decode.SOURCE)
        .mapInArrow(partial(enrich_decode.decode, pipeline, shelf), enrich_decode.SPARK_SCHEMA)
        .repartitionById(pipeline.nodes, "node")
        .mapInArrow(partial(enrich_node.enrich, job), enrich_node.SCHEMA)
        .collect()
    )
    return [Report.of(row.report) for row in rows]


def _cause(error: Exception) -> str:
    """The one line that says what went wrong, out of the traces of two languages."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    told = [line for line in lines if line.startswith(("dovetail.", "psycopg.")) and ": " in line]
    return (told or lines or [repr(error)])[-1 if told else 0]
