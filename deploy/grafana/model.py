"""What a dashboard consists of, and its JSON as Grafana has it.

Panels flow from left to right in a grid of 24 columns, row by row; whoever writes a dashboard says
how wide a panel is, not where it stands.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

DATA_SOURCE = {"type": "prometheus", "uid": "dovetail-prometheus"}
_COLUMNS = 24
_SCHEMA = 38
"""Of Grafana 10; later ones read it and bring it up to date by themselves."""


class Kind(StrEnum):
    LINES = "timeseries"
    NUMBER = "stat"
    BARS = "bargauge"
    STATES = "state-timeline"
    HEAT = "heatmap"
    ALERTS = "alertlist"


class Unit(StrEnum):
    """Grafana's names of units."""

    COUNT = "short"
    RATE = "cps"
    BYTES = "bytes"
    SECONDS = "s"
    SHARE = "percentunit"
    YES = "bool_yes_no"


@dataclass(frozen=True, slots=True)
class Query:
    expression: str
    legend: str = ""


@dataclass(frozen=True, slots=True)
class Panel:
    title: str
    text: str
    """What is to be seen, and what to think of it."""
    queries: tuple[Query, ...]
    unit: Unit = Unit.COUNT
    kind: Kind = Kind.LINES
    width: int = 8
    stacked: bool = False
    bounds: tuple[float, float] | None = None
    """From where on it is a warning, and from where on bad; the other way round if they fall."""
    spark: bool = False
    """Whether only a pipeline of engine: spark has data for it."""

    @property
    def height(self) -> int:
        return 4 if self.kind is Kind.NUMBER else 8


@dataclass(frozen=True, slots=True)
class Row:
    title: str
    panels: tuple[Panel, ...]


@dataclass(frozen=True, slots=True)
class Variable:
    name: str
    query: str
    several: bool = False


PIPELINE = Variable("pipeline", "label_values(dovetail_pipeline_nodes, pipeline)")
NODES = Variable(
    "node", 'label_values(dovetail_held_bytes{pipeline="$pipeline"}, node)', several=True
)


@dataclass(frozen=True, slots=True)
class Dashboard:
    name: str
    """Of its file, and in its address."""
    title: str
    text: str
    rows: tuple[Row, ...]
    variables: tuple[Variable, ...] = field(default=(PIPELINE,))

    def panels(self) -> Iterator[Panel]:
        for row in self.rows:
            yield from row.panels

    def json(self) -> dict[str, Any]:
        return {
            "uid": f"dovetail-{self.name}",
            "title": f"Dovetail: {self.title}",
            "description": self.text,
            "tags": ["dovetail"],
            "schemaVersion": _SCHEMA,
            "editable": False,
            "graphTooltip": 1,
            "refresh": "10s",
            "time": {"from": "now-30m", "to": "now"},
            "timezone": "browser",
            "links": [_others()],
            "templating": {"list": [_variable(one) for one in self.variables]},
            "annotations": {"list": [_alerts()]},
            "panels": list(_placed(self.rows)),
        }


def _others() -> dict[str, Any]:
    """The way to the other dashboards, with pipeline and time as they are."""
    return {
        "title": "Dovetail",
        "type": "dashboards",
        "tags": ["dovetail"],
        "asDropdown": False,
        "includeVars": True,
        "keepTime": True,
    }


def _alerts() -> dict[str, Any]:
    """Lines where alerts fire."""
    return {
        "name": "alerts",
        "datasource": DATA_SOURCE,
        "enable": True,
        "iconColor": "red",
        "expr": 'ALERTS{alertstate="firing", alertname=~"Dovetail.*", pipeline=~"$pipeline|"}',
        "titleFormat": "{{alertname}}",
    }


_ALL = {"allValue": ".*", "current": {"text": "All", "value": "$__all"}}


def _variable(one: Variable) -> dict[str, Any]:
    return {
        "name": one.name,
        "label": one.name,
        "type": "query",
        "datasource": DATA_SOURCE,
        "query": {"query": one.query, "refId": one.name},
        "definition": one.query,
        "refresh": 2,
        "sort": 3,
        "multi": one.several,
        "includeAll": one.several,
        **(_ALL if one.several else {}),
    }


