"""The console as somebody on call has it: a running pipeline under load, and a real Chromium.

Pictures are kept in .dovetail/artefacts/console, to be looked at.
"""

from __future__ import annotations

import json
import os
import urllib.request
from contextlib import contextmanager

import psycopg
import pytest
import yaml
from playwright.sync_api import expect, sync_playwright

from deploy.local.chromium import FLAGS, find_chromium
from deploy.local.home import CHECKOUT, Home
from deploy.local.kernels import compiling
from dovetail.demo.catalogue import load_catalogue
from dovetail.testing.pipeline import RunningPipeline
from tests.e2e.test_kill import KEYS, SALES, under_load

PICTURES = CHECKOUT / ".dovetail" / "artefacts" / "console"
DESK = {"width": 1440, "height": 900}
PHONE = {"width": 360, "height": 740}
PATIENCE_MS = 180_000
RATE = 1_000

expect.set_options(timeout=PATIENCE_MS)


@pytest.fixture(scope="session")
def catalogue(stack):
    """A database of the console's own, with products in it."""
    with psycopg.connect(stack.database_url, autocommit=True) as connection:
        connection.execute("CREATE DATABASE console")
    url = f"{stack.database_url.rpartition('/')[0]}/console"
    load_catalogue(url, rows=KEYS, report=lambda _: None)
    return url


@pytest.fixture(scope="session")
def pipeline(stack, catalogue):
    with running(stack, catalogue, "sales", nodes=2) as pipeline:
        yield pipeline


@contextmanager
def running(stack, catalogue, name, **settings):
    """A pipeline under load that has answered from its cache."""
    home = Home(stack.home.folder / "pipelines" / f"console-{name}", CHECKOUT / ".dovetail")
    spec = {"name": name, **SALES, **settings}
    file = home.run / "kernels.yaml"
    file.write_text(yaml.safe_dump(spec))
    with compiling(home, file, print) as wait:
        wait()
    pipeline = RunningPipeline(
        home, stack.bootstrap, catalogue, spec, environment={"DOVETAIL_LOCAL": "1"}
    )
    with pipeline, under_load(pipeline, RATE):
        pipeline.wait_until(lambda seen: seen.hits > 0, "both phases answer")
        yield pipeline


@pytest.fixture(scope="session")
def chromium():
    found = find_chromium(Home(CHECKOUT / ".dovetail"))
    PICTURES.mkdir(parents=True, exist_ok=True)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=found.program,
            args=[*FLAGS],
            env={**os.environ, **found.environment},
            headless=True,
        )
        yield browser
        browser.close()


@pytest.fixture
def open_page(chromium, pipeline):
    """Open pages that may talk to their own service alone, and have no error to tell."""

    @contextmanager
    def opened(url=None, *, refusals=(), quiet=True, **options):
        base = url or pipeline.url("control")
        context = chromium.new_context(**{"viewport": DESK, "color_scheme": "light", **options})
        troubles = []
        page = context.new_page()
        page.set_default_timeout(PATIENCE_MS)
        page.on("request", lambda one: one.url.startswith(base) or troubles.append(one.url))
        page.on("pageerror", lambda error: troubles.append(str(error)))
        page.on("console", lambda one: one.type == "error" and troubles.append(one.text))
        page.goto(base)
        try:
            yield page
        finally:
            context.close()
        expected = [f"status of {status} " for status in refusals]
        if quiet:
            assert [one for one in troubles if not any(words in one for words in expected)] == []

    return opened


@pytest.fixture
def page(open_page):
    with open_page() as page:
        live(page)
        yield page


def live(page):
    """Wait until figures come."""
    expect(page.locator("#live")).to_have_text("live")
    expect(page.locator("#processes tbody tr")).not_to_have_count(0)


def picture(page, name, *, full=True, height=None):
    clip = {"x": 0, "y": 0, "width": page.viewport_size["width"], "height": height}
    page.screenshot(
        path=PICTURES / f"{name}.png",
        full_page=full,
        animations="disabled",
        clip=clip if height else None,
    )


def asked(pipeline, path):
    """What the API says, without the console."""
    with urllib.request.urlopen(f"{pipeline.url('control')}/{path}", timeout=30) as answer:
        return json.load(answer)


def confirm(page, button, **fields):
    """Press a button of the page, fill the dialog, and say yes."""
    page.get_by_role("button", name=button, exact=True).click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_be_visible()
    for label, value in fields.items():
        field = dialog.get_by_label(label.capitalize())
        if field.evaluate("one => one.tagName") == "SELECT":
            field.select_option(value)
        else:
            field.fill(value)
    return dialog
