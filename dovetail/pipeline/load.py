"""Reads a pipeline file and tells everything that is wrong with it at once.

Settings are checked one by one first. Where some are faulty, a valid example takes their place,
so that the rules between the remaining settings can be checked in the same run. Of very many
problems the first are told: to find the line and the cure of one takes a look at all of the file.
"""

from __future__ import annotations

import copy
import os
import re
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

from pydantic import BaseModel, ValidationError

from dovetail.errors import ConfigError, hidden
from dovetail.join.kinds import JoinKind
from dovetail.pipeline.document import KINDS, Document, NotYaml, misread, read_document
from dovetail.pipeline.hints import closest
from dovetail.pipeline.problem import Fault, InvalidPipelineError, Problem
from dovetail.pipeline.rules import broken_rules
from dovetail.pipeline.schema_file import located, schema_problems
from dovetail.pipeline.shape import DERIVED_DEFAULTS, Draft
from dovetail.pipeline.spec import Pipeline

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pydantic_core import ErrorDetails

Place = tuple[str, ...]
"""The names on the way to a setting, or to an entry of it."""

MOST_TOLD = 100
"""Problems."""
OVERRIDES = {
    "DOVETAIL_MEMORY": "memory",
    "DOVETAIL_NODES": "nodes",
    "DOVETAIL_JOIN": "join",
    "DOVETAIL_SLOTS": "slots",
    "DOVETAIL_ALGORITHM": "algorithm",
    "DOVETAIL_ENGINE": "engine",
    "DOVETAIL_LAYOUT": "layout",
}


def load_pipeline(path: Path | str, environment: Mapping[str, str] = os.environ) -> Pipeline:
    """Return the pipeline of a file; a ConfigError lists every problem, one a line."""
    return parse_pipeline(_read(path), path, environment)


def parse_pipeline(
    raw: bytes, path: Path | str, environment: Mapping[str, str] = os.environ
) -> Pipeline:
    """Return the pipeline of a document that stands, or might stand, in this file."""
    try:
        document = read_document(raw)
    except NotYaml as error:
        raise _Report(path).error([error.problem]) from error
    reading = _Reading(document, environment, Path(path).parent)
    problems = reading.problems()
    if problems:
        raise _Report(path, reading).error(problems)
    return Pipeline.model_validate(reading.data)


def _read(path: Path | str) -> bytes:
    try:
        return Path(path).read_bytes()
    except FileNotFoundError:
        raise ConfigError(
            f"{path}: there is no such file; give the path of a pipeline file"
        ) from None
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise ConfigError(f"{path}: cannot be read: {reason}") from error


