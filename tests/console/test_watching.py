"""Figures that move, and what is said when something stops."""

from __future__ import annotations

import re
import signal

from playwright.sync_api import expect

from tests.console.conftest import PATIENCE_MS, asked, live, picture


def number(text):
    """What a figure says: 12.3 k → 12300."""
    digits, unit = re.match(r"([\d.,]+)\s*([kMGT]?)", text).groups()
    return float(digits.replace(",", "")) * {"": 1, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12}[unit]


def tile(page, name):
    return page.locator(".tile", has=page.get_by_text(name, exact=True)).locator(".value")


def test_figures_move_as_the_data_flows(page, pipeline):
    expect(page.locator("#state")).to_have_text("running")
    for name in ("In", "Out"):
        expect(tile(page, name)).to_have_text(re.compile(r"[1-9].*/s"))
    equation = page.locator("#conservation .equation")
    before = equation.inner_text()
    expect(equation).not_to_have_text(before)
    expect(page.locator("#conservation .verdict")).to_have_text("holds")
    taken = number(re.search(r"in ([\d,]+) =", equation.inner_text())[1])
    assert 0 < taken <= asked(pipeline, "v1/audit")["in"]


def test_the_drawing_has_a_rate_on_every_edge_of_the_flow(page):
    drawing = page.locator("#flow-drawing")
    flows = re.compile(r"[1-9][\d.,]* ?k?/s")
    expect(drawing.locator(".rate text").filter(has_text=flows)).not_to_have_count(0)
    for words in ("hits", "miss"):
        expect(drawing.locator(".rate text").filter(has_text=words)).to_have_text(flows)
    for stage in ("ingest", "mapper", "cache phase", "disk phase"):
        expect(drawing.locator(".stage.up", has_text=stage)).to_have_count(1)
    assert drawing.locator(".stage .dot.ready").count() == 6


def test_hits_latency_memory_and_slots_are_those_of_the_api(page, pipeline):
    expect(tile(page, "Cache hits")).to_have_text(re.compile(r"\d %"))
    expect(tile(page, "Latency p99")).to_have_text(re.compile(r"\d (ms|s)"))
    expect(page.locator("#latency tbody tr").first.locator("td").first).to_have_text(
        re.compile(r"\d (ms|s)")
    )
    expect(page.locator("#memory .node-memory")).to_have_count(2)
    expect(page.locator("#memory .phase")).to_have_count(4)
    page.locator("#slots").scroll_into_view_if_needed()
    expect(page.locator("#slots tbody tr")).to_have_count(pipeline.spec.slots)
    expect(page.locator("#slots tbody")).not_to_contain_text("nobody")


def test_the_algorithm_is_shown_with_its_reason(page, pipeline):
    page.locator("#algorithm").scroll_into_view_if_needed()
    expect(page.locator("#algorithm .node-algorithm")).to_have_count(2)
    told = {node["running"] for node in asked(pipeline, "v1/pipelines/sales/algorithm")["nodes"]}
    expect(page.locator("#algorithm .running").first).to_have_text(
        re.compile("|".join(re.escape(name) for name in told))
    )
    expect(page.locator("#algorithm .why").first).to_have_text(re.compile(r"\w{3}"))
    expect(page.locator("#algorithm .scan small").first).to_have_text(re.compile("scan"))


def test_the_cache_is_shown_against_the_inequality(page, pipeline):
    page.locator("#cache").scroll_into_view_if_needed()
    expect(page.locator("#cache .scatter .dot")).not_to_have_count(0)
    expect(page.locator("#cache .scatter .limit")).to_have_count(1)
    page.locator("#cache-keys").scroll_into_view_if_needed()
    row = page.locator("#cache-keys tbody tr").first
    expect(row).to_contain_text("hits")
    key = row.locator("button").inner_text()
    row.locator("button").click()
    answer = page.locator("#lookup-answer")
    expect(answer).to_contain_text("answered by the cache")
    expect(answer).to_contain_text(f"{key} is of slot")
    expect(answer.locator("table")).to_contain_text("vendor")


def test_a_dead_node_is_seen_and_seen_to_come_back(page, pipeline):
    """Nobody starts it again meanwhile: the supervisor only looks when it is asked to."""
    row = page.locator("#processes tbody tr", has_text="disk_phase-1")
    expect(row).to_contain_text("ready")
    pipeline.kill("disk_phase-1")
    expect(page.get_by_role("alert")).to_contain_text("disk_phase-1 is gone")
    expect(row).to_contain_text("gone")
    drawn = page.locator("#flow-drawing .stage", has_text="disk phase")
    expect(drawn).to_contain_text("1 of 2 gone")
    expect(page.locator("#state")).to_have_text("degraded")
    picture(page, "dead-node", height=1400)
    pipeline.wait_until_ready()
    expect(row).to_contain_text("ready")
    expect(page.get_by_role("alert")).not_to_contain_text("gone")
    expect(page.locator("#state")).to_have_text("running")


def test_figures_that_stop_are_said_to_be_stale(open_page, pipeline):
    with open_page(quiet=False) as page:  # a stream that is cut off is an error to the browser
        live(page)
        pipeline.send_signal("control", signal.SIGSTOP)
        try:
            expect(page.locator("#live")).to_have_text(re.compile(r"stale since \d\d:\d\d"))
            expect(page.get_by_role("alert")).to_contain_text("Figures are stale since")
            picture(page, "stale", full=False)
        finally:
            pipeline.send_signal("control", signal.SIGCONT)
        expect(page.locator("#live")).to_have_text("live", timeout=2 * PATIENCE_MS)
        expect(page.get_by_role("alert")).not_to_contain_text("stale")
