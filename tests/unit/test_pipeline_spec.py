from __future__ import annotations

import copy
from typing import Any

import pytest
from pydantic import BaseModel, ValidationError

from dovetail.pipeline.spec import (
    DERIVED_TOPICS,
    Algorithm,
    Field,
    FieldType,
    JoinKind,
    KeyType,
    Master,
    Order,
    Overload,
    Pipeline,
    Shed,
    Sink,
    Source,
)
from dovetail.topology import Topology

LEAST: dict[str, Any] = {
    "name": "sales",
    "source": {"fields": {"sku": "text", "store": "int", "note": "text?"}},
    "key": "sku",
    "master": {"table": "items", "columns": ["price"]},
}


def pipeline(**changes: Any) -> Pipeline:
    return Pipeline.model_validate({**copy.deepcopy(LEAST), **changes})


def refusal(**changes: Any) -> str:
    with pytest.raises(ValidationError) as caught:
        pipeline(**changes)
    return str(caught.value)


def test_the_least_pipeline_has_a_default_for_everything_else() -> None:
    assert pipeline() == Pipeline(
        name="sales",
        source=Source(
            topic="sales",
            partitions=4,
            max_event_bytes=65536,
            fields={
                "sku": Field(type=FieldType.TEXT),
                "store": Field(type=FieldType.INT),
                "note": Field(type=FieldType.TEXT, optional=True),
            },
        ),
        key=("sku",),
        master=Master(table="items", key=("sku",), columns={"price": "price"}),
        join=JoinKind.INNER,
        algorithm=Algorithm.AUTO,
        memory=128 * 1024**2,
        nodes=1,
        slots=8,
        overload=None,
        sink=Sink(topic="sales.enriched"),
    )


def test_a_pipeline_cannot_be_changed() -> None:
    with pytest.raises(ValidationError):
        pipeline().nodes = 3


@pytest.mark.parametrize("mode", ["python", "json"])
def test_a_pipeline_survives_being_dumped(mode: str) -> None:
    assert Pipeline.model_validate(pipeline().model_dump(mode=mode)) == pipeline()


@pytest.mark.parametrize(
    ("key", "of"),
    [
        ("store", KeyType.INT),
        ("sku", KeyType.TEXT),
        (["sku", "store"], KeyType.COMPOSITE),
        (["store"], KeyType.INT),
    ],
)
def test_the_key_type_follows_from_the_fields(key: object, of: KeyType) -> None:
    assert pipeline(key=key).key_type is of


def test_a_column_can_be_renamed_in_the_output() -> None:
    master = {"table": "shop.items", "columns": {"price": "list_price"}}
    assert pipeline(master=master).master.columns == {"price": "list_price"}
    assert pipeline(master=master).master.relation == ("shop", "items")
    assert pipeline().master.relation == (None, "items")


def test_an_overload_is_left_to_backpressure_unless_the_pipeline_says_what_to_shed() -> None:
    assert pipeline(overload="backpressure").overload is None
    assert pipeline(overload={}).overload == Overload(
        shed=Shed.AUTO, when_behind=30.0, criterion=None
    )
    given = pipeline(overload={"when_behind": "2m", "criterion": "random-sample"})
    assert given.overload is not None
    assert (given.overload.when_behind, given.overload.criterion) == (120.0, "random-sample")
    assert Pipeline.model_validate(given.model_dump(mode="json")) == given


@pytest.mark.parametrize(
    ("written", "order"),
    [
        ("none", Order()),
        ("key", Order(by_key=True)),
        ("source", Order(within=0)),
        ({"within": 50}, Order(within=50)),
    ],
)
def test_an_order_is_shown_as_it_is_written(written: object, order: Order) -> None:
    made = pipeline(order=written)
    assert made.order == order
    assert made.order.kept == (written != "none")
    assert made.model_dump(mode="json")["order"] == written
    assert Pipeline.model_validate(made.model_dump(mode="json")) == made


def test_no_order_is_kept_unless_the_pipeline_asks_for_one() -> None:
    assert pipeline().order == Order()


