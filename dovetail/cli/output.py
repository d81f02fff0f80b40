"""What is printed: tables and words for a person, JSON for a script.

Colours and lines that are redrawn are a terminal's alone, and `NO_COLOR` ends colours there too.
What comes from elsewhere (a key, an event, a reason) is shown letter by letter: nothing in it can
be taken for a colour, and no control character reaches the terminal.
"""

from __future__ import annotations

import json
import os
import sys
from typing import TYPE_CHECKING, Any, TextIO

from rich.console import Console
from rich.table import Table
from rich.text import Text

from dovetail.pipeline.size import about_size

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from rich.console import RenderableType

    Cell = str | Text

NOTHING = "–"
_PIPE_WIDTH = 1_000
"""A row is one line where no terminal bounds it."""
_COLOURS = {
    **dict.fromkeys(("ready", "running", "done", "holds", "drained", "chosen"), "green"),
    **dict.fromkeys(("gone", "failed", "off", "degraded", "lost", "error"), "red"),
}
_UNSEEN = {code: f"\\u{code:04x}" for code in range(0x7F, 0xA0)}
"""Control characters that JSON leaves as they are."""


class Figure(str):
    """A cell that stands right in its column."""

    __slots__ = ()


class Output:
    def __init__(self, *, as_json: bool, out: TextIO | None = None) -> None:
        self.as_json = as_json
        self._out = out or sys.stdout
        self.console = console_on(self._out)
        self.errors = console_on(sys.stderr)

    @classmethod
    def of(cls, arguments: argparse.Namespace) -> Output:
        return cls(as_json=arguments.json)

    def show(self, answer: Any, render: Callable[[Any], Iterable[RenderableType]]) -> None:
        """Print the answer: itself as JSON, or what `render` makes of it."""
        if self.as_json:
            self.json(answer)
            return
        for part in render(answer):
            self.print(part)

    def print(self, part: RenderableType) -> None:
        if self.console.is_terminal:
            self.console.print(part)
            return
        with self.console.capture() as captured:
            self.console.print(part)
        for line in captured.get().splitlines():
            print(line.rstrip(), file=self._out)  # the last column is padded, too

    def json(self, answer: Any) -> None:
        print(as_json(answer), file=self._out, flush=True)

    def say(self, text: str) -> None:
        """Tell a person what goes on; a script's stdout stays free of it."""
        self.errors.print(plain(text))


def console_on(file: TextIO) -> Console:
    bounded = file.isatty() or "COLUMNS" in os.environ
    return Console(file=file, highlight=False, markup=False, width=None if bounded else _PIPE_WIDTH)


def as_json(answer: Any) -> str:
    text = json.dumps(answer, ensure_ascii=False, indent=2, default=str).translate(_UNSEEN)
    # Half a pair of UTF-16 is no character: JSON's own escape stands for it.
    return text.encode(errors="backslashreplace").decode()


def table(headings: Sequence[str], rows: Iterable[Sequence[object]], empty: str) -> RenderableType:
    """Lay out rows; `empty` is said where there is none. Figures stand right."""
    cells = [[_cell(value) for value in row] for row in rows]
    if not cells:
        return plain(empty)
    made = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    for number, heading in enumerate(headings):
        right = any(isinstance(row[number], Figure) for row in cells)
        made.add_column(
            plain(heading),
            justify="right" if right else "left",
            overflow="fold",
            no_wrap=right,  # half a number is a wrong one
        )
    for row in cells:
        made.add_row(*(one if isinstance(one, Text) else plain(one) for one in row))
    return made


def fields(pairs: Mapping[str, object]) -> RenderableType:
    """A line for each name and its value."""
    made = Table.grid(padding=(0, 2, 0, 0))
    made.add_column(style="bold", no_wrap=True)
    made.add_column(overflow="fold")
    for name, value in pairs.items():
        one = _cell(value)
        made.add_row(plain(name), one if isinstance(one, Text) else plain(one))
    return made


def plain(text: str) -> Text:
    """The text as it is, line by line, without anything that a terminal would obey."""
    return Text("\n".join(map(_visible, text.split("\n"))))


def state(name: str) -> Text:
    return Text(_visible(name), style=_COLOURS.get(name, "yellow"))


def count(number: float | None) -> Figure:
    return Figure(NOTHING if number is None else f"{number:,.0f}")


def size(number: float | None) -> Figure:
    return Figure(NOTHING if number is None else about_size(number))


def share(value: float | None) -> Figure:
    return Figure(NOTHING if value is None else f"{value:.0%}")


def seconds(value: float | None) -> Figure:
    """A duration, short: 0.4 s, 31 s, 12 min, 3.5 h, 2.1 d."""
    if value is None:
        return Figure(NOTHING)
    for unit, length in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if value >= 2 * length:
            return Figure(f"{value / length:.1f} {unit}")
    return Figure(f"{value:.1f} s")


def moment(text: str | None) -> str:
    """A time of the API, to the second, in UTC as all of them."""
    return text[:19].replace("T", " ") if text else NOTHING


def _cell(value: object) -> Cell:
    if isinstance(value, Text | str):
        return value
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int | float):
        return Figure(f"{value:,.6g}" if value % 1 else f"{value:,.0f}")
    return NOTHING if value is None else json.dumps(value, ensure_ascii=False, default=str)


def _visible(text: str) -> str:
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
