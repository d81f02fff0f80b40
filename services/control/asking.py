"""Asks the services themselves, by their own HTTP endpoints.

Outside local mode with a pass of control's own, which may only look, and for a minute: where a
service is, it says itself, and nobody's token goes to an address that was only said.
"""

from __future__ import annotations

import json
import time
import urllib.error
import urllib.parse
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dovetail.topology import ENRICH
from services.access.tokens import PASS_S
from services.control.monitor import GONE

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dovetail.topology import Topology
    from services.access.tokens import Tokens
    from services.control.monitor import Member, Monitor

_WITHIN_S = 8.0
_MOST_BYTES = 8 << 20


@dataclass(frozen=True, slots=True)
class Heard:
    """What the processes of a service said, by node, and why some of them did not."""

    answers: dict[int, dict[str, Any]]
    missing: list[dict[str, Any]]


class Asking:
    def __init__(self, monitor: Monitor, tokens: Tokens | None) -> None:
        """Without tokens, in local mode, no pass is needed."""
        self._monitor = monitor
        self._tokens = tokens
        self._pass: tuple[float, str] | None = None
        self._pool = ThreadPoolExecutor(16, "asking")

    def phase(
        self,
        topology: Topology,
        kind: str,
        path: str,
        query: Mapping[str, str | int],
        node: int | None = None,
    ) -> Heard:
        """Ask a phase of every node, or of one; Spark's application speaks for all of its own."""
        if not topology.by_spark:
            return self._all(topology.service(kind), path, query, node)
        heard = self._all(ENRICH, path, {**query, "link": topology.number})
        nodes = {one["node"]: one for whole in heard.answers.values() for one in whole["nodes"]}
        return Heard(
            {number: one for number, one in nodes.items() if node in (None, number)}, heard.missing
        )

    def _all(
        self,
        service: str,
        path: str,
        query: Mapping[str, str | int],
        node: int | None = None,
    ) -> Heard:
        """Ask every process of a service, or that of one node."""
        headers = self._headers()
        now = time.monotonic()
        members = [
            member
            for member in self._monitor.members()
            if member.beat.service == service and node in (None, member.beat.node)
        ]
        there = [member for member in members if member.state(now) != GONE]
        gone = [
            {"node": member.beat.node, "reason": "it is gone"}
            for member in members
            if member.state(now) == GONE
        ]
        asked = {
            member.beat.node: self._pool.submit(_ask, member, path, query, headers)
            for member in there
        }
        heard = {number: future.result() for number, future in asked.items()}
        answers = {number: said for number, said in heard.items() if isinstance(said, dict)}
        silent = [
            {"node": number, "reason": said}
            for number, said in heard.items()
            if isinstance(said, str)
        ]
        return Heard(answers, [*gone, *silent])

    def _headers(self) -> dict[str, str]:
        if self._tokens is None:
            return {}
        now = time.monotonic()
        if self._pass is None or now - self._pass[0] > PASS_S / 2:
            self._pass = (now, self._tokens.pass_for("control"))
        return {"Authorization": f"Bearer {self._pass[1]}"}


def _ask(
    member: Member, path: str, query: Mapping[str, str | int], headers: dict[str, str]
) -> dict[str, Any] | str:
    """The answer, or why there is none."""
    url = f"{member.beat.url}{path}?{urllib.parse.urlencode(query)}"
    request = urllib.request.Request(url, headers=headers)  # noqa: S310 - a service's own address
    try:
        with urllib.request.urlopen(request, timeout=_WITHIN_S) as answer:  # noqa: S310 - as above
            said: dict[str, Any] = json.loads(answer.read(_MOST_BYTES))
            return said
    except urllib.error.HTTPError as error:
        return f"it answers {error.code}{_why(error)}"
    except (OSError, ValueError) as error:
        return f"it does not answer: {error}"


def _why(error: urllib.error.HTTPError) -> str:
    """What a refusal says, if it says anything that can be read."""
    try:
        return f": {json.loads(error.read(_MOST_BYTES))['detail']}"
    except (OSError, ValueError, LookupError, TypeError):
        return ""
