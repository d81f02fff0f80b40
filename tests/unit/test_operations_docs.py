"""The handbook: every procedure names the test that runs it, with the commands that it has."""

from __future__ import annotations

import ast
import re
import shlex
from pathlib import Path

import pytest

from dovetail.cli.program import make_parser

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "operations.md").read_text()
PROGRAMS = {"createdb", "pg_dump", "pg_restore", "psql"}
KIT = "tests/recovery/kit.py"


def part(heading):
    """A chapter of the page."""
    found = re.search(rf"^## {heading}\n(.*?)(?=^## |\Z)", PAGE, re.DOTALL | re.MULTILINE)
    assert found, heading
    return found[1]


def sections():
    for chapter in ("Scaling", "When something is lost"):
        for text in part(chapter).split("\n### ")[1:]:
            heading, _, body = text.partition("\n")
            yield pytest.param(body, id=heading)


def commands(text):
    """The lines of the page's shell blocks, those that go on put together."""
    blocks = re.findall(r"^ *```sh\n(.*?)^ *```", text, re.DOTALL | re.MULTILINE)
    lines = [line.strip() for block in blocks for line in block.replace("\\\n", " ").splitlines()]
    return [shlex.split(line, comments=True) for line in lines]


def run_by(text):
    """The file and the function of the test that a section names."""
    found = re.search(r"^\*Run by `(\S+\.py)::(\w+)`\.\*$", text, re.MULTILINE)
    assert found, "the section names no test: *Run by `tests/….py::test_…`.*"
    return found[1], found[2]


def done(file):
    """What a module of tests runs: the words of its command lines, and of other programs."""
    for call in ast.walk(ast.parse((ROOT / file).read_text())):
        if not isinstance(call, ast.Call) or not call.args:
            continue
        name = call.func.id if isinstance(call.func, ast.Name) else ast.unparse(call.func)
        first = call.args[0]
        if not isinstance(first, ast.Constant) or not isinstance(first.value, str):
            continue
        if name in ("dovetail", "dovetail.json", "self.json"):
            yield "dovetail", *shlex.split(first.value)
        elif name == "run":
            yield (first.value,)


def shown(words):
    """A command without its options: what it is."""
    return tuple(words[: 3 if words[1:2] in (["spark"], ["pipelines"]) else 2])


@pytest.mark.parametrize("text", list(sections()))
def test_a_procedure_names_a_test_that_there_is(text):
    file, test = run_by(text)
    tree = ast.parse((ROOT / file).read_text())
    assert test in {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}


@pytest.mark.parametrize("text", list(sections()))
def test_its_test_runs_the_commands_that_it_has(text):
    file, _ = run_by(text)
    run = {shown(list(words)) for words in (*done(file), *done(KIT))}
    for words in commands(text):
        if words[0] == "dovetail":
            assert shown(words) in run, words
        elif words[0] in PROGRAMS:
            assert (words[0],) in run, words


def test_no_test_of_a_procedure_is_left_out():
    named = {run_by(section.values[0]) for section in sections()}
    for file in (ROOT / "tests" / "recovery").glob("test_*.py"):
        tree = ast.parse(file.read_text())
        tests = {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
        for test in {name for name in tests if name.startswith("test_")}:
            assert (f"tests/recovery/{file.name}", test) in named


@pytest.mark.parametrize("words", commands(PAGE), ids=" ".join)
def test_the_commands_parse(words):
    if words[0] == "dovetail" and words[1] != "spark":  # whose jobs read their own
        assert callable(make_parser().parse_args(words[1:]).run)
    else:
        assert words[0] in PROGRAMS | {"dovetail", "curl", "kafka-topics", "kafka-consumer-groups"}
