"""What consumer and producer share: configuring a librdkafka client and hearing its log."""

from __future__ import annotations

import ctypes
import logging
from collections.abc import Mapping
from typing import Any, Self

from dovetail.errors import ConfigError, hidden
from dovetail.settings import variable_of
from dovetail.stream.rdkafka.library import LogCallback, library

_log = logging.getLogger(__name__)

_LEVELS = (  # by syslog severity
    *(logging.CRITICAL,) * 3,
    logging.ERROR,
    logging.WARNING,
    *(logging.INFO,) * 2,
    logging.DEBUG,
)

Config = Mapping[str, str | int | bool]


@LogCallback  # type: ignore[untyped-decorator]
def _to_logging(_handle: Any, severity: int, facility: bytes, text: bytes) -> None:
    _log.log(
        _LEVELS[severity],
        "%s: %s",
        facility.decode(errors="replace"),
        text.decode(errors="replace"),
    )


def new_conf(config: Config) -> Any:
    """Build an rd_kafka_conf_t; rd_kafka_new takes it over.

    Log lines wait in the client's queue until the owner polls, so that no thread of librdkafka's
    ever calls into Python, not even while the interpreter is shutting down.
    """
    lib = library()
    conf = lib.conf_new()
    for name, value in (dict(config) | {"log.queue": True}).items():
        problem = ctypes.create_string_buffer(512)
        if lib.conf_set(conf, name.encode(), _text(value), problem, len(problem)):
            lib.conf_destroy(conf)
            told = hidden(problem.value.decode(), str(value))
            raise ConfigError(f"the Kafka client does not take {variable_of(name)}: {told}")
    lib.conf_set_log_cb(conf, _to_logging)
    return conf


class Client:
    """An rd_kafka_t that is ended once, and not touched after that."""

    def __init__(self, kind: int, conf: Any) -> None:
        self._lib = library()
        problem = ctypes.create_string_buffer(512)
        self._client: int | None = self._lib.new(kind, conf, problem, len(problem))
        if self._client is None:
            self._lib.conf_destroy(conf)
            raise ConfigError(f"the Kafka client could not be made: {problem.value.decode()}")
        self._lib.set_log_queue(self._client, None)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def _handle(self) -> int:
        if self._client is None:
            raise ValueError("this Kafka client is closed")
        return self._client

    def reaches_a_broker(self, timeout_s: float, topic: int | None = None) -> bool:
        """Ask about a topic, or about none, until one answers; tell whether it did."""
        found = ctypes.c_void_p()
        failed = self._lib.metadata(
            self._handle, 0, topic, ctypes.byref(found), milliseconds(timeout_s)
        )
        if not failed:
            self._lib.metadata_destroy(found)
        return not failed

    def close(self) -> None:
        if self._client is not None:
            self._end()
            self._lib.destroy(self._client)
            self._client = None

    def _end(self) -> None:
        """Let go of what belongs to the client; it is destroyed right after."""


def milliseconds(timeout_s: float) -> int:
    return max(0, round(timeout_s * 1000))


def _text(value: str | int | bool) -> bytes:
    return (str(value).lower() if isinstance(value, bool) else str(value)).encode()
