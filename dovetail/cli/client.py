"""The control service's API over HTTP; an error of its becomes a DovetailError.

It is urllib's: an answer is small and there is one at a time.

- A redirect is refused: it would take the token along to whoever is named there.
- An address of this machine is asked without the proxy that the environment may name.
- Too many requests (429): the request was not looked at, and is sent again after the pause named.
"""

from __future__ import annotations

import http.client
import json
import os
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlencode, urlsplit

from dovetail.errors import ConfigError, RefusedError, Unavailable

if TYPE_CHECKING:
    import argparse
    from collections.abc import Mapping

URL = "DOVETAIL_URL"
TOKEN = "DOVETAIL_TOKEN"  # noqa: S105 - the variable's name
TOKEN_FILE = "DOVETAIL_TOKEN_FILE"  # noqa: S105 - the same

_ANSWERS_WITHIN_S = 40.0
"""A little longer than the longest that a request may wait for a job."""
_PAUSES = 5
_LONGEST_PAUSE_S = 10.0
_LOOPBACK = frozenset({"127.0.0.1", "localhost", "::1"})
_USUAL_PORT = 18080


class Client:
    def __init__(self, url: str, token: str = "") -> None:
        self.url = _address(url)
        self._headers = {"Accept": "application/json", "User-Agent": "dovetail"}
        if token:
            self._headers["Authorization"] = f"Bearer {token}"
        direct = urlsplit(self.url).hostname in _LOOPBACK
        self._opener = urllib.request.build_opener(
            urllib.request.ProxyHandler({} if direct else None), _NoRedirect()
        )

    def get(self, path: str, **query: object) -> Any:
        return self._ask("GET", path, query=query)

    def post(self, path: str, body: Mapping[str, object]) -> Any:
        return self._ask("POST", path, body)

    def put(self, path: str, body: Mapping[str, object]) -> Any:
        return self._ask("PUT", path, body)

    def patch(self, path: str, body: Mapping[str, object]) -> Any:
        return self._ask("PATCH", path, body)

    def delete(self, path: str, body: Mapping[str, object] | None = None) -> Any:
        return self._ask("DELETE", path, body)

    def pipeline(self, name: str | None) -> str:
        """The path of a pipeline; without a name, of the one that runs beside the service."""
        if name is None:
            here = [known["name"] for known in self.get("/v1/pipelines") if known["here"]]
            if not here:
                raise ConfigError(f"no pipeline runs at {self.url}: name one by --pipeline")
            name = str(here[0])
        return f"/v1/pipelines/{quote(name, safe='')}"

    def _ask(
        self,
        method: str,
        path: str,
        body: Mapping[str, object] | None = None,
        query: Mapping[str, object] | None = None,
    ) -> Any:
        given = {name: value for name, value in (query or {}).items() if value is not None}
        asked = f"{self.url}{path}" + (f"?{urlencode(given, doseq=True)}" if given else "")
        for attempt in range(_PAUSES + 1):
            try:
                return self._send(method, asked, body)
            except _TooManyRequestsError as refused:
                if attempt == _PAUSES or refused.pause_s > _LONGEST_PAUSE_S:
                    raise
                time.sleep(refused.pause_s)
        raise AssertionError

    def _send(self, method: str, asked: str, body: Mapping[str, object] | None) -> Any:
        headers = dict(self._headers)
        data = None
        if body is not None:
            data = json.dumps(body).encode()
            headers["Content-Type"] = "application/json"
        request = urllib.request.Request(  # noqa: S310 - `_address` lets http and https through
            asked, data, headers, method=method
        )
        try:
            with self._opener.open(request, timeout=_ANSWERS_WITHIN_S) as answer:
                return self._read(answer.read())
        except urllib.error.HTTPError as error:
            with error:
                raise _refused(error) from None
        except urllib.error.URLError as error:
            raise self._unreachable(error.reason) from None
        except (OSError, http.client.HTTPException) as error:
            raise self._unreachable(error) from None

    def _read(self, raw: bytes) -> Any:
        try:
            return json.loads(raw) if raw else None
        except ValueError:
            raise Unavailable(
                f"what answers at {self.url} is not a control service: its answer is no JSON;"
                f" check --url and {URL}"
            ) from None

    def _unreachable(self, reason: object) -> Unavailable:
        why = getattr(reason, "strerror", None) or str(reason) or type(reason).__name__
        return Unavailable(
            f"no control service answers at {self.url} ({why}); start one by `make run` or"
            f" `dovetail up`, or name another by --url or {URL}"
        )


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: object) -> None:
        """Give no other request: the redirect itself becomes the error."""
        return


class _TooManyRequestsError(RefusedError):
    pause_s = 1.0


def connect(arguments: argparse.Namespace, environ: Mapping[str, str] = os.environ) -> Client:
    return Client(arguments.url or environ.get(URL) or local_url(environ), _token(environ))


def local_url(environ: Mapping[str, str] = os.environ) -> str:
    """Where `make run` of this checkout has its control service, or had it last."""
    from deploy.local.home import Home
    from deploy.local.ports import last_ports
    from dovetail.topology import CONTROL

    port = last_ports(Home.of_checkout(environ)).get(CONTROL, _USUAL_PORT)
    return f"http://127.0.0.1:{port}"


def _token(environ: Mapping[str, str]) -> str:
    """The token, of which no error says a letter."""
    token, file = environ.get(TOKEN, "").strip(), environ.get(TOKEN_FILE, "")
    named = TOKEN
    if not token and file:
        named = f"{TOKEN_FILE}={file}"
        try:
            token = Path(file).read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            why = getattr(error, "strerror", None) or "it is not text"
            raise ConfigError(f"{named} cannot be read: {why}") from None
        if not token:
            raise ConfigError(f"{named} is empty: write the token there")
    if not (token.isascii() and token.isprintable()) or " " in token:
        raise ConfigError(f"{named} holds no token: one is a single word of ASCII characters")
    return token


def _address(url: str) -> str:
    parts = urlsplit(url)
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        raise ConfigError(f"{url!r} is no address of a control service; write http://host:port")
    if parts.username or parts.password:
        raise ConfigError(
            f"a secret does not belong into an address: give the token by {TOKEN_FILE} or {TOKEN}"
        )
    return url.rstrip("/")


def _refused(error: urllib.error.HTTPError) -> RefusedError:
    try:
        problem = json.loads(error.read())
    except (ValueError, OSError):
        problem = None
    if not isinstance(problem, dict):
        problem = {"title": f"{error.code} {error.reason}", "status": error.code}
    text = _told(error.code, problem)
    if error.code != 429:
        return RefusedError(text, error.code, problem)
    refused = _TooManyRequestsError(text, error.code, problem)
    pause = error.headers.get("Retry-After", "")
    refused.pause_s = float(pause) if pause.isdecimal() else 1.0
    return refused


def _told(status: int, problem: Mapping[str, Any]) -> str:
    """Title and detail, then a line for each field that is to blame."""
    said = [str(problem[name]) for name in ("title", "detail") if problem.get(name)]
    lines = [": ".join(dict.fromkeys(said)) or f"the control service answers {status}"]
    for one in problem.get("problems") or ():
        place = [f"line {one['line']}"] if one.get("line") else []
        place += [one["field"]] if one.get("field") else []
        lines.append(f"  {', '.join(place)}: {one['text']}" if place else f"  {one['text']}")
    if status == 401:
        lines.append(f"  give a token by {TOKEN} or {TOKEN_FILE}")
    return "\n".join(lines)
