"""Commands: who obeys which, and by which revision a service runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from dovetail.contracts.control_pb2 import Command
from dovetail.pipeline.load import load_pipeline
from dovetail.service.orders import Ordered, digest_of
from dovetail.service.revision import Revision
from dovetail.stream.ledger import Ledger, parse

FILE = Path(__file__).parents[2] / "pipeline.yaml"
PIPELINE = load_pipeline(FILE, {})


def command(number, **other):
    told = {"pipeline": "sales", "service": "ingest", "action": Command.ACTION_PAUSE, **other}
    return Command(number=number, **told).SerializeToString()


def test_the_latest_command_for_a_service_or_for_all_is_obeyed():
    ordered = Ordered("sales", "ingest")
    assert ordered.hear(command(1))
    assert ordered.hear(command(5, service="", action=Command.ACTION_RESUME))
    assert ordered.number == 5


@pytest.mark.parametrize(
    "message",
    [
        None,
        b"",
        b"\xff\xff\xff not a command",
        command(0),
        command(3),
        command(4),
        command(9, service="mapper"),
        command(9, pipeline="other"),
        command(9, action=Command.ACTION_UNSPECIFIED),
        command(9) + b"\x20\x63",
    ],
    ids=str,
)
def test_what_is_malformed_stale_foreign_or_unknown_changes_nothing(message):
    ordered = Ordered("sales", "ingest")
    assert ordered.hear(command(4))
    assert not ordered.hear(message)
    assert ordered.number == 4


def revised(document, revision=2, digest=None, **other):
    return Command(
        revision=revision, document=document, file_digest=digest or digest_of(FILE), **other
    )


def test_a_revision_holds_for_the_file_that_it_goes_beyond():
    document = FILE.read_text().replace("algorithm: auto", "algorithm: srj")
    started = Revision.ordered(FILE, PIPELINE, revised(document))
    assert (started.number, str(started.pipeline.algorithm)) == (2, "srj")
    other_file = Revision.ordered(FILE, PIPELINE, revised(document, digest=b"another"))
    assert (other_file.number, other_file.pipeline) == (0, PIPELINE)
    assert Revision.ordered(FILE, PIPELINE, None).pipeline == PIPELINE
    assert started.after(revised(document, 3)).number == 3


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("algorithm: auto", "algorithm: no-such"),
        ("name: sales", "name: tales"),
        ("slots: 4", "slots: 2"),
        ("key:", "kee:"),
    ],
)
def test_a_revision_that_cannot_be_run_by_is_refused_and_told(old, new):
    before = Revision.ordered(FILE, PIPELINE, None)
    after = before.after(revised(FILE.read_text().replace(old, new)))
    assert after.pipeline == PIPELINE
    assert after.number == 0
    assert "revision 2 is refused" in after.refused


def test_the_ledger_remembers_by_which_order_an_offset_was_moved():
    ledger = Ledger()
    ledger.open(0, "in=5,clean=5")
    assert ledger.moved(0) == 0
    ledger.set_moved(0, 1794875300209)
    text = ledger.text(0)
    assert parse(text)["in"] == 5
    again = Ledger()
    again.open(0, text)
    assert again.moved(0) == 1794875300209
    again.add(0, "in", 1)
    again.commit()
    assert again.text(0) == "clean=5,in=6,moved=1794875300209"
    assert again.total() == {"in": 6, "clean": 5}
