"""R in PostgreSQL, read as the join engine asks for it (reader.py), for the Python API.

An engine's page is a heap block. They are counted once, when the relation is asked for its facts,
because a key has to see as many pages as there were when it came. So the table may grow: an eighth
more pages than blocks are counted, which have no rows yet, and the last of them has no end. What
is appended is thus read in every cycle; if the table shrinks, pages are left without rows. Once
more has been appended than that and the disk buffer hold, the last page is read in parts.

Every read sees what is committed by then. A table whose rows change while it is scanned is joined
exactly by `PipelineRelation` (pipeline.py), in one snapshot a cycle.
"""

from __future__ import annotations

import re
from functools import cached_property
from typing import TYPE_CHECKING

import pyarrow as pa

from dovetail.errors import TooLongError
from dovetail.join.exchange import Pages, Partition
from dovetail.join.phase import Relation
from dovetail.master.session import SETTINGS, Session
from dovetail.master.table.queries import Queries, columns_of
from dovetail.master.table.reader import TableReader
from dovetail.master.table.records import RecordReader
from dovetail.master.table.types import sent
from dovetail.rows import RowCodec

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dovetail.join.exchange import Read, Request
    from dovetail.master.table.description import Description
    from dovetail.master.table.types import Sent

_ROOM_TO_GROW = 8
"""One page in so many is there for blocks to come."""

_CURE = "check the table, and what the database's user may read"


def session_for(url: str, table: str) -> Session:
    """A session as the relation needs it."""
    return Session(url, table, SETTINGS, _CURE)


class PostgresRelation:
    """Reads one table over a session, which it owns; `columns` are read beside the key."""

    def __init__(
        self,
        session: Session,
        description: Description,
        key: Sequence[str],
        columns: Sequence[str],
        *,
        where: str | None = None,
        unique: bool | None = None,
    ) -> None:
        self._session = session
        self._description = description
        self._key = description.key(key)
        fields = [(name, sent(description.columns[name])) for name in columns]
        self.codec = RowCodec(pa.schema([(name, arrow_type(field)) for name, field in fields]))
        self.key = arrow_schema(description, key)
        self._queries = Queries(description.table, self._key, columns_of(fields), where=where)
        self._texts = description.texts_among([*key, *columns])
        if description.may_be_long:
            self._queries.bound_by(self._texts)
        records = RecordReader(fields, int_key=self._key.is_int)
        self._reader = TableReader(session, self._queries, records.read)
        self._unique = self._key.unique if unique is None else unique

    @cached_property
    def facts(self) -> Relation:
        if not self._description.has_pages:
            return Relation(unique=self._unique)
        size = self._session.value(self._queries.block_count()) or b""
        blocks = int.from_bytes(size, "big")
        self._reader.sample(0)
        room = blocks // _ROOM_TO_GROW + 1
        return Relation(blocks + room, self._reader.page_bytes, unique=self._unique, in_parts=True)

    def read(self, request: Request, most: int) -> Read:
        try:
            return self._read(request, most)
        except TooLongError:  # rows have become long, or were compressed by far
            self._queries.bound_by(self._texts)
            return self._read(request, most)

    def _read(self, request: Request, most: int) -> Read:
        if isinstance(request, Pages):
            return self._reader.pages(request, most, on=True)
        if isinstance(request, Partition):
            return self._reader.partition(request.key, most)
        return self._reader.rows_of(request.keys, most)

    def close(self) -> None:
        self._session.close()


def arrow_schema(description: Description, names: Sequence[str]) -> pa.Schema:
    """The types in which these columns come."""
    return pa.schema([(name, arrow_type(sent(description.columns[name]))) for name in names])


def arrow_type(sent: Sent) -> pa.DataType:
    name, *given = re.findall(r"\w+", sent.arrow)
    if name.startswith("decimal"):
        return getattr(pa, name)(*map(int, given))
    return pa.timestamp(*given) if given else pa.type_for_alias(name)
