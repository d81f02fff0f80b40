"""What a process is told by its environment, read once.

`KAFKA_<OPTION>` is passed to the Kafka client as `<option>`, so that any TLS or SASL
setting of librdkafka can be given: `KAFKA_SECURITY_PROTOCOL=SASL_SSL`,
`KAFKA_SASL_USERNAME=…`, `KAFKA_SSL_CA_LOCATION=…`. PostgreSQL's TLS settings stand in
`DATABASE_URL` itself (`?sslmode=verify-full&sslrootcert=…`).

A secret is better in a file than in the environment, which a process hands on to all that it
starts. Any of these settings may name one instead: `KAFKA_SASL_PASSWORD_FILE`, `DATABASE_URL_FILE`;
`DATABASE_PASSWORD_FILE` has the password alone, for a URL that has none. `CONTROL_DATABASE_URL`,
with the same variants, is the control service's own schema, where that is another user's.

What is refused is told by its variable alone, never by its value, nor by the name of a file:
whatever it is, it may be a secret that stands in the wrong place.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlsplit

import psycopg
from psycopg.conninfo import conninfo_to_dict

from dovetail.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping

    ClientOptions = Mapping[str, str | int | bool]

_CLIENT_PREFIXES = (
    *("SECURITY_", "SASL_", "SSL_", "ENABLE_SSL_", "ENABLE_SASL_", "HTTPS_"),
    *("CLIENT_", "SOCKET_", "BROKER_"),
)
_USER = (
    "sasl.username",
    *(f"sasl.oauthbearer.{name}" for name in ("client.id", "client.credentials.client.id")),
)
_FILE = "_FILE"
_DATABASE = "postgresql://user:password@host:port/database"


@dataclass(frozen=True, slots=True)
class Settings:
    bootstrap: str
    database_url: str = field(repr=False)
    """It may hold a password, which nobody is to find in a log."""
    pipeline: Path
    node: int = 0
    link: int = 1
    """Which table of a chain the service's phase belongs to."""
    host: str = "127.0.0.1"
    port: int = 0
    """Of the service's own HTTP endpoint."""
    kafka: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Further settings of the Kafka client."""
    control_url: str = field(default="", repr=False)
    """Of the control service's own tables; empty where they are in `database_url`."""

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] = os.environ) -> Settings:
        return cls(
            bootstrap=_required(environment, "KAFKA_BOOTSTRAP", "host:port of a Kafka broker"),
            database_url=database_url(environment),
            pipeline=Path(environment.get("DOVETAIL_PIPELINE", "pipeline.yaml")),
            node=_integer(environment, "DOVETAIL_NODE", 0),
            link=_integer(environment, "DOVETAIL_LINK", 1),
            host=environment.get("DOVETAIL_HOST", "127.0.0.1"),
            port=_integer(environment, "DOVETAIL_PORT", 0),
            kafka=kafka_options(environment),
            control_url=control_url(environment),
        )

    @classmethod
    def of_kafka(cls, environment: Mapping[str, str] = os.environ) -> Settings:
        """For whoever needs no database."""
        others = {name: text for name, text in environment.items() if "DATABASE_" not in name}
        return cls.from_environment({**others, "DATABASE_URL": "postgresql:///unused"})

    @property
    def control_database(self) -> str:
        """Where the control service's tables are: tokens, revisions, jobs."""
        return self.control_url or self.database_url

    @property
    def user(self) -> str:
        """Who it is to Kafka; empty where nobody asks, or a certificate tells."""
        named = (self.kafka.get(option, "") for option in _USER)
        return next(filter(None, named), "")

    @property
    def is_known(self) -> bool:
        """Whether it says who it is to Kafka, by a certificate or otherwise."""
        return self.kafka.get("security.protocol", "plaintext").lower() != "plaintext"

    def client(self, options: ClientOptions | None = None) -> dict[str, Any]:
        """Give a Kafka client's configuration: the address, what the user gave, then `options`."""
        return {"bootstrap.servers": self.bootstrap, **self.kafka, **(options or {})}


def kafka_options(environment: Mapping[str, str]) -> dict[str, str]:
    options = {}
    for name in environment:
        option = name.removeprefix("KAFKA_").removesuffix(_FILE)
        if name.startswith("KAFKA_") and option.startswith(_CLIENT_PREFIXES):
            value = _given(environment, f"KAFKA_{option}")
            options[option.lower().replace("_", ".")] = value
    return options


def variable_of(option: str) -> str:
    """What a setting of the Kafka client is called in the environment."""
    return f"KAFKA_{option.upper().replace('.', '_')}"


def database_url(environment: Mapping[str, str]) -> str:
    """Where the master data are: the URL with its password, from wherever it is given."""
    _required(environment, "DATABASE_URL", _DATABASE)
    return _url(environment, "DATABASE")


def control_url(environment: Mapping[str, str]) -> str:
    return _url(environment, "CONTROL_DATABASE")


def _url(environment: Mapping[str, str], name: str) -> str:
    url = _given(environment, f"{name}_URL")
    password = _given(environment, f"{name}_PASSWORD")
    if url and password:
        url = with_password(url, password, f"{name}_PASSWORD")
    if url:
        parts_of(url, f"{name}_URL")
    return url


def parts_of(url: str, name: str = "the database's URL") -> dict[str, Any]:
    """Take a database's URL apart; nothing of one that cannot be is shown."""
    try:
        parts = conninfo_to_dict(url)
    except psycopg.ProgrammingError:
        parts = {"port": "?"}
    # A password's own @ or / moves what follows it into the wrong part.
    astray = any("@" in str(parts.get(part) or "") for part in ("host", "dbname"))
    ports = str(parts.get("port") or "").split(",")
    if astray or any(port and not port.isdecimal() for port in ports):
        raise ConfigError(
            f"{name} cannot be read: write postgresql://user@host:5432/database, with the special "
            "characters of a password percent-encoded ('@' is %40)"
        )
    return parts


def with_password(url: str, password: str, name: str = "the password") -> str:
    """Put a password into a URL that has none."""
    place, at, rest = urlsplit(url).netloc.rpartition("@")
    if not at or ":" in place:
        # Nothing of the URL is shown, as it may hold a password.
        raise ConfigError(
            f"{name} is given beside a URL that names no user or has a password of its own: write "
            "postgresql://user@host:port/database"
        )
    return url.replace(f"{place}@{rest}", f"{place}:{quote(password, safe='')}@{rest}", 1)


def _given(environment: Mapping[str, str], name: str) -> str:
    """A setting's value, from the environment or from the file that it names."""
    file, value = environment.get(name + _FILE, "").strip(), environment.get(name, "").strip()
    if not file:
        return value
    if value:
        raise ConfigError(f"{name} and {name}{_FILE} are both set: unset one of them")
    try:
        return Path(file).read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not text"
        raise ConfigError(f"the file that {name}{_FILE} names cannot be read: {why}") from None


def _required(environment: Mapping[str, str], name: str, example: str) -> str:
    value = _given(environment, name)
    if not value:
        raise ConfigError(f"{name} is not set; give it as {example}")
    return value


def _integer(environment: Mapping[str, str], name: str, default: int) -> int:
    text = environment.get(name, "")
    try:
        return int(text) if text else default
    except ValueError:
        raise ConfigError(f"{name} is not a whole number") from None
