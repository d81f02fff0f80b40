"""Actions, each behind a dialog that says what will happen."""

from __future__ import annotations

import json

from playwright.sync_api import expect

from tests.console.conftest import asked, confirm, live, picture

HOSTILE = '<img src=x onerror="document.title=1"><script>document.title=2</script>'


def job_row(page, kind, state="done"):
    rows = page.locator("#jobs tbody tr", has_text=kind)
    return rows.filter(has=page.locator(".badge", has_text=state)).first


def test_the_algorithm_is_changed_while_it_runs(page, pipeline):
    before = asked(pipeline, "v1/pipelines/sales")
    dialog = confirm(page, "Change…", algorithm="srj", why="the console's test")
    expect(dialog).to_contain_text("algorithm: auto → srj")
    expect(dialog).to_contain_text("Nothing is lost or repeated")
    picture(page, "change-dialog", full=False)
    dialog.get_by_role("button", name="Change it").click()
    expect(dialog).to_have_count(0)
    page.locator("#jobs").scroll_into_view_if_needed()
    expect(job_row(page, "settings")).to_be_visible()
    page.locator("#algorithm").scroll_into_view_if_needed()
    expect(page.locator("#algorithm .asked")).to_have_text("srj")
    expect(page.locator("#algorithm .running")).to_have_text(["srj", "srj"])
    expect(page.locator("#revision")).to_have_text(f"revision {before['revision'] + 1}")
    page.locator("#changes").scroll_into_view_if_needed()
    expect(page.locator("#changes tbody tr").first).to_contain_text("the console's test")
    assert asked(pipeline, "v1/pipelines/sales")["pipeline"]["algorithm"] == "srj"


def test_what_the_service_refuses_is_said_in_the_dialog(open_page):
    with open_page(refusals=[422]) as page:
        live(page)
        dialog = confirm(page, "Change…", memory="1 cup")
        dialog.get_by_role("button", name="Change it").click()
        expect(dialog.get_by_role("alert")).to_contain_text("memory")
        dialog.get_by_role("button", name="Cancel").click()
        expect(dialog).to_have_count(0)


def test_pause_stops_the_flow_and_resume_lets_it_go_on(page, pipeline):
    dialog = confirm(page, "Pause…", why="a look")
    expect(dialog).to_contain_text("takes nothing more")
    dialog.get_by_role("button", name="Pause", exact=True).click()
    expect(page.locator("#state")).to_have_text("paused")
    expect(page.locator("#processes .badge", has_text="paused")).to_have_count(6)
    paused = asked(pipeline, "v1/audit")
    assert paused["problems"] == []
    page.get_by_role("button", name="Resume…").click()
    page.get_by_role("dialog").get_by_role("button", name="Resume", exact=True).click()
    expect(page.locator("#state")).to_have_text("running")
    pipeline.wait_until(lambda seen: seen.enriched > paused["enriched"], "it goes on")


def found_letters(pipeline, reason):
    """Letters of a reason that the demo's own events never have, the newest first."""
    return asked(pipeline, f"v1/pipelines/sales/dead-letters?reason={reason}")["letters"]


def test_a_dead_letter_is_read_as_text_and_replayed_once(open_page, pipeline):
    wrong = {"sale_id": 7, "product_id": 1, "quantity": 1, "amount": None, "channel": HOSTILE}
    bad = json.dumps({**wrong, "sold_at": "2026-01-31T09:00:00Z"}).encode()
    pipeline.send([bad])
    with open_page(refusals=[409]) as page:
        live(page)
        letters = page.locator("#letters")
        letters.scroll_into_view_if_needed()
        letters.get_by_label("Reason").select_option("null-field")
        rows = letters.locator(".letters tbody tr", has_text="<img src=x")
        expect(rows).to_have_count(1)
        identity = rows.locator("button").inner_text()
        rows.locator("button").click()
        dialog = page.get_by_role("dialog")
        expect(dialog.locator("pre")).to_have_text(bad.decode())
        assert page.locator("img").count() == 1  # the page's own
        picture(page, "dead-letter", full=False)
        dialog.get_by_label("Why").fill("the console's test")
        dialog.get_by_role("button", name="Replay it").click()
        expect(dialog).to_have_count(0)
        expect(page.locator("#notices")).to_contain_text("Replayed")
        # It is a new event of the source, as wrong as before: it comes back as another letter.
        expect(rows).to_have_count(2)
        replayed = rows.filter(has_text="by local")
        expect(replayed).to_have_count(1)
        assert replayed.locator("button").inner_text() == identity
        assert [one["replayed"] is None for one in found_letters(pipeline, "null-field")] == [
            True,
            False,
        ]
        replayed.locator("button").click()
        dialog.get_by_role("button", name="Replay it").click()
        expect(dialog.get_by_role("alert")).to_contain_text("replayed before")
        dialog.get_by_role("button", name="Cancel").click()
        expect(rows).to_have_count(2)


def test_many_letters_are_replayed_by_a_job(page, pipeline):
    pipeline.send([b'{"sale_id": 1, "product_id": 1}'] * 3)
    letters = page.locator("#letters")
    letters.scroll_into_view_if_needed()
    letters.get_by_label("Reason").select_option("missing-field")
    rows = letters.locator(".letters tbody tr", has_text="missing-field")
    expect(rows).to_have_count(3)
    dialog = confirm(page, "Replay these…", why="the console's test")
    expect(dialog).to_contain_text("with the reason missing-field")
    dialog.get_by_role("button", name="Replay them").click()
    expect(rows).to_have_count(6)
    page.locator("#jobs").scroll_into_view_if_needed()
    expect(job_row(page, "replay")).to_contain_text("replayed 3")


def test_a_spark_job_is_started_and_cancelled(page):
    page.locator("#spark").scroll_into_view_if_needed()
    dialog = confirm(page, "Start frequency", why="the console's test")
    expect(dialog).to_contain_text("a process of its own")
    dialog.get_by_role("button", name="Start frequency").click()
    expect(dialog).to_have_count(0)
    page.locator("#jobs").scroll_into_view_if_needed()
    job_row(page, "spark", "running").get_by_role("button", name="Cancel").click()
    dialog.get_by_role("button", name="Cancel the job").click()
    expect(job_row(page, "spark", "cancelled")).to_be_visible()
