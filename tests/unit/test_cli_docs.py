"""docs/cli.md names every command, action, option and exit code, and none that there is not."""

from __future__ import annotations

import argparse
import re
import shlex
from pathlib import Path
from typing import get_args

import pytest

from dovetail.cli import exits
from dovetail.cli.commands import COMMANDS
from dovetail.cli.program import make_parser
from dovetail.join.inspection import By
from dovetail.plan.ranking import Verdict
from services.access.roles import GRANTED
from services.control.shapes import JobShape
from services.spark.jobs import JOBS

DOCS = Path(__file__).parents[2] / "docs"
TEXT = (DOCS / "cli.md").read_text()
SHARED = {"--help", "--json", "--url", "--pipeline", "--why", "--yes", "--no-wait"}
"""Told once, for all commands that have them."""


@pytest.fixture(scope="module")
def parser() -> argparse.ArgumentParser:
    return make_parser()


def actions_of(parser: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            return dict(action.choices)
    return {}


def options_of(parser: argparse.ArgumentParser) -> set[str]:
    own = {name for action in parser._actions for name in action.option_strings}
    long = {name for name in own if name.startswith("--")}
    return long.union(*(options_of(action) for action in actions_of(parser).values()))


def section(command: str) -> str:
    found = re.search(rf"^### {command}\n(.*?)(?=^##|\Z)", TEXT, re.DOTALL | re.MULTILINE)
    assert found, f"docs/cli.md has no section on {command}"
    return found[1]


def examples() -> list[str]:
    blocks = re.findall(r"```sh\n(.*?)```", TEXT, re.DOTALL)
    lines = [line for block in blocks for line in block.splitlines()]
    return [line for line in lines if line.startswith("dovetail ")]


def test_every_command_has_a_section_and_every_section_a_command():
    assert set(re.findall(r"^### (\S+)$", TEXT, re.MULTILINE)) == set(COMMANDS)


@pytest.mark.parametrize("command", COMMANDS)
def test_a_section_names_every_action_and_option(command, parser):
    told = section(command)
    of = actions_of(parser)[command]
    for action in actions_of(of):
        assert re.search(rf"dovetail {command} {action}\b|`{action}`", told), action
    for option in options_of(of) - SHARED if command != "parked" else ():
        assert re.search(rf"{option}(?![\w-])", told), option


def test_parked_events_are_handled_as_dead_letters_are(parser):
    commands = actions_of(parser)
    assert options_of(commands["parked"]) == options_of(commands["dead-letters"])
    assert "same options" in section("parked")


def test_shared_options_are_told_once():
    told = TEXT.split("## What every command has")[1].split("\n## ")[0]
    for option in SHARED - {"--help"}:
        assert f"`{option}" in told


def test_no_option_is_told_that_there_is_not(parser):
    known = options_of(parser) | {"--hour"}
    told = set(re.findall(r"(?<![\w-])--[a-z][a-z-]*", TEXT))
    assert told <= known


@pytest.mark.parametrize("line", examples())
def test_the_examples_parse(line, parser):
    words = shlex.split(line.partition(" | ")[0].partition(" > ")[0], comments=True)[1:]
    if words[:2] == ["spark", "snapshot"]:
        pytest.skip("Spark's own parser reads that")
    arguments = parser.parse_args(words)
    assert callable(arguments.run)


def test_the_exit_codes_are_told():
    codes = {value for name, value in vars(exits).items() if name.isupper() and name[0] != "_"}
    assert set(map(int, re.findall(r"^\| (\d+) \|", TEXT, re.MULTILINE))) == codes


@pytest.mark.parametrize("command", [name for name in COMMANDS if name != "completion"])
def test_every_command_and_action_answers_in_json(command, parser):
    of = actions_of(parser)[command]
    assert "--json" in options_of(of)
    for name, action in actions_of(of).items():
        here = command == "spark" and name in {*JOBS, "jars"}
        own = {option for one in action._actions for option in one.option_strings}
        assert here or "--json" in own, name


def test_a_plans_verdicts_are_those_of_the_planner(parser):
    keys = actions_of(actions_of(parser)["plans"])["keys"]
    assert choices_of(keys, "verdict") == set(map(str, Verdict))


def test_choices_are_those_of_the_api(parser):
    commands = actions_of(parser)
    jobs, cache = commands["jobs"], commands["cache"]
    create = actions_of(commands["tokens"])["create"]
    assert choices_of(cache, "by") == set(map(str, By))
    assert choices_of(create, "role") == set(map(str, GRANTED))
    assert choices_of(jobs, "state") == set(get_args(JobShape.model_fields["state"].annotation))
    kinds = re.search(r"^`kind`: (.*?)\. `state`", (DOCS / "api.md").read_text(), re.MULTILINE)
    assert kinds
    assert choices_of(jobs, "kind") == set(re.findall(r"`([a-z]+)`", kinds[1]))


def choices_of(parser: argparse.ArgumentParser, name: str) -> set[str]:
    (found,) = (action for action in parser._actions if action.dest == name)
    assert found.choices
    return set(found.choices)
