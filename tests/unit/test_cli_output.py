"""What a person sees, and what a script reads."""

from __future__ import annotations

import io
import json
import os
import pty
import subprocess
import sys

import pytest
from rich.text import Text

from dovetail.cli.output import (
    Figure,
    Output,
    as_json,
    console_on,
    count,
    fields,
    moment,
    plain,
    seconds,
    share,
    size,
    state,
    table,
)

HOSTILE = "\x1b]0;owned\x07\x1b[31m\x9b2J\u202e[red]key[/red]\r\n"


def printed(renderable: object) -> str:
    out = io.StringIO()
    console_on(out).print(renderable)
    return out.getvalue()


def test_a_row_is_a_line_where_no_terminal_bounds_it(monkeypatch):
    monkeypatch.delenv("COLUMNS", raising=False)
    text = "a reason that is longer than eighty characters, " * 4
    lines = printed(table(("key", "why"), [("4711", text), ("1", "short")], "")).splitlines()
    assert [line.rstrip() for line in lines] == [
        "key   why",
        f"4711  {text.rstrip()}",
        "1     short",
    ]


def test_columns_bounds_the_width(monkeypatch):
    monkeypatch.setenv("COLUMNS", "40")
    lines = printed(table(("key", "why"), [("4711", "word " * 30)], "")).splitlines()
    assert len(lines) > 3
    assert all(len(line) <= 40 for line in lines)


def test_figures_stand_right_and_words_left():
    lines = printed(table(("name", "lag"), [("a", 5), ("bb", count(1234.0))], "")).splitlines()
    assert [line.rstrip() for line in lines] == ["name    lag", "a         5", "bb    1,234"]


def test_an_empty_table_says_so():
    assert printed(table(("a",), [], "there is none")) == "there is none\n"


def test_fields_stand_under_each_other():
    assert printed(fields({"here": True, "slot": 1234, "row": {"a": 1}, "none": None})).split() == [
        *("here", "yes", "slot", "1,234", "row", '{"a":', "1}", "none", "–"),
    ]


@pytest.mark.parametrize("make", [plain, state, lambda text: table((text,), [(text,)], "")])
def test_nothing_in_a_text_reaches_the_terminal_as_an_order(make):
    shown = printed(make(HOSTILE))
    assert not any(sign in shown for sign in "\x1b\x07\x9b\u202e\r")
    assert "[red]key[/red]" in shown, "brackets are no markup"


def test_json_escapes_what_a_terminal_would_obey_and_stays_json():
    text = as_json({"key": HOSTILE, "half": "\ud800", "umlaut": "ü"})
    assert not any(sign in text for sign in "\x1b\x07\x9b")
    assert json.loads(text) == {"key": HOSTILE, "half": "\ud800", "umlaut": "ü"}
    text.encode()
    assert "ü" in text


def test_show_prints_json_alone_for_a_script():
    out = io.StringIO()
    Output(as_json=True, out=out).show([1], lambda _: pytest.fail("rendered"))
    assert json.loads(out.getvalue()) == [1]


def test_lines_in_a_pipe_end_with_their_last_word():
    out = io.StringIO()
    rows = [("a", "long enough"), ("b", "short")]
    Output(as_json=False, out=out).show(rows, lambda _: [table(("key", "why"), rows, "")])
    assert out.getvalue() == "key  why\na    long enough\nb    short\n"


def test_figures_are_short():
    assert [count(None), count(12345.6), share(0.714), share(None)] == ["–", "12,346", "71%", "–"]
    assert [size(200), size(3 << 20), size(None)] == ["200 B", "3.00 MiB", "–"]
    assert [seconds(0.44), seconds(90), seconds(150), seconds(9000), seconds(200_000)] == [
        *("0.4 s", "90.0 s", "2.5 min", "2.5 h", "2.3 d"),
    ]
    assert moment("2026-01-31T09:00:00.123Z") == "2026-01-31 09:00:00"
    assert moment(None) == "–"
    assert isinstance(count(1), Figure)


def test_a_state_has_a_colour():
    assert isinstance(state("gone"), Text)
    assert (state("ready").style, state("gone").style, state("paused").style) == (
        *("green", "red", "yellow"),
    )


SHOWS_A_STATE = """
import sys
from dovetail.cli.output import console_on, state
console_on(sys.stdout).print(state("gone"))
"""


@pytest.mark.parametrize(("environ", "coloured"), [({}, True), ({"NO_COLOR": "1"}, False)])
def test_colours_are_a_terminals_unless_nobody_wants_them(environ, coloured):
    kept = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
    mine, its = pty.openpty()
    with os.fdopen(mine, "rb", buffering=0) as terminal:
        subprocess.run(
            [sys.executable, "-c", SHOWS_A_STATE],
            stdout=its,
            env={**kept, "TERM": "xterm-256color", **environ},
            check=True,
        )
        os.close(its)
        shown = terminal.read(1000)
    assert b"gone" in shown
    assert (b"\x1b[31m" in shown) is coloured


def test_a_pipe_has_no_colours():
    shown = subprocess.run(
        [sys.executable, "-c", SHOWS_A_STATE], capture_output=True, check=True, text=True
    )
    assert shown.stdout == "gone\n"
