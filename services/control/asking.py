"""Asks the stages themselves, by their own HTTP endpoints.

Outside local mode with a pass of control's own: for a minute, and good at stages alone. Nobody's
token goes there, and a pass only to where stages are known to be (services/control/places.py).
"""

from __future__ import annotations

import json
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dovetail.service import tls
from dovetail.web import Asker, NoAnswerError
from services.access.tokens import PASS_S
from services.control.monitor import GONE
from services.control.places import UnknownPlaceError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dovetail.topology import Topology
    from dovetail.web import Answer
    from services.access.tokens import Tokens
    from services.control.monitor import Member, Monitor
    from services.control.places import Places

_WITHIN_S = 8.0
_MOST_BYTES = 8 << 20
_MOST_KEPT = 256


@dataclass(frozen=True, slots=True)
class Heard:
    """What the processes of a service said, by node, and why some of them did not."""

    answers: dict[int, dict[str, Any]]
    missing: list[dict[str, Any]]


class Asking:
    def __init__(self, monitor: Monitor, places: Places, tokens: Tokens | None) -> None:
        """Without tokens, in local mode, no pass is needed."""
        self._monitor = monitor
        self._places = places
        self._tokens = tokens
        self._askers: dict[str, Asker] = {}
        self._pass: tuple[float, str] | None = None
        self._pool = ThreadPoolExecutor(16, "asking")
        self._trusted = tls.asked(by_name=places.named)

    def phase(
        self,
        topology: Topology,
        kind: str,
        path: str,
        query: Mapping[str, str | int],
        node: int | None = None,
    ) -> Heard:
        """Ask who does the work of a phase on every node, or on one.

        Spark's application speaks for all of its own.
        """
        service = topology.doing(kind)
        if not topology.by_spark:
            return self._all(service, path, query, node)
        heard = self._all(service, path, {**query, "link": topology.number})
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
            member.beat.node: self._pool.submit(self._ask, member, path, query, headers)
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
        self,
        member: Member,
        path: str,
        query: Mapping[str, str | int],
        headers: Mapping[str, str],
    ) -> dict[str, Any] | str:
        """The answer, or why there is none."""
        try:
            answer = self._asker(self._places.of(member.beat)).ask(path, query, headers=headers)
            if not answer.is_good:
                return f"it answers {answer.status}{_why(answer)}"
            said = json.loads(answer.body)
        except UnknownPlaceError as error:
            return str(error)
        except (NoAnswerError, ValueError) as error:
            return f"it does not answer: {error}"
        return said if isinstance(said, dict) else "it does not answer as a stage does"

    def _asker(self, origin: str) -> Asker:
        if len(self._askers) > _MOST_KEPT:  # of processes that have other ports by now
            self._askers.clear()
        new = Asker(
            origin,
            {},
            within_s=_WITHIN_S,
            most_bytes=_MOST_BYTES,
            proxied=False,
            trusted=self._trusted,
        )
        return self._askers.setdefault(origin, new)


def _why(answer: Answer) -> str:
    """What a refusal says, if it says anything that can be read."""
    try:
        return f": {json.loads(answer.body)['detail']}"
    except (ValueError, LookupError, TypeError):
        return ""
