from __future__ import annotations

import logging

from tests.unit.test_disk_phase_handler import Disk


def test_every_choice_of_auto_is_told_with_its_reason(caplog):
    with caplog.at_level(logging.INFO):
        disk = Disk(algorithm="auto")
    (told,) = [record for record in caplog.records if record.message == "algorithm chosen"]
    assert told.algorithm == "srj"
    assert "srj promises" in told.reason
    assert disk.handler.figures()["choices"] == 1


def test_a_fixed_algorithm_is_nobodys_choice(caplog):
    with caplog.at_level(logging.INFO):
        disk = Disk(algorithm="hybridjoin")
    assert "algorithm chosen" not in caplog.messages
    assert disk.handler.figures()["choices"] == 0
