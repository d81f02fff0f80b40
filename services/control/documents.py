"""Pipeline documents that come by the API: parsed, compared, and changed as little as it takes."""

from __future__ import annotations

import json
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any

import yaml
from yaml.nodes import MappingNode, Node

from dovetail.pipeline.document import NotYaml, read_document
from dovetail.pipeline.load import OVERRIDES, parse_pipeline
from dovetail.pipeline.problem import Fault, InvalidPipelineError
from dovetail.pipeline.shape import MOST_LINKS
from dovetail.pipeline.size import format_size
from dovetail.stream.events.registry import URL
from services.problem import Blame, Kind, ProblemError, conflict

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from dovetail.pipeline.spec import Pipeline

PATCHED = ("algorithm", "memory", "order", "overload")
"""Settings that can be given by themselves."""
_FREE = ("algorithm", "memory", "order", "overload", "master.refresh", "source.max_event_bytes")
_REGISTRY = ("source", "registry")
_FILES = (("source", "schema_file"), _REGISTRY, ("master", "snapshot"))
_WHY_FIXED = {
    "name": "a pipeline keeps its name, for its topics begin with it",
    "key": "the key has placed the events that are in flight",
    "slots": "slots are the partitions of the topics between the stages",
    "nodes": "processes are started by Helm or `make run`: change it there",
    "engine": "the services and Spark have states of their own",
    "layout": "the processes of one layout take over what those of the other have drained",
    "source": "it tells what an event is, and one in flight has been told already",
    "master": "an event in flight would be joined with another table than it was taken for",
    "join": "an event in flight would get another output than it was taken for",
    "then": "an event in flight may be past that table, or on its way to it",
    "sink": "readers would miss what goes elsewhere",
}
_ELSE = "drain it, stop it, and start it with the new file"


def parse(document: str, file: Path, environment: Mapping[str, str], known: str = "") -> Pipeline:
    """The pipeline of a document that came by the API, as if it stood in the file's place.

    Files that the `known` document names may be named again, wherever they are.
    """
    _require_near(document, known)
    return parse_pipeline(document.encode(), file, environment)


def written(pipeline: Pipeline) -> dict[str, Any]:
    """A pipeline as JSON has it; what is infinite there is null."""
    data: dict[str, Any] = json.loads(pipeline.model_dump_json())
    return data