def test_a_semi_join_needs_no_columns() -> None:
    assert pipeline(join="semi", master={"table": "items"}).master.columns == {}


def test_every_rule_holds_for_a_pipeline_made_in_code_too() -> None:
    told = refusal(key=["sku", "note"], nodes=9)
    assert "key: 'note' may be missing" in told
    assert "nodes: 9 nodes cannot share 8 slots" in told


@pytest.mark.parametrize(
    "changes",
    [
        {"name": "Sales"},
        {"name": "1sales"},
        {"name": "sales.eu"},
        {"name": ""},
        {"name": "s" * 101},
        {"key": []},
        {"key": ["sku", "sku"]},
        {"key": "nothing"},
        {"nodes": 0},
        {"nodes": True},
        {"nodes": "2"},
        {"slots": 1025},
        {"memory": 4 * 1024**2 - 1},
        {"memory": True},
        {"join": "full"},
        {"sink": {"topic": "a b"}},
        {"sink": {"topic": ".."}},
        {"sink": {"topic": "__consumer_offsets"}},
        {"sink": {"topic": "x" * 250}},
        {"sink": {"topic": "sales"}},
        {"sink": {"topic": "dovetail.control"}},
        {"sink": {"topic": "out", "acks": 1}},
        {"source": {"fields": {}}},
        {"source": {"fields": {"sku": "text", 'a"b': "int"}}},
        {"source": {"fields": {"sku": "text", " a": "int"}}},
        {"source": {"fields": {"sku": "text??"}}},
        {"master": {"table": "a.b.c", "columns": ["price"]}},
        {"master": {"table": "a.", "columns": ["price"]}},
        {"master": {"table": "items", "columns": ["price", "price"]}},
        {"master": {"table": "items", "columns": {"a": "x", "b": "x"}}},
        {"master": {"table": "items", "columns": ["p" * 64]}},
        {"master": {"table": "items", "columns": ["store"]}},
        {"master": {"table": "items"}},
        {"master": {"table": "items", "key": ["a", "b"], "columns": ["price"]}},
        {"join": "anti"},
        {"overload": "shed"},
        {"overload": {"shed": "all"}},
        {"overload": {"when_behind": "0.9s"}},
        {"overload": {"when_behind": True}},
        {"overload": {"shed": "keep-w", "criterion": "max-subset"}},
    ],
)
def test_what_cannot_run_is_refused(changes: dict[str, Any]) -> None:
    refusal(**changes)


def test_a_key_has_at_most_eight_parts() -> None:
    names = [f"part{i}" for i in range(9)]
    source = {"fields": dict.fromkeys(names, "int")}
    assert len(pipeline(source=source, key=names[:8]).key) == 8
    assert "a key has at most 8 parts, this one has 9" in refusal(source=source, key=names)


@pytest.mark.parametrize("suffix", DERIVED_TOPICS)
@pytest.mark.parametrize("section", ["source", "sink"])
def test_no_setting_may_name_a_derived_topic(section: str, suffix: str) -> None:
    given = {**LEAST.get(section, {}), "topic": f"sales.{suffix}"}
    told = f"Dovetail itself writes to 'sales.{suffix}'; choose another topic"
    assert told in refusal(**{section: given})


def test_the_derived_topics_are_those_of_the_topology() -> None:
    made = pipeline()
    topics = {topic.name for topic in Topology(made).topics()}
    others = {made.source.topic, made.sink.topic, "dovetail.control", "dovetail.stats"}
    assert set(made.derived_topics) == topics - others


@pytest.mark.parametrize("model", [Pipeline, Source, Master, Overload, Sink])
def test_every_setting_has_an_example(model: type[BaseModel]) -> None:
    assert [name for name, info in model.model_fields.items() if not info.examples] == []


def test_a_size_with_its_unit_is_not_taken_for_one_without() -> None:
    assert "did you mean" not in refusal(memory="1MiB")
    assert "did you mean 128MiB?" in refusal(memory=128)
