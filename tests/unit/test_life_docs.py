"""The life of an event: through files that there are, and not too many of them."""

from __future__ import annotations

import re

from deploy.local.home import CHECKOUT

PAGE = CHECKOUT / "docs/life-of-an-event.md"
FUSED = re.search(
    r"^## In one process\n(.*?)^\*\*On several", PAGE.read_text(), re.MULTILINE | re.DOTALL
)[1]


def files_of(text):
    return re.findall(r"\]\(\.\./([\w./]+)\)", text)


def test_an_event_of_one_fused_node_passes_at_most_fifteen_files():
    passed = set(files_of(FUSED))
    assert "services/node/handler.py" in passed
    assert len(passed) <= 15


def test_every_file_is_there():
    found = files_of(PAGE.read_text())
    assert found
    assert [file for file in found if not (CHECKOUT / file).exists()] == []
