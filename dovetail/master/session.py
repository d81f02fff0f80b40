"""A PostgreSQL connection for reading master rows, and its errors as Dovetail's own."""

from __future__ import annotations

import time
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

import psycopg

from dovetail.certificates import told
from dovetail.errors import MasterDataError, SlowError, TooLongError, Unavailable
from dovetail.roles import lacks
from dovetail.settings import parts_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from psycopg import sql

NETWORK: dict[str, int] = {
    "connect_timeout": 10,
    # A network that swallows packets looks like a slow query for ever; these make it an error.
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 30_000,
}
SETTINGS = (
    "SET default_transaction_read_only = on",
    # Pages have to come in their order: no helpers that race, no scan that joins another halfway.
    "SET max_parallel_workers_per_gather = 0",
    "SET synchronize_seqscans = off",
    "SET jit = off",
)
_CONNECTION: dict[str, Any] = {
    **NETWORK,
    # A generic plan does not know how many keys are looked up, or how long a key range is.
    "prepare_threshold": None,
}
_CLOCK = "SELECT extract(epoch FROM clock_timestamp())::float8"
_UTF8 = "SET client_encoding = 'UTF8'"
"""What events and Arrow's text are in, whatever the database is encoded in."""
_CANCEL_S = 5.0
LONGEST_S = 240.0
"""Who reads for longer counts as dead to its consumer group (`max.poll.interval.ms`)."""


class Session:
    """One connection to a database, made when it is first needed and anew when it was lost."""

    def __init__(
        self,
        url: str,
        table: str,
        settings: Sequence[str],
        cure: str,
        limit_s: float = 0.0,
    ) -> None:
        """`settings` are statements for a new connection; `cure` says what helps the table.

        A statement that takes longer than `limit_s` is a SlowError. The next one has twice as
        long, so that whatever can be read is read, until one is quick again; 0 is no limit.
        """
        self._url = url
        self._table = table
        self._settings = (_UTF8, *settings)
        self._cure = cure
        self._usual_s = self._limit_s = limit_s
        self._connection: psycopg.Connection[Any] | None = None
        self._cancelled = False
        self._clock = 0.0, 0.0
        self.queries = 0
        """How often `value` was asked for."""

    @contextmanager
    def connection(self) -> Iterator[psycopg.Connection[Any]]:
        """Give the connection; what goes wrong within closes it and says what to do."""
        try:
            yield self._connected()
        except psycopg.errors.ProgramLimitExceeded as error:
            self.close()
            raise TooLongError(
                f"master table {self._table} has rows that are too long for PostgreSQL to send: "
                f"{told(error)}; leave out its longest column, or shorten it"
            ) from error
        except psycopg.OperationalError as error:
            ended = isinstance(error, psycopg.errors.QueryCanceled) and not self._cancelled
            if ended and self._usual_s:
                raise self._slow(error) from error
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
            began = time.monotonic()
            row: tuple[bytes | None] | None = cursor.execute(query).fetchone()
            if self._limit_s > self._usual_s and time.monotonic() - began < self._usual_s / 2:
                self._limit_s = self._usual_s
                cursor.execute(self._limit())
            return None if row is None else row[0]

    def now(self) -> float:
        """The database's clock: one for all who read from it, whatever their own ones show."""
        with self.connection():
            showed, at = self._clock
            return showed + time.monotonic() - at

    def cancel(self) -> None:
        """End the statement that another thread waits for, if the database can be told so."""
        connection, self._cancelled = self._connection, True
        if connection is not None:
            # Who cannot be told within that time does not answer the statement either.
            with suppress(psycopg.Error):
                connection.cancel_safe(timeout=_CANCEL_S)

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _connected(self) -> psycopg.Connection[Any]:
        if self._connection is None:
            parts_of(self._url)
            self._connection = psycopg.connect(self._url, autocommit=True, **_CONNECTION)
            self._cancelled = False
            for setting in self._settings:
                self._connection.execute(setting)
            if self._usual_s:
                self._connection.execute(self._limit())
            shown = self._connection.execute(_CLOCK).fetchone()
            assert shown is not None
            # Afterwards: rather some milliseconds late than early.
            self._clock = shown[0], time.monotonic()
        return self._connection

    def _limit(self) -> str:
        return f"SET statement_timeout = {round(self._limit_s * 1000)}"

    def _slow(self, error: psycopg.Error) -> SlowError:
        """Give the next try more time, and say that the database needs it."""
        took, self._limit_s = self._limit_s, min(2 * self._limit_s, LONGEST_S)
        assert self._connection is not None
        info = self._connection.info
        place = f"{info.dbname} at {info.host}:{info.port}"
        self.close()
        return SlowError(
            f"PostgreSQL is slow: {place} has not answered within "
            f"{took:g} s ({told(error)}). It is asked again and has {self._limit_s:g} s then; look "
            f"at what it does or waits for (pg_stat_activity), or let it have less to do"
        )
