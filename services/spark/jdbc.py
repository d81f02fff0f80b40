"""How Spark reads PostgreSQL: DATABASE_URL in the words of its JDBC driver."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

from dovetail.errors import ConfigError
from dovetail.settings import parts_of

if TYPE_CHECKING:
    from collections.abc import Mapping

DRIVER = "org.postgresql.Driver"
_PASSED = ("sslmode", "sslrootcert", "sslcert", "sslkey")
"""What libpq and the driver call alike and mean alike."""


def jdbc_options(database_url: str) -> dict[str, str]:
    """Options for `spark.read.format("jdbc")`: where, and as whom."""
    given = parts_of(database_url, "DATABASE_URL")
    host = str(given.get("host") or "localhost")
    if host.startswith("/"):
        raise ConfigError(
            "DATABASE_URL names a socket's folder, and Spark reads PostgreSQL by TCP: name the "
            "server's host and port"
        )
    port, name = given.get("port") or 5432, given.get("dbname") or given.get("user")
    options = {
        "url": f"jdbc:postgresql://{host}:{port}/{name}{_query(given)}",
        "driver": DRIVER,
        "user": str(given.get("user") or ""),
        "password": str(given.get("password") or ""),
    }
    return {option: value for option, value in options.items() if value}


def _query(given: Mapping[str, Any]) -> str:
    passed = {name: given[name] for name in _PASSED if given.get(name)}
    return f"?{urlencode(passed)}" if passed else ""
