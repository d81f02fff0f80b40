"""A fused pipeline as the console shows it: its nodes, and no stage that is not there."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import expect

from tests.console.conftest import live, picture, running
from tests.console.test_watching import tile

FLOWS = re.compile(r"[1-9][\d.,]* ?k?/s")


@pytest.fixture(scope="module", params=[1, 2], ids=["one node", "two nodes"])
def fused(request, stack, catalogue):
    nodes = request.param
    with running(stack, catalogue, f"fused{nodes}", layout="fused", nodes=nodes) as pipeline:
        yield pipeline


@pytest.fixture
def page(open_page, fused):
    with open_page(fused.url("control")) as page:
        live(page)
        yield page


def test_the_drawing_has_the_nodes_and_nobody_else(page, fused):
    drawing = page.locator("#flow-drawing")
    stages = ["node"] if fused.spec.nodes == 1 else ["intake", "node"]
    expect(drawing.locator(".stage .title")).to_have_text(stages)
    expect(drawing.locator(".stage.up")).to_have_count(len(stages))
    expect(drawing.locator(".stage .dot.ready")).to_have_count(fused.spec.nodes * len(stages))
    into_the_sink = 1 + len(stages)
    expect(drawing.locator(".rate text").filter(has_text=FLOWS)).not_to_have_count(0)
    flowing = drawing.locator(".moving:not(.still)")
    expect(flowing.nth(into_the_sink - 1)).to_be_attached()
    picture(page, f"fused-{fused.spec.nodes}")


def test_hits_latency_and_memory_are_those_of_the_nodes(page, fused):
    expect(tile(page, "Cache hits")).to_have_text(re.compile(r"\d %"))
    expect(tile(page, "Latency p99")).to_have_text(re.compile(r"\d (ms|s)"))
    answers = page.locator("#latency tbody tr")
    expect(answers).to_have_count(1)
    expect(answers.locator("td").first).to_have_text(re.compile(r"\d (ms|s)"))
    expect(page.locator("#processes tbody tr")).to_have_count(fused.spec.nodes)
    expect(page.locator("#memory .phase .name")).to_have_text(["node"] * fused.spec.nodes)


def test_every_slot_has_a_node(page, fused):
    page.locator("#slots").scroll_into_view_if_needed()
    expect(page.locator("#slots tbody tr")).to_have_count(fused.spec.slots)
    expect(page.locator("#slots tbody")).not_to_contain_text("nobody")


def test_algorithm_and_cache_are_shown_with_their_reasons(page, fused):
    page.locator("#algorithm").scroll_into_view_if_needed()
    expect(page.locator("#algorithm .node-algorithm")).to_have_count(fused.spec.nodes)
    expect(page.locator("#algorithm .why").first).to_have_text(re.compile(r"\w{3}"))
    page.locator("#cache").scroll_into_view_if_needed()
    expect(page.locator("#cache .scatter .dot")).not_to_have_count(0)
