from __future__ import annotations

from typing import TYPE_CHECKING

from dovetail.errors import ConfigError
from dovetail.node.window import LEAST, SPANNING_BYTES_AN_EVENT
from dovetail.pipeline.spec import Algorithm
from dovetail.stream.handler import Step
from services.disk_phase.settings import LEAST_JOIN, Shares

if TYPE_CHECKING:
    from dovetail.pipeline.spec import Pipeline

_ARRIVALS_SHARE = 12
_COLUMNS = 64
"""Bytes of an event that has arrived, beside its own."""
_LINE_SHARE = 4
_LOOKING_UP = (Algorithm.INLJ, Algorithm.SRJ, Algorithm.AUTO)
_LOOKED_UP, _READ_FOR = 640, 320
"""Of a node's memory, for each event that can wait: few do where they are looked up; where a scan
or a partition answers them, about as many as the join has room for."""


def shares(pipeline: Pipeline) -> Shares:
    """A node's budget; its join moves its own between cache, pending events and collected rows."""
    whole = pipeline.memory
    an_event = _LOOKED_UP if pipeline.algorithm in _LOOKING_UP else _READ_FOR
    window = max(LEAST, whole // an_event) * SPANNING_BYTES_AN_EVENT
    arrivals = whole // _ARRIVALS_SHARE
    line = whole // _LINE_SHARE if pipeline.order.within is not None else 0
    join = whole - window - arrivals - line
    if join < LEAST_JOIN:
        raise ConfigError(
            f"memory of {whole} bytes leaves a node's join {join}: too little to hold events; "
            f"give the pipeline more"
        )
    return Shares(window, arrivals, join, line)


def capacity(pipeline: Pipeline) -> int:
    """Events in the window."""
    return shares(pipeline).window // SPANNING_BYTES_AN_EVENT


def step(pipeline: Pipeline) -> Step:
    """No more than there is room for, should none of it be cached."""
    arrivals = shares(pipeline).arrivals
    return Step(min(50_000, arrivals // (2 * _COLUMNS)), arrivals // 2, linger_s=0.1)
