"""A PostgreSQL connection for reading master rows, and its errors as Dovetail's own."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import psycopg

from dovetail.certificates import told
from dovetail.errors import MasterDataError, Unavailable
from dovetail.roles import lacks
from dovetail.settings import parts_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from psycopg import sql

_CONNECTION: dict[str, Any] = {
    "connect_timeout": 10,
    # A network that swallows packets looks like a slow query for ever; these make it an error.
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 30_000,
    # A generic plan does not know how many keys are looked up, or how long a key range is.
    "prepare_threshold": None,
}
_UTF8 = "SET client_encoding = 'UTF8'"
"""What events and Arrow's text are in, whatever the database is encoded in."""


class Session:
    """One connection to a database, made when it is first needed and anew when it was lost."""

    def __init__(self, url: str, table: str, settings: Sequence[str], cure: str) -> None:
        """`settings` are statements for a new connection; `cure` says what helps the table."""
        self._url = url
        self._table = table
        self._settings = (_UTF8, *settings)
        self._cure = cure
        self._connection: psycopg.Connection[Any] | None = None
        self.queries = 0
        """How often `value` was asked for."""

    @contextmanager
    def connection(self) -> Iterator[psycopg.Connection[Any]]:
        """Give the connection; what goes wrong within closes it and says what to do."""
        try:
            yield self._connected()
        except psycopg.OperationalError as error:
            self.close()
            raise Unavailable(f"PostgreSQL cannot be read: {told(error)}") from error
        except psycopg.errors.InsufficientPrivilege as error:
            user = self._connection.info.user if self._connection else ""
            self.close()
            raise lacks(user, told(error), f"SELECT ON {self._table}") from error
        except psycopg.Error as error:
            self.close()
            raise MasterDataError(
                f"master table {self._table} cannot be read: {told(error)}; {self._cure}"
            ) from error

    def value(self, query: sql.Composed) -> bytes | None:
        """Run a query that gives a single value of bytes, or NULL."""
        self.queries += 1
        with self.connection() as connection, connection.cursor(binary=True) as cursor:
            row: tuple[bytes | None] | None = cursor.execute(query).fetchone()
            return None if row is None else row[0]

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _connected(self) -> psycopg.Connection[Any]:
        if self._connection is None:
            parts_of(self._url)
            self._connection = psycopg.connect(self._url, autocommit=True, **_CONNECTION)
            for setting in self._settings:
                self._connection.execute(setting)
        return self._connection
