"""The counts of the past, version by version: Parquet beside, made visible by a row.

    1  write the new counts into a folder of their own
    2  one transaction of the control database: the version, its folder, and the offsets up to
       which events are counted in it
    3  delete the folders that no version needs

Offsets and counts are thus one: a run that ends before step 2, however it ends, has changed
nothing, and its folder is deleted by the next one. The last two versions are kept, so that whoever
reads the one before the latest can finish.
"""

from __future__ import annotations

import uuid
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Self

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import JSONB

from dovetail.roles import SCHEMA
from services.spark.runs import as_unavailable, create_tables

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

KEPT = 2

METADATA = sa.MetaData(schema=SCHEMA)
FREQUENCIES = sa.Table(
    "frequencies",
    METADATA,
    sa.Column("pipeline", sa.Text, primary_key=True),
    sa.Column("version", sa.BigInteger, primary_key=True),
    sa.Column("run", sa.BigInteger, nullable=False),
    sa.Column("made_at", sa.DateTime(timezone=True), nullable=False, server_default=sa.func.now()),
    sa.Column("folder", sa.Text, nullable=False),
    sa.Column("counts", JSONB, nullable=False),
)


@dataclass(frozen=True, slots=True)
class Counts:
    """What a version of the counts covers."""

    topic: str = ""
    first: dict[str, int] = field(default_factory=dict)
    """By partition of the source topic, the offset of the first event that was counted."""
    reached: dict[str, int] = field(default_factory=dict)
    """By partition, the offset up to which all events are counted."""
    archived: list[str] = field(default_factory=list)
    """Files of the archive that are counted."""
    as_of_ms: int = 0
    """The moment for which weights are given."""
    began_ms: int = 0
    """When the first event happened."""
    events: int = 0
    bytes: int = 0
    """Of all events, as JSON."""
    pairs: int = 0
    """Keys, each times the hours of the week in which it came, that are counted exactly."""
    sketched: int = 0
    """Events, of those above, that only sketches have."""
    tracked: int = 0
    """Keys that a sketch of an hour tracks; 0 as long as all is counted exactly."""

    @property
    def event_bytes(self) -> float:
        """The average size of an event."""
        return self.bytes / self.events if self.events else 0.0

    @property
    def error(self) -> float:
        """By how much of all sketched events a key's count may be off (a frequent-items sketch)."""
        size = 1
        while size * 3 < self.tracked * 4:  # Spark's: three quarters of a power of two
            size *= 2
        return 3.5 / size if self.tracked else 0.0


@dataclass(frozen=True, slots=True)
class Version:
    number: int
    folder: str
    counts: Counts

    @classmethod
    def none(cls) -> Self:
        return cls(0, "", Counts())


class States:
    """The versions of one pipeline's counts, below a folder that every Spark worker can reach."""

    def __init__(self, engine: sa.Engine, spark: SparkSession, pipeline: str, folder: str) -> None:
        self._engine = engine
        self._spark = spark
        self._pipeline = pipeline
        self._folder = f"{folder.rstrip('/')}/{pipeline}/counts"
        with as_unavailable(), engine.begin() as connection:
            create_tables(connection, METADATA)

    def latest(self) -> Version:
        """The newest version, or one without anything."""
        found = self._versions(1)
        return found[0] if found else Version.none()

    def new_folder(self) -> str:
        """Where the next version can be written; nobody else writes there."""
        return f"{self._folder}/{uuid.uuid4().hex}"

    def add(self, before: Version, folder: str, counts: Counts, run: int) -> Version:
        """Make a version visible, after `before`; then delete what is no longer needed."""
        made = Version(before.number + 1, folder, counts)
        row = {
            "pipeline": self._pipeline,
            "version": made.number,
            "run": run,
            "folder": folder,
            "counts": asdict(counts),
        }
        with as_unavailable(), self._engine.begin() as connection:
            connection.execute(sa.insert(FREQUENCIES).values(row))
            connection.execute(
                sa.delete(FREQUENCIES).where(
                    FREQUENCIES.c.pipeline == self._pipeline,
                    FREQUENCIES.c.version <= made.number - KEPT,
                )
            )
        self.clean()
        return made

    def clean(self) -> None:
        """Delete the folders that belong to no version: only while no other run writes one."""
        keep_only(
            self._spark,
            self._folder,
            {version.folder.rpartition("/")[2] for version in self._versions(KEPT)},
        )

    def _versions(self, most: int) -> list[Version]:
        rows = (
            sa.select(FREQUENCIES.c.version, FREQUENCIES.c.folder, FREQUENCIES.c.counts)
            .where(FREQUENCIES.c.pipeline == self._pipeline)
            .order_by(FREQUENCIES.c.version.desc())
            .limit(most)
        )
        with as_unavailable(), self._engine.connect() as connection:
            return [
                Version(number, folder, Counts(**counts))
                for number, folder, counts in connection.execute(rows)
            ]


def keep_only(spark: SparkSession, folder: str, names: set[str]) -> None:
    """Delete everything in a folder but these."""
    path = _path(spark, folder)
    files = path.getFileSystem(_hadoop(spark))
    if not files.exists(path):
        return
    for found in files.listStatus(path):
        if found.getPath().getName() not in names:
            files.delete(found.getPath(), True)


def delete(spark: SparkSession, folder: str) -> None:
    path = _path(spark, folder)
    path.getFileSystem(_hadoop(spark)).delete(path, True)


def _path(spark: SparkSession, folder: str) -> Any:
    # Hadoop's own view of files: the folder may be on any storage that Spark can reach.
    return spark._jvm.org.apache.hadoop.fs.Path(folder)  # type: ignore[union-attr]  # noqa: SLF001


def _hadoop(spark: SparkSession) -> Any:
    return spark._jsc.hadoopConfiguration()  # noqa: SLF001