def _placed(rows: tuple[Row, ...]) -> Iterator[dict[str, Any]]:
    number, y = 0, 0
    for row in rows:
        number += 1
        yield {
            "id": number,
            "type": "row",
            "title": row.title,
            "collapsed": False,
            "gridPos": {"x": 0, "y": y, "w": _COLUMNS, "h": 1},
            "panels": [],
        }
        y += 1
        x = tallest = 0
        for panel in row.panels:
            if x + panel.width > _COLUMNS:
                x, y, tallest = 0, y + tallest, 0
            number += 1
            place = {"x": x, "y": y, "w": panel.width, "h": panel.height}
            yield _panel(panel, number, place)
            x, tallest = x + panel.width, max(tallest, panel.height)
        y += tallest


def _panel(panel: Panel, number: int, place: dict[str, int]) -> dict[str, Any]:
    found = {
        "id": number,
        "type": panel.kind.value,
        "title": panel.title,
        "description": panel.text,
        "gridPos": place,
        "options": _options(panel.kind),
    }
    if panel.kind is Kind.ALERTS:
        return found
    return {
        **found,
        "datasource": DATA_SOURCE,
        "targets": [_target(panel, query, i) for i, query in enumerate(panel.queries)],
        "fieldConfig": {"defaults": _field(panel), "overrides": []},
    }


def _target(panel: Panel, query: Query, i: int) -> dict[str, Any]:
    once = panel.kind in (Kind.NUMBER, Kind.BARS)
    return {
        "refId": chr(ord("A") + i),
        "datasource": DATA_SOURCE,
        "expr": query.expression,
        "legendFormat": query.legend or "__auto",
        "instant": once,
        "range": not once,
        "format": "heatmap" if panel.kind is Kind.HEAT else "time_series",
    }


def _field(panel: Panel) -> dict[str, Any]:
    found: dict[str, Any] = {"unit": panel.unit.value, "min": 0}
    if panel.unit is Unit.SHARE:
        found["max"] = 1
    if panel.kind is Kind.LINES:
        found["custom"] = {
            "drawStyle": "line",
            "lineWidth": 1,
            "fillOpacity": 20 if panel.stacked else 5,
            "showPoints": "never",
            "spanNulls": 60_000,
            "stacking": {"mode": "normal" if panel.stacked else "none"},
        }
    found["thresholds"] = _thresholds(panel.bounds)
    if panel.bounds and panel.kind is not Kind.LINES:
        found["color"] = {"mode": "thresholds"}
    return found


def _thresholds(bounds: tuple[float, float] | None) -> dict[str, Any]:
    if bounds is None:
        steps: list[dict[str, Any]] = [{"color": "green", "value": None}]
    else:
        warning, bad = bounds
        colours = ("green", "orange", "red") if warning <= bad else ("red", "orange", "green")
        places = (None, min(bounds), max(bounds))
        pairs = zip(colours, places, strict=True)
        steps = [{"color": colour, "value": place} for colour, place in pairs]
    return {"mode": "absolute", "steps": steps}


def _options(kind: Kind) -> dict[str, Any]:
    legend = {"displayMode": "list", "placement": "bottom", "showLegend": True}
    latest = {"calcs": ["lastNotNull"], "fields": "", "values": False}
    found: dict[Kind, dict[str, Any]] = {
        Kind.LINES: {"legend": legend, "tooltip": {"mode": "multi", "sort": "desc"}},
        Kind.NUMBER: {"reduceOptions": latest, "colorMode": "value", "graphMode": "none"},
        Kind.BARS: {"reduceOptions": latest, "orientation": "horizontal", "displayMode": "basic"},
        Kind.STATES: {"legend": legend, "showValue": "never", "mergeValues": True},
        Kind.HEAT: {"calculate": False, "yAxis": {"unit": Unit.SECONDS.value}},
        Kind.ALERTS: {
            "viewMode": "list",
            "groupMode": "default",
            "alertInstanceLabelFilter": '{alertname=~"Dovetail.*"}',
            "datasource": "Prometheus",
            "stateFilter": {"firing": True, "pending": True, "noData": False, "normal": False},
        },
    }
    return found.get(kind, {})
