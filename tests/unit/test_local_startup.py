"""The bar of a start."""

from __future__ import annotations

import io

from rich.console import Console

from deploy.local.startup import Startup


def test_it_goes_on_from_step_to_step_up_to_all():
    with Startup(Console(file=io.StringIO())) as startup:
        seen = []
        for step in Startup.STEPS:
            startup.step(step)
            seen.append(startup.percent)
            startup.part(0.5)
            seen.append(startup.percent)
        startup.part(1.0)
        assert seen == sorted(set(seen))
        assert (seen[0], startup.percent) == (0.0, 100.0)


def test_a_terminal_shows_what_is_being_done_and_nothing_remains():
    screen = io.StringIO()
    with Startup(Console(file=screen, force_terminal=True, width=100)) as startup:
        startup.step("compiling the kernels")
        startup.part(0.5)
        startup._progress.refresh()
    assert "compiling the kernels" in screen.getvalue()
    assert "55 %" in screen.getvalue()


def test_elsewhere_nothing_is_drawn():
    file = io.StringIO()
    with Startup(Console(file=file)) as startup:
        startup.step("compiling the kernels")
    assert not file.getvalue().strip()
