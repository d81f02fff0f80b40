"""On a desk and on a phone, in light and dark, by keyboard; and closed to whoever has no token."""

from __future__ import annotations

import re
import secrets
import sys
from pathlib import Path

import httpx
import pytest
from playwright.sync_api import expect

from deploy.local.home import CHECKOUT, Home
from deploy.local.ports import Ports
from deploy.local.processes import Managed
from deploy.local.services import is_ready
from tests.console.conftest import DESK, PHONE, live, picture

LEAST_CONTRAST = 4.5
PROBES = (Path(__file__).parent / "probes.js").read_text()
PANELS = ("processes", "slots", "algorithm", "cache", "cache-keys", "letters", "jobs", "spark")


def probe(page, name, *arguments):
    return page.evaluate(f"words => {PROBES}[words[0]](...words[1])", [name, arguments])


def look_at_everything(page):
    """Panels ask for their figures when they are seen."""
    for panel in PANELS:
        page.locator(f"#{panel}").scroll_into_view_if_needed()
        page.wait_for_timeout(400)
    expect(page.locator("#cache-keys tbody tr")).not_to_have_count(0)
    expect(page.locator("#spark .jobs li")).not_to_have_count(0)
    page.evaluate("scrollTo(0, 0)")


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("size", [DESK, PHONE], ids=["desk", "phone"])
def test_everything_can_be_read(open_page, scheme, size):
    with open_page(viewport=size, color_scheme=scheme) as page:
        live(page)
        look_at_everything(page)
        assert probe(page, "tooFaint", LEAST_CONTRAST) == []
        assert probe(page, "tooWide") == []
        picture(page, f"{'desk' if size is DESK else 'phone'}-{scheme}")
        page.get_by_role("button", name="Pause…").click()
        assert probe(page, "tooFaint", LEAST_CONTRAST) == []
        assert probe(page, "tooWide") == []
        picture(page, f"{'desk' if size is DESK else 'phone'}-{scheme}-dialog", full=False)


def test_the_switch_holds_against_the_system_and_after_a_reload(page):
    def background():
        return page.evaluate("getComputedStyle(document.body).backgroundColor")

    light = background()
    switch = page.locator("#theme")
    switch.click()
    assert background() == light  # it says light now, whatever the system says
    switch.click()
    dark = background()
    assert dark != light
    page.reload()
    live(page)
    assert background() == dark


def test_everything_is_reached_and_left_by_keyboard(page):
    page.keyboard.press("Tab")
    expect(page.locator(".skip")).to_be_focused()
    seen = []
    for _ in range(12):
        page.keyboard.press("Tab")
        focus = probe(page, "focus")
        assert focus["outlined"], focus
        assert focus["inSight"], focus
        seen.append(focus["name"])
    assert seen[:3] == ["change", "pause", "drain"]
    page.locator("#pause").focus()
    page.keyboard.press("Enter")
    dialog = page.get_by_role("dialog")
    expect(dialog.get_by_label("Why")).to_be_focused()
    for _ in range(8):
        page.keyboard.press("Tab")
        assert probe(page, "focus")["inDialog"], "the focus left the dialog"
    page.keyboard.press("Escape")
    expect(dialog).to_have_count(0)
    expect(page.locator("#pause")).to_be_focused()


def test_tables_and_alarms_speak_to_a_screen_reader(page):
    look_at_everything(page)
    assert probe(page, "nameless") == []
    expect(page.locator("#alarms")).to_have_attribute("role", "alert")


@pytest.fixture
def closed(stack, pipeline):
    """A second control service of the same pipeline, which wants a token; and that token."""
    home = Home(stack.home.folder / "pipelines" / "closed", CHECKOUT / ".dovetail")
    port = Ports(home, {}, {}).choose("closed")
    token = secrets.token_hex(24)
    file = home.run / "token"
    file.write_text(token)
    process = Managed(
        home,
        "closed",
        [sys.executable, "-m", "services.control.main"],
        cwd=CHECKOUT,
        env={
            **pipeline.service("control").process._env,
            "DOVETAIL_LOCAL": "0",
            "DOVETAIL_PORT": str(port),
            "DOVETAIL_ADMIN_TOKEN_FILE": str(file),
        },
    )
    process.start()
    url = f"http://127.0.0.1:{port}"
    try:
        while not is_ready(url):
            process.check()
            pipeline.pause(0.2)
        yield url, token
    finally:
        process.stop()


def test_a_closed_api_is_opened_by_a_token_that_this_tab_alone_keeps(open_page, closed):
    url, token = closed
    with open_page(url, quiet=False) as page:  # a refusal is an error to the browser's console
        dialog = page.get_by_role("dialog")
        expect(dialog).to_contain_text("A token is needed")
        picture(page, "token", full=False)
        assert page.locator("#processes tbody tr").count() == 0
        dialog.get_by_label("Token").fill("x" * 48)
        dialog.get_by_role("button", name="Sign in").click()
        expect(dialog.get_by_role("alert")).to_be_visible()
        dialog.get_by_label("Token").fill(token)
        dialog.get_by_role("button", name="Sign in").click()
        live(page)
        expect(page.locator("#who")).to_have_text(re.compile("admin"))
        assert token in page.evaluate("Object.values(sessionStorage)")
        assert token not in page.evaluate("JSON.stringify(localStorage) + document.cookie")
        page.reload()
        live(page)
        page.get_by_role("button", name="Sign out").click()
        expect(page.get_by_role("dialog")).to_contain_text("A token is needed")
        assert page.evaluate("Object.values(sessionStorage)") == []


def test_who_may_only_read_is_told_which_role_shows_keys_and_letters(open_page, closed):
    url, admin = closed
    told = {"name": "a reader", "role": "read"}
    made = httpx.post(f"{url}/v1/tokens", json=told, headers={"Authorization": f"Bearer {admin}"})
    with open_page(url, quiet=False) as page:  # to ask for a token, the API has refused one
        dialog = page.get_by_role("dialog")
        dialog.get_by_label("Token").fill(made.json()["token"])
        dialog.get_by_role("button", name="Sign in").click()
        live(page)
        for panel in ("#cache", "#letters"):
            page.locator(panel).scroll_into_view_if_needed()
            expect(page.locator(f"{panel} > .note").first).to_contain_text("the role inspect")
