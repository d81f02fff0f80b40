"""What `enrich` does by a command, and when it has to begin anew for one."""

from __future__ import annotations

import pytest
import yaml

from dovetail.contracts.control_pb2 import Command
from dovetail.pipeline.load import load_pipeline
from dovetail.service.orders import digest_of
from dovetail.service.revision import Revision
from dovetail.stream.handler import Move
from services.spark.enrich_orders import Standing

SPEC = {
    "name": "sales",
    "source": {"fields": {"sku": "int"}},
    "key": "sku",
    "master": {"table": "products", "columns": ["price"]},
    "engine": "spark",
}


@pytest.fixture
def file(tmp_path):
    file = tmp_path / "pipeline.yaml"
    file.write_text(yaml.safe_dump(SPEC))
    return file


@pytest.fixture
def standing(file):
    return Standing(Revision.ordered(file, load_pipeline(file, {}), None))


@pytest.fixture
def command(file):
    def make(number, action=Command.ACTION_RESUME, **changes):
        return Command(
            pipeline="sales",
            service="enrich",
            number=number,
            action=action,
            revision=number,
            document=yaml.safe_dump({**SPEC, **changes}),
            file_digest=digest_of(file),
        )

    return make


def test_a_command_that_changes_nothing_lets_it_go_on(standing, command):
    later = standing.after(command(3))
    assert later.is_like(standing)
    assert (later.number, later.revision.number) == (3, 3)


@pytest.mark.parametrize("action", [Command.ACTION_PAUSE, Command.ACTION_DRAIN])
def test_it_rests_until_it_is_to_go_on(standing, command, action):
    resting = standing.after(command(1, action))
    assert resting.rests
    assert not resting.is_like(standing)
    assert resting.after(command(2)).is_like(standing)


def test_a_revision_is_other_work(standing, command):
    revised = standing.after(command(1, memory="8MiB"))
    assert not revised.is_like(standing)
    assert revised.revision.pipeline.memory == 8 << 20


def test_a_revision_that_cannot_be_run_by_is_refused_and_said(standing, command):
    refused = standing.after(command(1, slots=2))
    assert refused.is_like(standing)
    assert "slots" in refused.revision.refused


def test_where_to_read_from_is_told_once(standing, command):
    order = command(4, Command.ACTION_DRAIN)
    order.read_from[0] = 17
    order.read_from_number = 4
    moving = standing.after(order)
    assert moving.move == Move(4, {0: 17})
    assert moving.after(command(5)).move is None
