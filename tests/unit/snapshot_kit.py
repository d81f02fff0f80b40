"""Versions of a snapshot, published from rows in memory."""

from __future__ import annotations

from dovetail.master.snapshot.split import fill_slots, slot_folder
from dovetail.master.snapshot.versions import Content, SlotFacts, Version, seal
from tests.integration.master_kit import pipeline

COMMAND = "dovetail spark snapshot pipeline.yaml"


def pipeline_of(key, slots, join="inner"):
    columns = ["r"] if join == "inner" else []
    return pipeline("goods", columns, {"id": key}, join=join, slots=slots)


def fill(unseen, number, of, rows, page_bytes=8192):
    content = Content.of(of)
    held = fill_slots(unseen, rows, content.slots, key=content.key_type, page_bytes=page_bytes)
    slots = [
        SlotFacts.of(slot_folder(unseen, slot), manifest) for slot, manifest in enumerate(held)
    ]
    version = Version(
        pipeline=of.name,
        version=number,
        written_at="2026-01-01T00:00:00+00:00",
        database_snapshot="1:1:",
        content=content,
        rows=len(rows),
        slots=slots,
    )
    seal(unseen, version)


def publish(versions, of, rows, page_bytes=8192):
    with versions.next() as (number, unseen):
        fill(unseen, number, of, rows, page_bytes)
    return number
