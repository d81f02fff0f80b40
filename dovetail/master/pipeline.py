"""A pipeline's R in PostgreSQL, read as the join engine asks for it while its rows change.

    renew ──► Pages 0…b ──► Pages b…2b ──► … ──► last page ──► renew ──► Pages 0…b
      └────────────────── one snapshot ─────────────────┘        └── the next one

A scan's pages are the heap blocks of one snapshot a cycle (cycle.py). `renew` takes the next one
and says what the engine has to be told: if anything may have changed, every pending key starts
over, so that each has seen one state of R, whole. A partition or the rows of keys are one statement
each, which sees what is committed by then. It ends the cycle first: with a session of its own
beside an open cycle it could wait for a TRUNCATE which waits for the cycle, for ever.

A driver that has nothing to read calls `rest`: an open transaction keeps VACUUM from its work.

Memory: what a read may take (`most`) is shared by what is joined and what is read ahead, each of
them half. While a read arrives, its records take up to as much again.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from dovetail.errors import MasterDataError, SlowError, TooLongError, Unavailable
from dovetail.join.exchange import Pages, Partition
from dovetail.join.phase import Relation
from dovetail.master.session import SETTINGS, Session
from dovetail.master.table.ahead import Ahead
from dovetail.master.table.cycle import Cycle
from dovetail.master.table.description import Key, describe
from dovetail.master.table.json_rows import JSON_SETTINGS, NO_COLUMNS, JsonRows, json_row
from dovetail.master.table.queries import Queries
from dovetail.master.table.reader import TableReader, shortened
from dovetail.pipeline.spec import FieldType, KeyType

if TYPE_CHECKING:
    from dovetail.join.exchange import Read, Request
    from dovetail.master.table.cycle import Snapshot
    from dovetail.pipeline.spec import Pipeline

_CURE = "`dovetail check` tells what the pipeline needs of it"
_PATIENCE = (
    # Whoever replaces the table is waited for, but not by holding up everything else.
    "SET lock_timeout = '4s'",
    # A node that hangs must not keep VACUUM from its work for ever.
    "SET idle_in_transaction_session_timeout = '5min'",
)
QUICK_S = 5.0
"""So long a read may take. A stage reads while its transaction is open, which the broker ends after
20 s (`dovetail.stream.loop`); what takes longer is read before there is one."""


def session_of(database_url: str, pipeline: Pipeline, limit_s: float = QUICK_S) -> Session:
    settings = (*SETTINGS, *JSON_SETTINGS, *_PATIENCE)
    return Session(database_url, pipeline.master.table, settings, _CURE, limit_s)


def queries_of(pipeline: Pipeline, key: Key) -> Queries:
    """What is read of a row: the output's JSON, or nothing where only its being there is asked."""
    if pipeline.join.takes_columns:
        return Queries(pipeline.master.table, key, [json_row(pipeline.master.columns)])
    return Queries(pipeline.master.table, key, [NO_COLUMNS], once=True)


def key_of(pipeline: Pipeline) -> Key:
    """The key as the pipeline has it; nothing is known of the table's indexes yet."""
    ints = tuple(pipeline.source.fields[name].type is FieldType.INT for name in pipeline.key)
    return Key(pipeline.master.key, ints, ordered=(), findable=False, unique=False)


