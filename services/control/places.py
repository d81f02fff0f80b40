"""Where control may ask a stage what it holds.

Whoever may write to `dovetail.stats`, and every service may, can say in a heartbeat that a stage is
at any address. So an address that is only said is asked where it is this machine's own, and nowhere
else. Where stages are on other machines, `DOVETAIL_STAGES` says where, for each by its name:

    http://{process}:8080                                 as in Compose: cache-phase-0
    https://sales-{service}-{node}.sales-{service}:8080   as in the chart: sales-cache-phase-0.…
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from dovetail.errors import ConfigError, DovetailError
from dovetail.web import is_loopback

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dovetail.contracts.control_pb2 import Heartbeat
    from dovetail.topology import Topology

VARIABLE = "DOVETAIL_STAGES"
_WORDS = ("process", "service", "node")


class UnknownPlaceError(DovetailError):
    """Nobody whom control believes has said where the stage is."""


class Places:
    def __init__(self, topology: Topology, template: str = "") -> None:
        self._single = {process.service for process in topology.processes if process.node is None}
        self._template = template

    @classmethod
    def from_environment(cls, topology: Topology, environment: Mapping[str, str]) -> Places:
        template = environment.get(VARIABLE, "").strip()
        tried = re.sub(rf"{{({'|'.join(_WORDS)})}}", "x", template)
        if template and _origin(tried) != tried:
            raise ConfigError(
                f"{VARIABLE} does not say where stages are: write http://{{process}}:8080, with "
                f"{', '.join(f'{{{word}}}' for word in _WORDS)} and nothing behind the port"
            )
        return cls(topology, template)

    @property
    def named(self) -> bool:
        """Whether stages are asked by a name of theirs, and not by this machine's addresses."""
        return bool(self._template)

    def of(self, beat: Heartbeat) -> str:
        """Scheme, host and port of the stage that a heartbeat is of."""
        if self._template:
            # The monitor hears only services of the pipeline: no name leads astray.
            service = re.sub(r"[_.]", "-", beat.service)
            process = service if beat.service in self._single else f"{service}-{beat.node}"
            words = {"process": process, "service": service, "node": str(beat.node)}
            return re.sub(r"{(\w+)}", lambda found: words[found[1]], self._template)
        said = _origin(beat.url)
        if said and is_loopback(urlsplit(said).hostname or ""):
            return said
        raise UnknownPlaceError(
            "it says that it is on another machine, and a heartbeat is not believed in that: set "
            f"{VARIABLE} for control (docs/deployment.md)"
        )


def _origin(url: str) -> str:
    """The URL, if it is scheme, host and port alone; else nothing."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        return ""
    host = parts.hostname or ""
    place = f"[{host}]" if ":" in host else host
    origin = f"{parts.scheme}://{place}" + ("" if port is None else f":{port}")
    named = re.fullmatch(r"[A-Za-z0-9.-]+|[0-9A-Fa-f:.]+", host)
    return origin if named and parts.scheme in ("http", "https") and origin == url else ""
