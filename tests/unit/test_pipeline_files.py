"""Files and folders are named from the pipeline file's folder on."""

from __future__ import annotations

from dovetail.pipeline.load import load_pipeline

PIPELINE = """
name: sales
source: {fields: {id: int, shop: int}}
key: id
master: {table: goods, columns: [price], snapshot: snapshots}
then:
  - key: shop
    master: {table: shops, columns: [city], snapshot: /srv/snapshots}
"""


def test_the_snapshots_of_every_table_have_their_folder(tmp_path):
    (tmp_path / "pipeline.yaml").write_text(PIPELINE)
    pipeline = load_pipeline(tmp_path / "pipeline.yaml", {})
    assert pipeline.master.snapshot == str(tmp_path / "snapshots")
    assert pipeline.link(2).master.snapshot == "/srv/snapshots"
