"""On Spark, R lies in the page cache where it has room there."""

from __future__ import annotations

import pytest

from services.spark import relation


@pytest.mark.parametrize(("available", "has_room"), [(4_000, True), (3_996, False), (0, False)])
def test_a_quarter_of_what_is_available_is_room(available, has_room, monkeypatch):
    monkeypatch.setattr(relation, "_available", lambda: available)
    assert relation._has_room_in_cache(1_000) is has_room


def test_what_is_available_is_asked_of_the_system():
    assert relation._available() > 0
