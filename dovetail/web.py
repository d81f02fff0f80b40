"""Asks others by HTTP: the API for the command line, stages for control, a registry for a decoder.

- No redirect is followed: it would take a token along, to whoever is named there.
- This machine is asked without the proxy that the environment may name.
- An answer is read within a time and up to a bound, whatever the other side makes of it.

httpx is imported when somebody is asked: that takes longer than most commands do.
"""

from __future__ import annotations

import ipaddress
import ssl
import sys
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import urlencode, urlsplit

from dovetail.errors import DovetailError

if TYPE_CHECKING:
    from collections.abc import Mapping

    import httpx


class NoAnswerError(DovetailError):
    """Nobody is there, or what comes is no answer; the text says why, in a few words."""


@dataclass(frozen=True, slots=True)
class Answer:
    status: int
    reason: str
    headers: Mapping[str, str]
    """By their names in lower case."""
    body: bytes

    @property
    def is_good(self) -> bool:
        return 200 <= self.status < 300


def is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


class Asker:
    """Asks one other side, by connections that stay open; from any thread."""

    def __init__(
        self,
        origin: str,
        headers: Mapping[str, str],
        *,
        within_s: float,
        most_bytes: int,
        proxied: bool = True,
        trusted: ssl.SSLContext | None = None,
    ) -> None:
        """`origin` is scheme, host and port; `proxied`: by the environment's proxy, if any.

        Without `trusted`, whom this machine trusts (or SSL_CERT_FILE) is believed over https.
        """
        self._origin = origin
        self._headers = headers
        self._within_s = within_s
        self._most_bytes = most_bytes
        self._proxied = proxied
        self._trusted = trusted
        self._client: httpx.Client | None = None
        self._guard = threading.Lock()

    def ask(
        self,
        path: str,
        query: Mapping[str, object] | None = None,
        *,
        method: str = "GET",
        body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Answer:
        _spare_its_program()
        import httpx  # noqa: PLC0415 - see above

        from dovetail import deadline  # noqa: PLC0415 - the same

        given = urlencode(query or {}, doseq=True)
        url = f"{self._origin}{path}" + (f"?{given}" if given else "")
        client = self._connected()
        deadline.begin(self._within_s)
        try:
            with client.stream(
                method, url, content=body, headers={**self._headers, **(headers or {})}
            ) as answer:
                read = self._read(answer)
                named = {name.lower(): value for name, value in answer.headers.items()}
                return Answer(answer.status_code, answer.reason_phrase, named, read)
        except httpx.InvalidURL as error:
            raise NoAnswerError(f"that is no address: {error}") from None
        except httpx.TimeoutException:
            raise NoAnswerError(f"no answer within {self._within_s:.0f} s") from None
        except httpx.HTTPError as error:
            raise NoAnswerError(_why(error)) from None

    def _read(self, answer: httpx.Response) -> bytes:
        read = bytearray()
        # As it comes: nothing was asked for that has to be decompressed.
        for part in answer.iter_raw():
            read += part
            if len(read) > self._most_bytes:
                raise NoAnswerError(f"its answer has more than {self._most_bytes:,} bytes")
        return bytes(read)

    def _connected(self) -> httpx.Client:
        with self._guard:
            self._client = self._client or self._new_client()
        return self._client

    def _new_client(self) -> httpx.Client:
        import httpx  # noqa: PLC0415 - see above

        from dovetail import deadline  # noqa: PLC0415 - the same

        parts = urlsplit(self._origin)
        trusted = self._trusted or (
            ssl.create_default_context()
            if parts.scheme == "https"
            else ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)  # nobody: it is not asked by TLS
        )
        client = httpx.Client(
            headers={"Accept-Encoding": "identity", "User-Agent": "dovetail"},
            timeout=self._within_s,
            verify=trusted,
            trust_env=self._proxied and not is_loopback(parts.hostname or ""),
            follow_redirects=False,
        )
        return deadline.keep_deadlines(client)


def _spare_its_program() -> None:
    """Leave out what httpx has for terminals: to import that takes longer than all the rest."""
    sys.modules.setdefault("httpx._main", None)  # type: ignore[arg-type]


def _why(error: BaseException) -> str:
    """The innermost reason: the system's own words, where it was the system."""
    while error.__cause__ or error.__context__:
        error = error.__cause__ or error.__context__ or error
    return getattr(error, "strerror", None) or str(error) or type(error).__name__
