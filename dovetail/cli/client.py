"""The control service's API over HTTP; an error of its becomes a DovetailError.

Too many requests (429): the request was not looked at, and is sent again after the pause named.
"""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlsplit

from dovetail.errors import ConfigError, RefusedError, Unavailable
from dovetail.web import Asker, NoAnswerError

if TYPE_CHECKING:
    import argparse
    from collections.abc import Mapping

    from dovetail.web import Answer

URL = "DOVETAIL_URL"
TOKEN = "DOVETAIL_TOKEN"  # noqa: S105 - the variable's name
TOKEN_FILE = "DOVETAIL_TOKEN_FILE"  # noqa: S105 - the same

_ANSWERS_WITHIN_S = 40.0
"""A little longer than the longest that a request may wait for a job."""
_PAUSES = 5
_LONGEST_PAUSE_S = 10.0
_MOST_BYTES = 256 << 20
_USUAL_PORT = 18080


class Client:
    def __init__(self, url: str, token: str = "") -> None:
        self.url = _address(url)
        headers = {"Accept": "application/json"}
        if token:
            headers["Authorization"] = f"Bearer {token}"
        self._asker = Asker(self.url, headers, within_s=_ANSWERS_WITHIN_S, most_bytes=_MOST_BYTES)

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
        for attempt in range(_PAUSES + 1):
            try:
                return self._send(method, path, body, given)
            except _TooManyRequestsError as refused:
                if attempt == _PAUSES or refused.pause_s > _LONGEST_PAUSE_S:
                    raise
                time.sleep(refused.pause_s)
        raise AssertionError

    def _send(
        self,
        method: str,
        path: str,
        body: Mapping[str, object] | None,
        query: Mapping[str, object],
    ) -> Any:
        data = None if body is None else json.dumps(body).encode()
        headers = {} if body is None else {"Content-Type": "application/json"}
        try:
            answer = self._asker.ask(path, query, method=method, body=data, headers=headers)
        except NoAnswerError as error:
            raise self._unreachable(error) from None
        if not answer.is_good:
            raise _refused(answer)
        return self._read(answer.body)

    def _read(self, raw: bytes) -> Any:
        try:
            return json.loads(raw) if raw else None
        except ValueError:
            raise Unavailable(
                f"what answers at {self.url} is not a control service: its answer is no JSON;"
                f" check --url and {URL}"
            ) from None

    def _unreachable(self, why: NoAnswerError) -> Unavailable:
        return Unavailable(
            f"no control service answers at {self.url} ({why}); start one by `make run` or"
            f" `dovetail up`, or name another by --url or {URL}"
        )


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
        named = f"the file that {TOKEN_FILE} names"
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
        raise ConfigError(
            f"what --url or {URL} gives is no address of a control service; write http://host:port"
        )
    if parts.username or parts.password:
        raise ConfigError(
            f"a secret does not belong into an address: give the token by {TOKEN_FILE} or {TOKEN}"
        )
    return url.rstrip("/")


def _refused(answer: Answer) -> RefusedError:
    status = answer.status
    try:
        problem = json.loads(answer.body)
    except ValueError:
        problem = None
    if not isinstance(problem, dict):
        problem = {"title": f"{status} {answer.reason}", "status": status}
    text = _told(status, problem)
    if status != 429:
        return RefusedError(text, status, problem)
    refused = _TooManyRequestsError(text, status, problem)
    pause = answer.headers.get("retry-after", "")
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
