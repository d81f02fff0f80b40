"""Which field types the JSON text of a binary event can have, as its schema says.

An event of another format is transcoded into JSON text before it is checked against the
pipeline's fields. What its schema rules out is told when the pipeline is checked, not by a dead
letter for every event.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from dovetail.pipeline.hints import did_you_mean
from dovetail.stream.events.paths import join, split

Types = frozenset[str]
"""The field types that may be declared for a value; the best one is in PREFERRED first."""
Rendering = Types | dict[str, "Rendering"]
"""A value's types, or what is in an object."""

PREFERRED = ("int", "decimal", "float", "boolean", "date", "timestamp", "text", "json")

INT: Types = frozenset({"int", "float", "decimal", "json"})
FLOAT: Types = frozenset({"float", "decimal", "json"})
DECIMAL: Types = frozenset({"decimal", "float", "json"})
TEXT: Types = frozenset({"text", "decimal", "date", "timestamp", "json"})
BOOLEAN: Types = frozenset({"boolean", "json"})
DATE: Types = frozenset({"date", "text", "json"})
TIMESTAMP: Types = frozenset({"timestamp", "text", "json"})
BASE64: Types = frozenset({"text", "json"})
ANY: Types = frozenset({"json"})


def misfits(
    fields: Mapping[str, str], rendering: Mapping[str, Rendering], schema: str
) -> Iterator[tuple[str | None, str]]:
    """Say which fields do not go with the schema, and the cure; None where one has to be added."""
    declared = {split(path): path for path in fields}
    known = {join(names) for names, _ in _leaves(rendering, ())}
    for names, path in declared.items():
        found = _find(rendering, names)
        if found is None:
            near = did_you_mean(path, known) or "; remove it"
            yield path, f"'{path}' is not in {schema}{near}"
        elif fields[path] not in _types(found):
            yield path, f"'{path}' is {fields[path]}, but {schema} makes it {_told(found)}"
    for names, found in _leaves(rendering, ()):
        if not any(names[:end] in declared for end in range(1, len(names) + 1)):
            path = join(names)
            yield None, f"{schema} has '{path}' too; add {path}: {_best(found)}"


def _types(rendering: Rendering) -> Types:
    return ANY if isinstance(rendering, dict) else rendering


def _find(rendering: Mapping[str, Rendering], names: tuple[str, ...]) -> Rendering | None:
    found: Rendering | Mapping[str, Rendering] | None = rendering
    for name in names:
        found = found.get(name) if isinstance(found, Mapping) else None
    return found if isinstance(found, dict | frozenset) else None


def _leaves(
    rendering: Mapping[str, Rendering], names: tuple[str, ...]
) -> Iterator[tuple[tuple[str, ...], Types]]:
    for name, found in rendering.items():
        if isinstance(found, dict) and found:
            yield from _leaves(found, (*names, name))
        else:
            yield (*names, name), _types(found)


def _best(types: Types) -> str:
    return next(name for name in PREFERRED if name in types)


def _told(rendering: Rendering) -> str:
    if isinstance(rendering, dict):
        return "an object; name the fields in it, or write json"
    return (
        f"{_best(rendering)}; write {' or '.join(name for name in PREFERRED if name in rendering)}"
    )
