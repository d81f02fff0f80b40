"""The master table as Spark reads it: by heap blocks, in parallel, in one state.

    driver     BEGIN REPEATABLE READ ── lock ── pg_export_snapshot() ── … waits … ── COMMIT
    executors     SET TRANSACTION SNAPSHOT '…';  ctid >= '(0,0)'    AND ctid < '(4096,0)'
                  SET TRANSACTION SNAPSHOT '…';  ctid >= '(4096,0)' AND ctid < '(8192,0)'   …

Every partition is a range of heap blocks, read through a cursor by one JDBC connection. By blocks
and not by keys, for they need no index, are of even size whatever the keys are, and each is read
once. All connections see the state that the driver has exported, so a row that is updated meanwhile
comes as it was, once. A table that is not one heap (a view, a partitioned table) is one partition.
"""

from __future__ import annotations

from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dovetail.errors import MasterDataError
from dovetail.master.pipeline import key_of, queries_of, session_of
from dovetail.master.session import SETTINGS
from dovetail.master.table.cycle import Cycle
from dovetail.master.table.description import describe
from dovetail.master.table.json_rows import JSON_SETTINGS
from services.spark.jdbc import jdbc_options

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import DataFrame, SparkSession

    from dovetail.pipeline.spec import Pipeline

BLOCKS = 4096
"""Heap blocks of a partition: 32 MiB of a table."""
_LEAST_BLOCKS = 64
_FETCHED = 10_000
"""Rows that a cursor gives at a time."""


@dataclass(frozen=True, slots=True)
class MasterState:
    """One state of a pipeline's master table, while its transaction is open."""

    database_url: str
    snapshot: str
    """The exported snapshot's name."""
    seen: str
    """What of the database it sees."""
    query: str
    blocks: int | None
    """None if the table has none of its own."""

    def predicates(self, cores: int) -> list[str]:
        """The rows' places, split into ranges: two for each core at least, if there are blocks."""
        if self.blocks is None:
            return ["true"]
        size = max(_LEAST_BLOCKS, min(BLOCKS, -(-self.blocks // (2 * cores))))
        starts = range(0, max(1, self.blocks), size)
        # Without an end, the last one cannot miss a row.
        ends = [f" AND place < '({start},0)'::tid" for start in starts[1:]] + [""]
        return [
            f"place >= '({start},0)'::tid{end}" for start, end in zip(starts, ends, strict=True)
        ]

    def rows(self, spark: SparkSession) -> DataFrame:
        """Rows that have a key: `slot`, `value` and `text` of the key, and the encoded `row`."""
        options = jdbc_options(self.database_url)
        state = (
            "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY",
            f"SET TRANSACTION SNAPSHOT '{self.snapshot}'",
        )
        found = spark.read.jdbc(
            options.pop("url"),
            f"({self.query}) AS rows",
            predicates=self.predicates(spark.sparkContext.defaultParallelism),
            properties={
                **options,
                # A fetch size makes the driver read through a cursor, in a transaction: this one.
                "fetchsize": str(_FETCHED),
                "sessionInitStatement": "; ".join((*state, *SETTINGS, *JSON_SETTINGS)),
            },
        )
        return found.select("slot", "value", "text", "row")


@contextmanager
def master_state(database_url: str, pipeline: Pipeline) -> Iterator[MasterState]:
    """Hold one state of the pipeline's master table open, for any number of readers."""
    with closing(session_of(database_url, pipeline)) as session:
        with session.connection() as connection:
            found = describe(connection, pipeline.master.table)
        missing = [name for name in pipeline.master.key if name not in found.columns]
        if missing:
            raise MasterDataError(
                f"master table {pipeline.master.table} has no column {missing[0]!r}; "
                f"`dovetail check` tells what the pipeline needs of it"
            )
        queries = queries_of(pipeline, key_of(pipeline))
        cycle = Cycle(session, queries)
        seen = cycle.begin()
        with session.connection() as connection:
            # It does nothing but hold the snapshot, for as long as the job takes.
            connection.execute("SET LOCAL idle_in_transaction_session_timeout = 0")
            row = connection.execute("SELECT pg_export_snapshot()").fetchone()
            query = queries.split(pipeline.slots, by_place=found.has_pages).as_string(connection)
        assert row is not None
        yield MasterState(
            database_url,
            snapshot=row[0],
            seen=seen.name or "",
            query=query,
            blocks=seen.blocks if found.has_pages else None,
        )
        cycle.end()