def changes(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    """Tell what is different, a line for each setting."""
    before, after = dict(_flat(old)), dict(_flat(new))
    return [
        f"{path}: {_shown(path, before.get(path))} → {_shown(path, after.get(path))}"
        for path in sorted(before.keys() | after.keys())
        if before.get(path) != after.get(path)
    ]


def require_free(old: Mapping[str, Any], new: Mapping[str, Any]) -> None:
    """Refuse a change of what cannot change while events are in flight."""
    before, after = dict(_flat(old)), dict(_flat(new))
    blames = [
        Blame(path, f"{_WHY_FIXED.get(path.partition('.')[0], 'it cannot change')}; {_ELSE}")
        for path in sorted(before.keys() | after.keys())
        if before.get(path) != after.get(path) and not _is_free(path, before, after)
    ]
    if blames:
        fields = ", ".join(blame.field for blame in blames)
        raise ProblemError(
            Kind.SETTING_FIXED,
            f"{fields} cannot change while the pipeline is there; `problems` says why",
            blames=blames,
        )


def require_not_overridden(old: str, new: str, environment: Mapping[str, str]) -> None:
    """Refuse a change that the services' environment would hide."""
    before, after = read_document(old.encode()).data, read_document(new.encode()).data
    for variable, setting in OVERRIDES.items():
        if environment.get(variable, "").strip() and before.get(setting) != after.get(setting):
            raise conflict(
                f"{setting} is set by {variable} in the services' environment, which wins: unset it"
            )


def patched(document: str, settings: Mapping[str, Any]) -> str:
    """The document with these settings, and otherwise as it was written, comments and all."""
    for name, value in settings.items():
        document = _with(document, name, value)
    return document


def _with(document: str, name: str, value: Any) -> str:
    root = yaml.compose(document, Loader=yaml.SafeLoader)
    assert isinstance(root, MappingNode)
    if root.flow_style:
        data = {**read_document(document.encode()).data, name: value}
        return yaml.safe_dump(data, sort_keys=False, allow_unicode=True)
    found = [node for key, node in root.value if key.value == name]
    if not found:
        return f"{document.rstrip()}\n{name}: {_flow(value)}\n"
    start, end = found[-1].start_mark.index, _end(document, found[-1])
    return f"{document[:start]}{_flow(value)}{document[end:]}"


def _end(document: str, node: Node) -> int:
    """Where a value ends; what follows a block before the next setting is not part of it."""
    start, end = int(node.start_mark.index), int(node.end_mark.index)
    lines = document[start:end].splitlines(keepends=True)
    while len(lines) > 1 and (not lines[-1].strip() or lines[-1].lstrip().startswith("#")):
        end -= len(lines.pop())
    return start + len(document[start:end].rstrip())


def _flow(value: Any) -> str:
    text = yaml.safe_dump(value, default_flow_style=True, width=1000, allow_unicode=True)
    return text.removesuffix("...\n").strip()


def _require_near(document: str, known: str) -> None:
    """Refuse files elsewhere than beside the pipeline's own: whoever asks is not at home here."""
    try:
        found = read_document(document.encode())
        at_home = {path for _, path in _files(read_document(known.encode()).data)} if known else ()
    except NotYaml:
        return  # told by whoever parses it
    faults = tuple(
        Fault(
            found.line(place),
            ".".join(place),
            f"'{path}' is not beside the pipeline file; name a file there",
        )
        for place, path in _files(found.data)
        if _is_elsewhere(place, path) and path not in at_home
    )
    if faults:
        raise InvalidPipelineError("\n".join(fault.text for fault in faults), faults)


def _files(data: dict[str, Any]) -> Iterator[tuple[tuple[str, str], str]]:
    """What names a file or a folder, of every table."""
    links = data.get("then")
    # More links than these are refused, whatever they name.
    for one in (data, *(links[:MOST_LINKS] if isinstance(links, list) else ())):
        for section, setting in _FILES:
            inner = one.get(section) if isinstance(one, dict) else None
            path = inner.get(setting) if isinstance(inner, dict) else None
            if isinstance(path, str):
                yield (section, setting), path


def _is_elsewhere(place: tuple[str, str], path: str) -> bool:
    """Whether it is a path that leads away; a registry may have a URL, as schemas_at reads it."""
    if place == _REGISTRY and path.startswith(URL):
        return False
    pure = PurePath(path)
    return pure.is_absolute() or ".." in pure.parts


def _flat(data: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Every setting by its path; a field and an order are one value, links have a number."""
    if isinstance(data, dict) and path != "order" and not {"type", "optional"} <= data.keys():
        for name, value in data.items():
            yield from _flat(value, f"{path}.{name}" if path else name)
    elif path == "then":
        for number, link in enumerate(data):
            yield from _flat(link, f"then.{number}")
    else:
        yield path, data


def _is_free(path: str, before: Mapping[str, Any], after: Mapping[str, Any]) -> bool:
    if path.startswith("source.fields."):
        return _widens(before.get(path), after.get(path))
    own = ".".join(path.split(".")[2:]) if path.startswith("then.") else path
    both = path in before and path in after
    free = any(own == name or own.startswith(f"{name}.") for name in _FREE)
    return free and (both or not path.startswith("then."))


def _widens(old: Any, new: Any) -> bool:
    """Whether a field takes all that it took: it is new, or may now be missing."""
    if old is None:
        return True
    return new is not None and old["type"] == new["type"] and bool(new["optional"])


def _shown(path: str, value: Any) -> str:
    if value is None:
        return "none"
    if path.rpartition(".")[2] == "memory" and isinstance(value, int):
        return format_size(value)
    if path == "order" and isinstance(value, dict):
        return f"within {value['within']}"
    if isinstance(value, dict):
        return f"{value.get('type')}{'?' if value.get('optional') else ''}"
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)
