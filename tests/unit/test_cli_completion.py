"""The scripts complete what the parser knows; bash is asked, zsh and fish where they are here."""

from __future__ import annotations

import contextlib
import shutil
import subprocess
from typing import TYPE_CHECKING

import pytest

from dovetail.cli import main
from dovetail.cli.commands import COMMANDS

if TYPE_CHECKING:
    from pathlib import Path

ASK_BASH = """
source "$1"; shift
COMP_WORDS=("$@"); COMP_CWORD=$(( $# - 1 )); COMP_LINE="$*"; COMP_POINT=${#COMP_LINE}
_shtab_dovetail
printf '%s\\n' "${COMPREPLY[@]}"
"""
ASK_FISH = 'source $argv[1]; complete --do-complete "$argv[2]"'


@pytest.fixture(scope="module")
def scripts(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("completion")
    made = {shell: folder / shell for shell in ("bash", "zsh", "fish")}
    for shell, file in made.items():
        with file.open("w") as script, contextlib.redirect_stdout(script):
            assert main(["completion", shell]) == 0
    return made


def by_bash(scripts: dict[str, Path], *words: str) -> set[str]:
    ran = subprocess.run(
        ["bash", "-c", ASK_BASH, "bash", str(scripts["bash"]), "dovetail", *words],
        capture_output=True,
        text=True,
        check=True,
    )
    assert ran.stderr == ""
    return set(ran.stdout.split())


def test_bash_completes_commands_actions_options_and_choices(scripts):
    assert by_bash(scripts, "") >= set(COMMANDS)
    assert by_bash(scripts, "dea") == {"dead-letters"}
    assert by_bash(scripts, "dead-letters", "") >= {"show", "replay"}
    assert by_bash(scripts, "dead-letters", "replay", "--f") == {"--force"}
    assert by_bash(scripts, "cache", "--by", "") == {"hits", "bytes", "age"}
    assert by_bash(scripts, "jobs", "--state", "ca") == {"cancelled"}
    assert by_bash(scripts, "tokens", "create", "me", "") >= {
        "read",
        "inspect",
        "operate",
        "send",
        "admin",
    }


@pytest.mark.skipif(not shutil.which("zsh"), reason="there is no zsh here")
def test_zsh_reads_its_script(scripts):
    subprocess.run(["zsh", "-n", str(scripts["zsh"])], check=True)


@pytest.mark.skipif(not shutil.which("fish"), reason="there is no fish here")
def test_fish_completes_commands_and_options(scripts):
    def ask(line: str) -> set[str]:
        words = ["fish", "--no-config", "-c", ASK_FISH, str(scripts["fish"]), line]
        out = subprocess.run(words, stdout=subprocess.PIPE, text=True, check=True).stdout
        return {found.split("\t")[0] for found in out.splitlines()}

    assert ask("dovetail dea") == {"dead-letters"}
    assert ask("dovetail cache --by h") == {"hits"}


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_every_script_knows_every_command(scripts, shell):
    text = scripts[shell].read_text()
    assert all(command in text for command in COMMANDS)
