"""What a process is told by its environment, read once.

`KAFKA_<OPTION>` is passed to the Kafka client as `<option>`, so that any TLS or SASL
setting of librdkafka can be given: `KAFKA_SECURITY_PROTOCOL=SASL_SSL`,
`KAFKA_SASL_USERNAME=…`, `KAFKA_SSL_CA_LOCATION=…`. PostgreSQL's TLS settings stand in
`DATABASE_URL` itself (`?sslmode=verify-full&sslrootcert=…`).
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dovetail.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping

    ClientOptions = Mapping[str, str | int | bool]

_CLIENT_PREFIXES = ("SECURITY_", "SASL_", "SSL_", "ENABLE_SSL_", "CLIENT_", "SOCKET_", "BROKER_")


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

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] = os.environ) -> Settings:
        return cls(
            bootstrap=_required(environment, "KAFKA_BOOTSTRAP", "host:port of a Kafka broker"),
            database_url=_required(
                environment, "DATABASE_URL", "postgresql://user:password@host:port/database"
            ),
            pipeline=Path(environment.get("DOVETAIL_PIPELINE", "pipeline.yaml")),
            node=_integer(environment, "DOVETAIL_NODE", 0),
            link=_integer(environment, "DOVETAIL_LINK", 1),
            host=environment.get("DOVETAIL_HOST", "127.0.0.1"),
            port=_integer(environment, "DOVETAIL_PORT", 0),
            kafka=kafka_options(environment),
        )

    def client(self, options: ClientOptions | None = None) -> dict[str, Any]:
        """Give a Kafka client's configuration: the address, what the user gave, then `options`."""
        return {"bootstrap.servers": self.bootstrap, **self.kafka, **(options or {})}


def kafka_options(environment: Mapping[str, str]) -> dict[str, str]:
    options = {}
    for name, value in environment.items():
        option = name.removeprefix("KAFKA_")
        if option != name and option.startswith(_CLIENT_PREFIXES):
            options[option.lower().replace("_", ".")] = value
    return options


def _required(environment: Mapping[str, str], name: str, example: str) -> str:
    value = environment.get(name, "").strip()
    if not value:
        raise ConfigError(f"{name} is not set; give it as {example}")
    return value


def _integer(environment: Mapping[str, str], name: str, default: int) -> int:
    text = environment.get(name, "")
    try:
        return int(text) if text else default
    except ValueError:
        raise ConfigError(f"{name}={text!r} is not a whole number") from None