class PipelineRelation:
    """Reads the pipeline's master table over one session, for one engine at a time."""

    def __init__(
        self,
        database_url: str,
        pipeline: Pipeline,
        *,
        read_ahead: bool = True,
        limit_s: float = QUICK_S,
    ) -> None:
        """A read that takes longer than `limit_s` is a SlowError."""
        self._pipeline = pipeline
        self._session = session_of(database_url, pipeline, limit_s)
        self._ahead = Ahead(self._session.cancel)
        self._read_ahead = read_ahead
        self._slots: frozenset[int] | None = None
        self._last: Snapshot | None = None
        self._facts: Relation | None = None
        self._has_pages = True
        self._texts: list[str] = []
        self._is_bounded = False
        self._open = self._begun = False
        self._know(key_of(pipeline))

    @property
    def queries(self) -> int:
        return self._session.queries

    @property
    def facts(self) -> Relation:
        """What the engine has to know of R, as of the last `renew`."""
        if self._facts is None:
            self.renew()
            self.rest()
        assert self._facts is not None
        return self._facts

    def now(self) -> float:
        return self._session.now()

    def keep(self, slots: frozenset[int] | None) -> None:
        """Let reads have the rows of these slots alone; None = of all. Pages need a `renew`."""
        if slots != self._slots:
            self.rest()
            self._slots = slots
            self._queries.keep(slots, self._pipeline.slots)
            self._last = None

    def renew(self) -> Relation | None:
        """Begin a cycle: new facts if anything may have changed since the last one, else None.

        `Engine.renew` has to follow if there are. Raises Unavailable while R cannot be reached.
        """
        self.rest()
        try:
            return self._renewed()
        except BaseException:
            self._lose()
            raise

    def rest(self) -> None:
        """End the cycle, if one is under way: nothing is held open, and pages need a `renew`."""
        came = self._ahead.forget()
        if not self._open:
            return
        self._open = False
        try:
            if came:
                self._cycle.end()
        except Unavailable:
            came = False
        if not came:  # the cycle has ended with its connection
            self._lose()

    def read(self, request: Request, most: int) -> Read:
        try:
            if isinstance(request, Pages):
                return self._pages(request, most)
            self.rest()
            if isinstance(request, Partition):
                return self._partition(request, most)
            return self._reader.rows_of(request.keys, most)
        except SlowError as slow:
            self._lose()
            raise SlowError(f"{self._reading(request)}: {slow}") from slow
        except TooLongError as error:  # rows have become long, or were compressed by far
            self._lose()
            if self._is_bounded:
                raise
            self._is_bounded = True
            self._queries.bound_by(self._texts)
            raise Unavailable(
                f"{self._reading(request)} again, in smaller parts: {error}"
            ) from error
        except BaseException:
            self._lose()
            raise

    def _reading(self, request: Request) -> str:
        """What a request reads, for whoever has to find out why it takes so long."""
        table, columns = self._pipeline.master.table, ", ".join(self._key.columns)
        if isinstance(request, Pages):
            return f"reading {request.count} pages of {table} in a row"
        if isinstance(request, Partition):
            return f"reading {table} in the order of {columns}"
        found = f"looking up {len(request.keys)} keys of {table} by {columns}"
        return found if self._key.findable else f"{found}, on which there is no index"

    def close(self) -> None:
        self._ahead.close()
        self._lose()

    def _renewed(self) -> Relation | None:
        last, self._last = self._last, None
        snapshot = self._cycle.begin()
        self._open, self._begun = True, False
        if last is None or last.indexes != snapshot.indexes:
            self._describe()
            if not self._has_pages:
                self.rest()
                return self._told(1)
            self._reader.sample(0, snapshot.blocks // 2)
        self._last = snapshot
        if last is not None and snapshot.sees_the_same_as(last):
            return None
        return self._told(max(1, snapshot.blocks))

    def _told(self, pages: int) -> Relation:
        """The facts; whoever asks only whether there is a row is served by the first."""
        self._facts = Relation(
            pages,
            self._reader.page_bytes,
            unique=self._key.unique or not self._pipeline.join.takes_columns,
            by_key=bool(self._key.ordered),
            by_page=self._has_pages,
            in_parts=True,
        )
        return self._facts

    def _describe(self) -> None:
        master = self._pipeline.master
        with self._session.connection() as connection:
            found = describe(connection, master.table)
        for column in master.key:
            if column not in found.columns:
                raise MasterDataError(
                    f"master table {master.table} has no column {column!r} any more; {_CURE}"
                )
        self._has_pages = found.has_pages
        self._texts = found.texts_among([*master.key, *master.columns])
        self._is_bounded |= found.may_be_long
        self._know(replace(found.key(master.key), ints=self._key.ints))

    def _know(self, key: Key) -> None:
        self._key = key
        self._queries = queries_of(self._pipeline, key)
        self._queries.keep(self._slots, self._pipeline.slots)
        if self._is_bounded:
            self._queries.bound_by(self._texts)
        rows = JsonRows(int_key=self._pipeline.key_type is KeyType.INT)
        self._reader = TableReader(self._session, self._queries, rows.read)
        self._cycle = Cycle(self._session, self._queries)

    def _pages(self, request: Pages, most: int) -> Read:
        if not self._has_pages:
            raise MasterDataError(
                f"master table {self._pipeline.master.table} has no pages to scan, as it is not "
                f"one heap: choose the algorithm srj, or name a table or a materialised view"
            )
        assert self._open, "renew() comes before the first page that is read, and after rest()"
        assert request.goes_on or not self._begun, "renew() comes before every cycle"
        assert request.of == self.facts.pages, "engine.renew() follows a renew() that gave facts"
        self._begun = True
        first, end = request.runs()[0]
        share = self._ahead.share(most, self._reader.page_bytes) if self._read_ahead else most
        # Nothing is read ahead between the parts of a page.
        read = self._ahead.take(first) or self._reader.pages(request, share)
        read = shortened(read, end - first, most)
        after = first + read.covers
        if share < most and after < request.of and not read.place:
            following = Pages(after, min(request.count, request.of - after), request.of)
            self._ahead.start(after, partial(self._reader.pages, following, share))
        return read

    def _partition(self, request: Partition, most: int) -> Read:
        if not self.facts.by_key:
            columns = ", ".join(self._key.columns)
            table = self._pipeline.master.table
            raise MasterDataError(
                f"master table {table} has no B-tree index on {columns}, in whose order it could "
                f"be read: run CREATE INDEX ON {table} ({columns}), or choose the algorithm ssbj"
            )
        return self._reader.partition(request.key, most)

    def _lose(self) -> None:
        """Let go of the connection: what it saw is not to be compared with what another sees."""
        self._ahead.forget()
        self._open = False
        self._last = None
        self._session.close()