class _Reading:
    """One look at a document, with the environment's overrides in place."""

    def __init__(self, document: Document, environment: Mapping[str, str], folder: Path) -> None:
        overrides = _overrides(environment)
        self.document = document
        self.variables: dict[Place, str] = {
            (OVERRIDES[variable],): variable for variable in overrides
        }
        self.overrides = overrides
        self.data = located(_overridden(document.data, overrides), folder)
        self._errors = _errors(self.data)
        self.faulty: set[Place] = set()

    def problems(self) -> list[Problem]:
        """List every problem, or the first of very many.

        Step 1: the settings one by one. Step 2: the rules between those that are right. Step 3:
        the schema file, if all that is said about the source is right.
        """
        found = [*self.document.problems, *self._faults()]
        if len(self._errors) <= MOST_TOLD:  # else it is not known what is right
            draft = Draft.model_validate(self._repaired())
            found += islice(self._broken(draft), MOST_TOLD + 1)
            if not any(problem.path[:1] == ("source",) for problem in found):
                found += islice(schema_problems(draft), MOST_TOLD + 1)
        if max(len(found), len(self._errors)) <= MOST_TOLD:
            return found
        many = Problem((), f"it has more than {MOST_TOLD} problems; mend these first")
        return [many, *found[:MOST_TOLD]]

    def _broken(self, draft: Draft) -> Iterator[Problem]:
        for rule, problem in broken_rules(draft, self.faulty):
            overridden = next((read for read in rule.reads if read in self.variables), None)
            if overridden and problem.path not in self.variables:
                yield Problem(overridden, str(problem))  # the same, elsewhere
            else:
                yield problem

    def _faults(self) -> Iterator[Problem]:
        typos = {path: meant for path, meant in map(self._typo, self._errors) if meant}
        self.faulty.update(typos.values())
        for detail in self._errors:
            path = _path(detail)
            own = path[2:] if path[0] == "then" else path
            derived = own[:2] in DERIVED_DEFAULTS and self.document.node(path) is None
            if derived or (detail["type"] == "missing" and path in typos.values()):
                continue  # told already, where it comes from
            self.faulty.add(path)
            yield self._fault(detail, path)

    def _typo(self, detail: ErrorDetails) -> tuple[Place, Place | None]:
        """Return the path of an unknown setting and of the one that was probably meant."""
        path = _path(detail)
        if detail["type"] != "extra_forbidden":
            return path, None
        meant = closest(path[-1], _model(path[:-1]).model_fields)
        return path, (*path[:-1], meant) if meant else None

    def _fault(self, detail: ErrorDetails, path: Place) -> Problem:
        match detail["type"]:
            case "extra_forbidden":
                return Problem(path, _unknown(path, self._typo(detail)[1]))
            case "missing":
                return Problem(path, f"is missing; e.g. {_example(path)}")
            case "value_error":
                return Problem(path, str(detail["ctx"]["error"]))
            case "greater_than_equal" | "less_than_equal":
                limit = next(iter(detail["ctx"].values()))
                side = "at least" if detail["type"].startswith("greater") else "at most"
                return Problem(path, f"{detail['input']} is out of range; write {side} {limit}")
        return Problem(path, self._wrong_kind(detail, path))

    def _wrong_kind(self, detail: ErrorDetails, path: Place) -> str:
        value = detail["input"]
        if value is None:
            return f"nothing is given; e.g. {_example(path)}"
        if detail["type"].startswith("int"):
            return _not_whole(value, path[-1])
        node = self.document.node(path)
        text = detail["type"] == "string_type"
        if (text or path[-1] == "key") and node is not None and node.tag in KINDS:
            return misread(node)
        needed = "one text" if text else _needed(path)
        return f"{needed} is needed here, not {_kind(value)}; e.g. {_example(path)}"

    def _repaired(self) -> dict[str, Any]:
        data = dict(self.data)
        for detail in self._errors:
            _repair(data, _path(detail), whole="[key]" in detail["loc"])
        return data


