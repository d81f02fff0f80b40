"""YAML as plain data, with the line of everything and the traps of YAML 1.1 pointed out."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import yaml
from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from dovetail.pipeline.problem import Problem

if TYPE_CHECKING:
    from collections.abc import Iterator

_TAG = "tag:yaml.org,2002:"
_MERGE = f"{_TAG}merge"
KINDS = {
    f"{_TAG}bool": "a boolean",
    f"{_TAG}int": "a number",
    f"{_TAG}float": "a number",
    f"{_TAG}null": "nothing",
    f"{_TAG}timestamp": "a date",
}
_PLAIN_TAGS = {*KINDS, *(f"{_TAG}{kind}" for kind in ("str", "map", "seq", "merge", "value"))}
_DECIMAL = re.compile(r"[-+]?(0|[1-9][0-9_]*)")
_LONGEST_NUMBER = 40
"""What is longer stays text: YAML takes long to count some of them, and Python to write others."""
MOST_MERGED = 10_000
"""Settings that all `<<` of a document bring: a few lines of them could bring any number."""

_HINTS = (
    (r"'\t'", "indent with spaces, not with tabs"),
    ("mapping values are not allowed", "quote a value that has ': ' in it, or check the indent"),
    ("could not find expected ':'", "write 'name: value', with a space after the colon"),
    ("<block end>", "check that the lines of one section begin in the same column"),
    ("expected ',' or", "close the bracket or brace, and put commas between the items"),
    ("while scanning a quoted scalar", "close the quotation mark"),
    ("undefined alias", "define the anchor (&name) above its use, or quote the value"),
    ("cannot start any token", "quote the value"),
    ("expected a single document", "keep one pipeline in a file, without '---' between"),
)


class NotYaml(Exception):  # noqa: N818 - it names a state; the loader turns it into a ConfigError
    def __init__(self, line: int | None, text: str) -> None:
        super().__init__(text)
        self.problem = Problem((), text, line=line)


@dataclass(slots=True)
class Document:
    data: dict[str, Any]
    root: Node
    problems: list[Problem] = field(default_factory=list)

    def node(self, path: tuple[str | int, ...]) -> Node | None:
        """Return what the file has at a path; None if it has nothing there."""
        steps = list(_walk(self.root, path))
        return steps[-1][1] if len(steps) == len(path) and steps else None

    def line(self, path: tuple[str | int, ...]) -> int | None:
        """Return the line of a path, or of the nearest section around it; None for the root."""
        line = None
        for line, _ in _walk(self.root, path):  # noqa: B007 - the last one is wanted
            pass
        return line


def read_document(raw: bytes) -> Document:
    """Read YAML without building any object but text, numbers, booleans, lists and mappings."""
    text = _decode(raw)
    loader = yaml.SafeLoader("")
    try:
        root = yaml.compose(text, Loader=yaml.SafeLoader)
        if root is None:
            raise NotYaml(None, "the file is empty; docs/pipeline.md has an example to start from")
        if not isinstance(root, MappingNode):
            text = "a pipeline is a mapping of settings, one 'name: value' a line, e.g. name: sales"
            raise NotYaml(_line(root), text)
        problems = list(_oddities(root, set()))
        reader = _Reader(loader, problems)
        return Document(reader.value(root), root, problems)
    except yaml.MarkedYAMLError as error:
        raise _not_yaml(error) from error
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        raise NotYaml(
            line, f"not YAML: the character #x{error.character:04x} is not allowed; remove it"
        ) from error
    except RecursionError as error:
        raise NotYaml(None, "not a pipeline: it is nested too deeply") from error


def _decode(raw: bytes) -> str:
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise NotYaml(line, "not UTF-8 text; save the file as UTF-8") from error


def _not_yaml(error: yaml.MarkedYAMLError) -> NotYaml:
    mark = error.problem_mark or error.context_mark
    told = " ".join(filter(None, (error.context, error.problem)))
    hint = next(
        (hint for pattern, hint in _HINTS if pattern in told), "check the line above it too"
    )
    opened = error.context_mark
    since = ""
    if opened and mark and opened.line != mark.line:
        since = f" ({error.context}, begun on line {opened.line + 1})"
    line = mark.line + 1 if mark else None
    column = f" at column {mark.column + 1}" if mark else ""
    return NotYaml(line, f"not YAML: {error.problem}{column}{since}; {hint}")


def _oddities(node: Node, seen: set[int]) -> Iterator[Problem]:
    """Find what a plain reading would pass over: it runs before merges hide who wrote what."""
    if id(node) in seen:
        return
    seen.add(id(node))
    if node.tag not in _PLAIN_TAGS:
        yield _at(node, f"the tag {node.tag.replace(_TAG, '!!')} has no meaning here; remove it")
    if isinstance(node, MappingNode):
        yield from _twins(node)
        children = [child for pair in node.value for child in pair]
    else:
        children = node.value if isinstance(node, SequenceNode) else []
    for child in children:
        yield from _oddities(child, seen)


def _twins(node: MappingNode) -> Iterator[Problem]:
    lines: dict[str, int] = {}
    for key, _ in node.value:
        if not isinstance(key, ScalarNode) or key.tag == _MERGE:
            continue
        if key.value in lines:
            line = lines[key.value]
            yield _at(key, f"'{key.value}' is given twice, first on line {line}; remove one")
        lines.setdefault(key.value, _line(key))


class _Reader:
    """Turns nodes into data, each node once, so that aliases cost nothing."""

    def __init__(self, loader: yaml.SafeLoader, problems: list[Problem]) -> None:
        self._loader = loader
        self._problems = problems
        self._done: dict[int, Any] = {}
        self._open: set[int] = set()
        self._merged = 0

    def value(self, node: Node) -> Any:
        if id(node) in self._open:
            self._problems.append(_at(node, "an alias refers to what it is part of; remove it"))
            return None
        if id(node) not in self._done:
            self._open.add(id(node))
            self._done[id(node)] = self._read(node)
            self._open.discard(id(node))
        return self._done[id(node)]

    def _read(self, node: Node) -> Any:
        if isinstance(node, MappingNode):
            self._merge(node)
            return {self._name(key): self.value(value) for key, value in node.value}
        if isinstance(node, SequenceNode):
            return [self._item(item) for item in node.value]
        return self._scalar(node)

    def _merge(self, node: MappingNode) -> None:
        """Put what '<<' brings in front: the last of equal names counts, and that is its own."""
        merges = [value for key, value in node.value if key.tag == _MERGE]
        # Before anything is brought: a mapping may be told to bring itself.
        node.value = [pair for pair in node.value if pair[0].tag != _MERGE]
        brought: list[tuple[Node, Node]] = []
        for value in merges:
            # The first of a list counts, so it is the last that is brought.
            for part in reversed(value.value) if isinstance(value, SequenceNode) else [value]:
                brought += self._brought(part)
                self._merged += 1  # an empty one takes time, too
                if self._merged + len(brought) > MOST_MERGED:
                    text = f"'<<' brings more than {MOST_MERGED:,} settings; write them out"
                    raise NotYaml(_line(node), text)
        self._merged += len(brought)
        node.value = brought + node.value

    def _brought(self, part: Node) -> list[tuple[Node, Node]]:
        if not isinstance(part, MappingNode):
            text = "'<<' takes an anchored mapping, or a list of them"
            self._problems.append(_at(part, text))
            return []
        self._merge(part)
        pairs: list[tuple[Node, Node]] = part.value
        return pairs

    def _name(self, node: Node) -> str:
        """Read text, whatever YAML takes it for: a name is never anything else."""
        if not isinstance(node, ScalarNode):
            self._problems.append(_at(node, "a name is needed before the colon"))
            return ""
        if node.tag in KINDS:
            self._problems.append(_at(node, misread(node)))
        return str(node.value)

    def _item(self, node: Node) -> Any:
        """Read a name: the lists of a pipeline hold nothing else."""
        return self._name(node) if isinstance(node, ScalarNode) else self.value(node)

    def _scalar(self, node: Node) -> Any:
        assert isinstance(node, ScalarNode)
        if node.tag not in KINDS or len(node.value) > _LONGEST_NUMBER:
            return str(node.value)
        if node.tag == f"{_TAG}int" and not _DECIMAL.fullmatch(node.value):
            number = self._loader.construct_yaml_int(node)
            self._problems.append(
                _at(node, f"YAML reads {node.value} as {number}; write the number in decimal")
            )
            return number
        try:
            return self._loader.construct_object(node)
        except ValueError:  # the look of a date, but none of the calendar
            return str(node.value)


def misread(node: Node) -> str:
    written = node.value or "an empty value"
    return f'YAML reads {written} as {KINDS[node.tag]}; put it in quotes: "{node.value}"'


def _walk(node: Node, path: tuple[str | int, ...]) -> Iterator[tuple[int, Node]]:
    for part in path:
        step = _step(node, part)
        if step is None:
            return
        line, node = step
        yield line, node


def _step(node: Node, part: str | int) -> tuple[int, Node] | None:
    if isinstance(node, MappingNode):
        # The last of equal names is the one that counts: what was merged in stands first.
        pairs = reversed(node.value)
        return next(((_line(key), value) for key, value in pairs if key.value == part), None)
    if isinstance(node, SequenceNode):
        for index, item in enumerate(node.value):
            if part in (index, str(index), item.value):
                return _line(item), item
    return None


def _at(node: Node, text: str) -> Problem:
    return Problem((), text, line=_line(node))


def _line(node: Node) -> int:
    return int(node.start_mark.line) + 1
