"""Master rows from a PostgreSQL table, by batches of keys, however many there are."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dovetail.master.pipeline import key_of, queries_of, session_of
from dovetail.master.table.json_rows import JsonRows
from dovetail.pipeline.spec import KeyType

if TYPE_CHECKING:
    from dovetail.join.columns import JoinKeys
    from dovetail.join.entry import MasterRows
    from dovetail.pipeline.spec import Pipeline


class PostgresMaster:
    """Reads the pipeline's master table over one connection, made anew when it is lost."""

    def __init__(self, database_url: str, pipeline: Pipeline) -> None:
        self._session = session_of(database_url, pipeline)
        self._queries = queries_of(pipeline, key_of(pipeline))
        self._rows = JsonRows(int_key=pipeline.key_type is KeyType.INT)

    def rows_of(self, keys: JoinKeys) -> MasterRows:
        records = self._session.value(self._queries.keys(keys, None))
        return self._rows.read(records or b"").rows

    def close(self) -> None:
        self._session.close()
