from __future__ import annotations

from pathlib import Path

import pytest

from dovetail.errors import ConfigError
from dovetail.pipeline.load import load_pipeline
from dovetail.pipeline.spec import FieldType, JoinKind, KeyType
from dovetail.topology import Topology

GOOD = """\
name: sales
source:
  fields:
    sale: int
    sku: text
    buyer: int?
key: sku
master:
  table: items
  columns: [price, vendor]
then:
  - key: buyer
    master:
      table: customers
      columns: [segment]
    join: left
    memory: 8MiB
  - key: [vendor, segment]
    fields: {vendor: int, segment: text}
    master: {table: offers, key: [vendor_id, segment]}
    join: semi
"""


@pytest.fixture
def load(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)

    def load(text: str):
        Path("pipeline.yaml").write_text(text)
        return load_pipeline("pipeline.yaml", {})

    return load


def test_a_link_is_a_pipeline_over_what_the_tables_before_it_gave(load):
    sales = load(GOOD)
    assert sales.links == 3
    assert sales.link(1) is sales
    second, third = sales.link(2), sales.link(3)
    assert (second.key, second.join, second.memory) == (("buyer",), JoinKind.LEFT, 8 << 20)
    assert second.key_type is KeyType.INT
    assert second.master.key == ("buyer",)
    assert list(second.source.fields) == ["sale", "sku", "buyer", "price", "vendor"]
    assert third.key_type is KeyType.COMPOSITE
    assert third.source.fields["vendor"].type is FieldType.INT
    assert third.source.fields["price"].type is FieldType.JSON


def test_what_a_link_gives_goes_to_the_next_ones_slots_and_the_last_one_writes_to_the_sink(load):
    topology = Topology(load(GOOD))
    assert [stage.service for stage in topology.stages] == [
        "ingest",
        "mapper",
        "cache_phase",
        "disk_phase",
        "cache_phase.2",
        "disk_phase.2",
        "cache_phase.3",
        "disk_phase.3",
    ]
    for before, after in (("cache_phase", "sales.2.mapped"), ("disk_phase.2", "sales.3.mapped")):
        assert after in {topic.name for topic in topology.stage(before).writes}
        assert topology.enriched not in topology.stage(before).writes
    assert topology.enriched in topology.stage("cache_phase.3").writes
    names = [topic.name for topic in topology.topics()]
    assert len(set(names)) == len(names)
    assert "sales.3.progress" in names


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (
            "  - key: buyer\n",
            "  - key: byer\n",
            (
                "12: then.0.key: 'byer' is neither a field of the event nor a column of a"
                " table before it; did you mean 'buyer'?"
            ),
        ),
        (
            "  - key: buyer\n",
            "  - key: segment\n",
            (
                "12: then.0.key: 'segment' is neither a field of the event nor a column of"
                " a table before it; one of them must have it"
            ),
        ),
        (
            "vendor: int, segment: text}",
            "vendor: int}",
            (
                "18: then.1.key: a join key is an int or a text; say what it is,"
                " fields: {segment: int} or {segment: text}"
            ),
        ),
        (
            "vendor: int, segment: text}",
            "vendor: int, segment: text, sale: int}",
            (
                "19: then.1.fields: no table before adds a column 'sale'; here stand the"
                " types of such columns alone"
            ),
        ),
        (
            "columns: [segment]",
            "columns: [segment, price]",
            (
                "15: then.0.master.columns: 'price' is also a field of the event; rename"
                " it in the output, e.g. price: customers_price"
            ),
        ),
        (
            "key: [vendor_id, segment]}",
            "key: vendor_id}",
            (
                "20: then.1.master.key: 1 column for 2 fields in key; name one column for"
                " each of vendor, segment, in that order"
            ),
        ),
        (
            "    join: left\n",
            "    join: outer\n",
            "16: then.0.join: 'outer' is none of inner, left, semi, anti",
        ),
        (
            "    memory: 8MiB\n",
            "    memory: 8\n",
            (
                "17: then.0.memory: 8 bytes is too little: a node needs at least 4MiB;"
                " did you mean 8MiB?"
            ),
        ),
        (
            "      table: customers\n",
            "",
            "13: then.0.master.table: is missing; e.g. table: products",
        ),
        (
            "  - key: buyer\n    master:",
            "  - master:",
            "12: then.0.key: is missing; e.g. key: customer_id",
        ),
        (
            "    join: semi\n",
            "    join: semi\n    nodes: 2\n",
            "22: then.1.nodes: there is no such setting here; it belongs in nodes",
        ),
        (
            "then:",
            "order: source\nthen:",
            (
                "11: order: a chain keeps none: its tables are joined in parallel; remove"
                " order: source, or the tables under then"
            ),
        ),
        (
            "then:",
            "overload: {shed: auto}\nthen:",
            (
                "11: overload: a chain sheds nothing: what waits for its further tables is"
                " not watched; write overload: backpressure, or remove the tables under then"
            ),
        ),
        (
            "then:",
            "sink: {topic: sales.3.missed}\nthen:",
            ("11: sink.topic: Dovetail itself writes to 'sales.3.missed'; choose another topic"),
        ),
    ],
)
def test_what_is_wrong_with_a_link_is_told_with_its_line_and_cure(load, old, new, message):
    assert old in GOOD
    with pytest.raises(ConfigError) as caught:
        load(GOOD.replace(old, new))
    assert str(caught.value).splitlines() == [f"pipeline.yaml:{message}"]