def _overrides(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that count, with their texts; an empty one is not set."""
    texts = {variable: environment.get(variable, "").strip() for variable in OVERRIDES}
    return {variable: text for variable, text in texts.items() if text}


def _overridden(data: dict[str, Any], overrides: Mapping[str, str]) -> dict[str, Any]:
    data = dict(data)
    for variable, text in overrides.items():
        number = re.fullmatch(r"-?[0-9]{1,18}", text)
        data[OVERRIDES[variable]] = int(text) if number else text
    master = data.get("master")
    if overrides.get("DOVETAIL_JOIN") in (JoinKind.SEMI, JoinKind.ANTI) and isinstance(
        master, dict
    ):
        # Such a join adds no columns: who asks for it sets those of the file aside.
        data["master"] = {name: value for name, value in master.items() if name != "columns"}
    return data


def _errors(data: dict[str, Any]) -> list[ErrorDetails]:
    try:
        Draft.model_validate(data)
    except ValidationError as error:
        return error.errors(include_url=False)[: MOST_TOLD + 1]
    return []


def _path(detail: ErrorDetails) -> Place:
    """Return the names on the way to an error; of a list's items only a chain's links have one."""
    first, *rest = detail["loc"]
    return (
        str(first),
        *(
            str(part)
            for part in rest
            if part != "[key]" and (isinstance(part, str) or (first == "then" and part is rest[0]))
        ),
    )


def _model(section: Place) -> type[BaseModel]:
    model: type[BaseModel] = Draft
    for part in section:
        if part.isdecimal():  # the number of a link
            continue
        known = model.model_fields.get(part)
        kinds = (known.annotation, *get_args(known.annotation)) if known else ()
        for kind in kinds:
            if isinstance(kind, type) and issubclass(kind, BaseModel):
                model = kind
    return model


def _setting(path: Place) -> tuple[Place, str | None]:
    """Split a path into that of the setting and the entry within it, if there is one."""
    depth = next((end for end in range(1, len(path) + 1) if not _is_section(path[:end])), len(path))
    return path[:depth], path[depth] if len(path) > depth else None


def _is_section(path: Place) -> bool:
    return path[-1].isdecimal() or _model(path) is not _model(path[:-1])


def _unknown(path: Place, meant: Place | None) -> str:
    if meant:
        return f"there is no such setting; did you mean '{meant[-1]}'?"
    homes = [
        ".".join((*section, path[-1]))
        for section in ((), ("source",), ("master",), ("sink",), ("overload",))
        if path[-1] in _model(section).model_fields
    ]
    if homes:
        return f"there is no such setting here; it belongs in {' or '.join(homes)}"
    known = ", ".join(_model(path[:-1]).model_fields)
    return f"there is no such setting; known are {known}"


def _example(path: Place) -> str:
    setting, item = _setting(path)
    value = _example_value(setting)
    if item is not None:
        return f"{item}: {_flow(_entry(value))}"
    return f"{setting[-1]}: {_flow(value)}"


def _example_value(setting: Place) -> Any:
    examples = _model(setting[:-1]).model_fields[setting[-1]].examples
    assert examples, f"{setting} has no example"
    return copy.deepcopy(examples[0])


def _entry(example: Any) -> Any:
    """Return a valid entry of a mapping like the example."""
    return next(iter(example.values() if isinstance(example, dict) else example))


def _flow(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{name}: {_flow(inner)}" for name, inner in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_flow, value)) + "]"
    return str(value)


def _needed(path: Place) -> str:
    if path in (("key",), ("master", "key")):
        return "a name or a list of names"
    if path == ("master", "columns"):
        return "a list of columns or a mapping of each to its name in the output"
    return "a mapping"


def _kind(value: Any) -> str:
    if isinstance(value, dict | list):
        return "a mapping" if isinstance(value, dict) else "a list"
    return f"the text '{value}'" if isinstance(value, str) else f"{value}"


def _not_whole(value: Any, setting: str) -> str:
    needed = "a whole number is needed"
    if isinstance(value, bool):
        return f"{needed}, and YAML reads yes, no, on and off as booleans"
    if not isinstance(value, str | float):
        return f"{needed}, not {_kind(value)}"
    try:
        number = float(value)
    except ValueError:
        return f"'{value}' is not a whole number"
    if not number.is_integer():
        return f"{value} is not a whole number"
    return f"'{value}' is not written as a whole number; write {setting}: {int(number)}"


def _repair(data: dict[str, Any], path: Place, *, whole: bool) -> None:
    """Put an example in the place of a faulty setting, or take out an unknown one.

    What is changed is copied first: by an alias it may stand elsewhere, too.
    """
    if path[0] == "then":  # a link that is faulty is not looked at any further
        data["then"] = []
        return
    setting, item = _setting(path)
    parent, name = data, setting[-1]
    if len(setting) == 2:
        parent = data[setting[0]] = dict(data.get(setting[0], {}))
    if name not in _model(setting[:-1]).model_fields:
        parent.pop(name, None)
    elif item is not None and isinstance(parent.get(name), dict) and not whole:
        parent[name] = {**parent[name], item: _entry(_example_value(setting))}
    else:
        parent[name] = _example_value(setting)


class _Report:
    """Problems as lines of text: where, which setting, what is wrong, what to do."""

    def __init__(self, path: Path | str, reading: _Reading | None = None) -> None:
        self._path = path
        self._reading = reading

    def error(self, problems: list[Problem]) -> InvalidPipelineError:
        # A column and its output name can be wrong in the same way: told once.
        told: dict[str, Problem] = {}
        for problem in sorted(problems, key=self._order):
            told.setdefault(self._line_of(problem), problem)
        return InvalidPipelineError("\n".join(told), tuple(map(self._fault, told.values())))

    def _fault(self, problem: Problem) -> Fault:
        variable = self._variable(problem)
        if variable:
            return Fault(None, variable, self._text(problem))
        return Fault(self._line(problem), ".".join(problem.path), problem.text)

    def _line_of(self, problem: Problem) -> str:
        variable, line = self._variable(problem), self._line(problem)
        place = f"{self._path}:{line}" if line else f"{self._path}"
        told = f"{variable}: {self._text(problem)}" if variable else f"{place}: {problem}"
        return "\\n".join(told.splitlines())

    def _order(self, problem: Problem) -> tuple[bool, int]:
        return self._variable(problem) is not None, self._line(problem) or 0

    def _text(self, problem: Problem) -> str:
        """What is wrong; never a variable's value that cannot be one, whatever got there."""
        variable = self._variable(problem)
        if self._reading is None or variable is None or problem.path not in self._reading.faulty:
            return problem.text
        return hidden(problem.text, self._reading.overrides[variable])

    def _variable(self, problem: Problem) -> str | None:
        return self._reading.variables.get(problem.path) if self._reading else None

    def _line(self, problem: Problem) -> int | None:
        if problem.line is not None or self._reading is None:
            return problem.line
        return self._reading.document.line(problem.place)
