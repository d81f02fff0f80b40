"""An Avro schema (.avsc) as types that refer to one another.

Follows the specification of Avro 1.12. A logical type that is not listed in LOGICAL is ignored, as
the specification asks: the value is rendered as the type beneath it.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import Any

from dovetail.errors import ConfigError

PRIMITIVES = frozenset({"null", "boolean", "int", "long", "float", "double", "bytes", "string"})
LOGICAL = {
    "date": {"int"},
    "time-millis": {"int"},
    "time-micros": {"long"},
    **{
        f"{zone}timestamp-{unit}": {"long"}
        for zone in ("", "local-")
        for unit in ("millis", "micros", "nanos")
    },
    "decimal": {"bytes", "fixed"},
}
MOST_DIGITS = 38
"""Of a decimal: what fits into 16 bytes."""

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_NOTHING = object()


@dataclass(eq=False, slots=True)
class Type:
    """A type; of its attributes, only those of its kind are set."""

    kind: str
    logical: str = ""
    scale: int = 0
    name: str = ""
    """The full name of a record, an enum or a fixed."""
    fields: list[Field] = field(default_factory=list)
    symbols: list[str] = field(default_factory=list)
    symbol_default: str | None = None
    items: Type | None = None
    """Of an array or a map."""
    branches: list[Type] = field(default_factory=list)
    size: int = 0

    def __str__(self) -> str:
        if self.kind == "union":
            return f"[{', '.join(map(str, self.branches))}]"
        return self.name or self.logical or self.kind


@dataclass(frozen=True, slots=True)
class Field:
    name: str
    type: Type
    default: Any
    has_default: bool
    aliases: tuple[str, ...]


def parse(text: str | bytes) -> Type:
    """Read a schema; a ConfigError says what is wrong with it."""
    try:
        tree = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"it is not JSON: {error}") from error
    try:
        made = _Parser().type(tree, "")
    except RecursionError as error:
        raise ConfigError("it is nested too deeply") from error
    if made.kind != "record":
        raise ConfigError(f"it is {made}, but an event is a record")
    _refuse_endless(made, [])
    return made


class _Parser:
    def __init__(self) -> None:
        self._named: dict[str, Type] = {}

    def type(self, tree: Any, namespace: str) -> Type:
        if isinstance(tree, str):
            return self._reference(tree, namespace)
        if isinstance(tree, list):
            return self._union(tree, namespace)
        if not isinstance(tree, dict) or "type" not in tree:
            raise ConfigError(f"{_shown(tree)} is not a type")
        kind = tree["type"]
        if kind in ("record", "error", "enum", "fixed"):
            return self._definition(tree, kind, namespace)
        if kind in ("array", "map"):
            return Type(
                kind, items=self.type(tree.get("items" if kind == "array" else "values"), namespace)
            )
        made = self.type(kind, namespace)
        return _logical(Type(made.kind), tree) if made.kind in PRIMITIVES else made

    def _reference(self, name: str, namespace: str) -> Type:
        if name in PRIMITIVES:
            return Type(name)
        for full in (_full(name, namespace), name):
            if full in self._named:
                return self._named[full]
        raise ConfigError(f"the type '{name}' is not defined before it is used")

    def _union(self, tree: list[Any], namespace: str) -> Type:
        branches = [self.type(branch, namespace) for branch in tree]
        names = [branch.name or branch.kind for branch in branches]
        if not branches or len(set(names)) < len(names) or "union" in names:
            raise ConfigError(f"the union {_shown(tree)} is empty, nested or has a type twice")
        return Type("union", branches=branches)

    def _definition(self, tree: dict[str, Any], kind: str, namespace: str) -> Type:
        full = _full(_text(tree, "name"), tree.get("namespace", namespace))
        for part in full.split("."):
            _check_name(part)
        if full in self._named:
            raise ConfigError(f"'{full}' is defined twice")
        made = Type("record" if kind == "error" else kind, name=full)
        self._named[full] = made
        inner = full.rpartition(".")[0]
        if kind == "enum":
            made.symbols = _names(tree, "symbols")
            made.symbol_default = tree.get("default")
        elif kind == "fixed":
            made.size = tree.get("size", -1)
            if type(made.size) is not int or not 0 <= made.size < 1 << 31:
                raise ConfigError(f"the size of '{full}' is {_shown(tree.get('size'))}")
            _logical(made, tree)
        else:
            made.fields = [self._field(part, inner) for part in _list(tree, "fields")]
            if len({part.name for part in made.fields}) < len(made.fields):
                raise ConfigError(f"'{full}' has two fields of one name")
        return made

    def _field(self, tree: Any, namespace: str) -> Field:
        if not isinstance(tree, dict) or "type" not in tree:
            raise ConfigError(f"{_shown(tree)} is not a field: it needs a name and a type")
        name = _check_name(_text(tree, "name"))
        default = tree.get("default", _NOTHING)
        return Field(
            name,
            self.type(tree["type"], namespace),
            None if default is _NOTHING else default,
            default is not _NOTHING,
            tuple(tree.get("aliases", ())),
        )


def _logical(made: Type, tree: dict[str, Any]) -> Type:
    logical = tree.get("logicalType")
    if not isinstance(logical, str) or made.kind not in LOGICAL.get(logical, ()):
        return made
    made.logical = logical
    if logical == "decimal":
        precision, scale = tree.get("precision"), tree.get("scale", 0)
        if type(precision) is not int or type(scale) is not int or not 0 <= scale <= precision:
            raise ConfigError("a decimal needs a precision, and a scale up to it")
        if not 1 <= precision <= MOST_DIGITS:
            raise ConfigError(
                f"a decimal of {precision} digits is not supported: at most {MOST_DIGITS} are"
            )
        made.scale = scale
    return made


def _refuse_endless(made: Type, around: list[Type]) -> None:
    """Refuse a record that holds itself with no union, array or map in between."""
    if made.kind != "record":
        return
    if made in around:
        raise ConfigError(f"'{made.name}' contains itself in every event: no event could end")
    for part in made.fields:
        _refuse_endless(part.type, [*around, made])


def _full(name: str, namespace: Any) -> str:
    return f"{namespace}.{name}" if namespace and "." not in name else name


def _check_name(name: str) -> str:
    if not _NAME.fullmatch(name):
        raise ConfigError(f"{_shown(name)} cannot be a name in Avro")
    return name


def _text(tree: dict[str, Any], key: str) -> str:
    if not isinstance(tree.get(key), str):
        raise ConfigError(f"{_shown(tree)} needs a {key}")
    return str(tree[key])


def _list(tree: dict[str, Any], key: str) -> list[Any]:
    if not isinstance(tree.get(key), list):
        raise ConfigError(f"{_shown(tree)} needs a list of {key}")
    return list(tree[key])


def _names(tree: dict[str, Any], key: str) -> list[str]:
    names = _list(tree, key)
    for name in names:
        if not isinstance(name, str):
            raise ConfigError(f"{_shown(name)} cannot be a name in Avro")
        _check_name(name)
    return names


def _shown(tree: Any) -> str:
    text = json.dumps(tree)
    return text if len(text) < 80 else f"{text[:80]}…"
