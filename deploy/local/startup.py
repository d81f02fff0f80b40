"""How far a start is: one bar at the bottom of a terminal, with what is being done.

What is done is reported above it, and that alone where there is no terminal.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

if TYPE_CHECKING:
    from types import TracebackType

    from rich.console import Console


class Startup:
    STEPS = {  # noqa: RUF012 - in hundredths of a first start
        "starting Kafka and PostgreSQL": 15,
        "loading the catalogue": 15,
        "compiling the kernels": 50,
        "starting the services": 20,
    }

    def __init__(self, console: Console) -> None:
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("{task.percentage:>3.0f} %"),
            TimeElapsedColumn(),
            console=console,
            transient=True,
            disable=not console.is_terminal,
        )
        self._task = self._progress.add_task("", total=100)
        self._before = 0
        self._share = 0

    def __enter__(self) -> Self:
        self.step(next(iter(self.STEPS)))
        self._progress.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.end()

    def end(self) -> None:
        self._progress.stop()

    def step(self, what: str) -> None:
        """Go on to one of the steps."""
        self._before = sum(list(self.STEPS.values())[: list(self.STEPS).index(what)])
        self._share = self.STEPS[what]
        self._progress.update(self._task, description=what, completed=self._before)

    def part(self, done: float) -> None:
        """Tell how much of the step is done, up to 1."""
        self._progress.update(self._task, completed=self._before + self._share * done)

    @property
    def percent(self) -> float:
        return float(self._progress.tasks[self._task].completed)
