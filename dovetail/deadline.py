"""One deadline for a whole exchange by HTTP: the connection, the request and the answer.

httpx bounds every read and every write by itself, so that whoever sends a byte now and then holds
the other side for as long as it likes. Here each of them gets what is left of the exchange's time.
httpx has no setting for that; what it reads and writes by has: a network backend of httpcore.

How long a name's resolver takes is up to the system, and each of a name's addresses is tried.
"""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Any

import httpcore
import httpx

if TYPE_CHECKING:
    import ssl
    from collections.abc import Iterable

_PIECE_BYTES = 1 << 16


class _Exchange(threading.local):
    """The one that this thread is in."""

    until: float


_exchange = _Exchange()


def begin(within_s: float) -> None:
    """Let whatever this thread asks from now on take so long altogether."""
    _exchange.until = time.monotonic() + within_s


def keep_deadlines(client: httpx.Client) -> httpx.Client:
    """Have a client's connections end with the exchange's time, by a proxy or without."""
    for transport in (client._transport, *client._mounts.values()):  # noqa: SLF001 - see above
        if isinstance(transport, httpx.HTTPTransport):
            pool = transport._pool  # noqa: SLF001 - the same
            pool._network_backend = _Backend(pool._network_backend)  # noqa: SLF001 - the same
    return client


def _left() -> float:
    left = _exchange.until - time.monotonic()
    if left <= 0:
        raise httpcore.TimeoutException
    return left


class _Backend(httpcore.NetworkBackend):
    def __init__(self, inner: httpcore.NetworkBackend) -> None:
        self._inner = inner

    def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,  # noqa: ARG002 - the exchange has one
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore.NetworkStream:
        return _Stream(self._inner.connect_tcp(host, port, _left(), local_address, socket_options))


class _Stream(httpcore.NetworkStream):
    def __init__(self, inner: httpcore.NetworkStream) -> None:
        self._inner = inner

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:  # noqa: ARG002 - as above
        return self._inner.read(max_bytes, _left())

    def write(self, buffer: bytes, timeout: float | None = None) -> None:  # noqa: ARG002 - as above
        for start in range(0, len(buffer), _PIECE_BYTES):
            self._inner.write(buffer[start : start + _PIECE_BYTES], _left())

    def close(self) -> None:
        self._inner.close()

    def start_tls(
        self,
        ssl_context: ssl.SSLContext,
        server_hostname: str | None = None,
        timeout: float | None = None,  # noqa: ARG002 - as above
    ) -> httpcore.NetworkStream:
        return _Stream(self._inner.start_tls(ssl_context, server_hostname, _left()))

    def get_extra_info(self, info: str) -> Any:
        return self._inner.get_extra_info(info)
