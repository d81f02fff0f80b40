from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from dovetail.errors import ConfigError
from dovetail.pipeline import schema_file
from dovetail.pipeline.load import OVERRIDES, load_pipeline
from dovetail.pipeline.shape import Master
from dovetail.pipeline.spec import FieldType, JoinKind, KeyType, Pipeline
from dovetail.stream.events import paths

DEMO = Path(__file__).parents[2] / "pipeline.yaml"
GOOD = """\
name: sales
source:
  fields:
    sale_id: int
    sku: text
    store: int
    amount: decimal?
key: sku
master:
  table: items
  key: code
  columns:
    - price
    - vendor
join: inner
memory: 64MiB
nodes: 2
slots: 8
"""

Load = Callable[..., Pipeline]
Told = Callable[..., list[str]]


@pytest.fixture
def load(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Load:
    monkeypatch.chdir(tmp_path)

    def load(text: str | bytes, **environment: str) -> Pipeline:
        raw = text if isinstance(text, bytes) else text.encode()
        Path("pipeline.yaml").write_bytes(raw)
        return load_pipeline("pipeline.yaml", environment)

    return load


@pytest.fixture
def told(load: Load) -> Told:
    def told(text: str | bytes, **environment: str) -> list[str]:
        with pytest.raises(ConfigError) as caught:
            load(text, **environment)
        return str(caught.value).splitlines()

    return told


def changed(old: str, new: str) -> str:
    assert old in GOOD
    return GOOD.replace(old, new)


def test_the_demo_is_read() -> None:
    demo = load_pipeline(DEMO, {})
    assert demo.key_type is KeyType.INT
    assert demo.source.fields["customer_id"].optional
    assert demo.source.fields["sold_at"].type is FieldType.TIMESTAMP
    assert list(demo.master.columns) == (
        ["name", "category", "vendor", "price", "weight", "active", "listed_on", "updated_at"]
    )
    assert demo.sink.topic == "sales.enriched"


def test_spark_reads_as_many_source_partitions_as_there_are(load: Load) -> None:
    text = changed("source:\n", "source:\n  partitions: 500\n")
    assert load(f"{text}engine: spark\n").source.partitions == 500


def test_every_problem_is_told_at_once_in_the_order_of_the_file(told: Told) -> None:
    text = (
        GOOD.replace("name: sales", "name: Sales")
        .replace("store: int", "store: integer")
        .replace("key: sku", "key: skuu")
        .replace("- vendor", "- amount")
        .replace("inner", "iner")
        .replace("64MiB", "2MiB")
        .replace("nodes: 2", "nodes: 9")
    )
    assert told(text) == [
        (
            "pipeline.yaml:1: name: 'Sales' cannot name a pipeline, for its topics begin with it:"
            " use up to 100 lower-case letters, digits and hyphens, a letter first"
        ),
        "pipeline.yaml:6: source.fields.store: 'integer' is called int here",
        "pipeline.yaml:8: key: 'skuu' is not a field of the event; did you mean 'sku'?",
        (
            "pipeline.yaml:14: master.columns: 'amount' is also a field of the event;"
            " rename it in the output, e.g. amount: items_amount"
        ),
        (
            "pipeline.yaml:15: join: 'iner' is none of inner, left, semi, anti;"
            " did you mean 'inner'?"
        ),
        "pipeline.yaml:16: memory: 2MiB is too little: a node needs at least 4MiB",
        (
            "pipeline.yaml:17: nodes: 9 nodes cannot share 8 slots;"
            " write at least slots: 9, or fewer nodes"
        ),
    ]


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("name: sales\n", "", "pipeline.yaml: name: is missing; e.g. name: sales"),
        ("key: sku\n", "", "pipeline.yaml: key: is missing; e.g. key: product_id"),
        (
            "  table: items\n",
            "",
            "pipeline.yaml:9: master.table: is missing; e.g. table: products",
        ),
        ("  table: items", "  table:", ("pipeline.yaml:10: master.table: nothing is given;"
         " e.g. table: products")),
        ("nodes: 2", "nodes:", "pipeline.yaml:17: nodes: nothing is given; e.g. nodes: 2"),
        ("nodes: 2", "node: 2", ("pipeline.yaml:17: node: there is no such setting;"
         " did you mean 'nodes'?")),
        ("  table: items", "  tabel: items", ("pipeline.yaml:10: master.tabel: there is no such"
         " setting; did you mean 'table'?")),
        ("  fields:", "  feilds:", ("pipeline.yaml:3: source.feilds: there is no such setting;"
         " did you mean 'fields'?")),
        ("nodes: 2", "topic: x", ("pipeline.yaml:17: topic: there is no such setting here;"
         " it belongs in source.topic or sink.topic")),
        ("nodes: 2", "zzz: x", ("pipeline.yaml:17: zzz: there is no such setting; known are name,"
         " source, key, master, join, algorithm, memory, then, engine, layout, nodes, slots, order,"
         " overload, sink")),
        ("nodes: 2", "nodes: 0", "pipeline.yaml:17: nodes: 0 is out of range; write at least 1"),
        ("slots: 8", "slots: 9999", ("pipeline.yaml:18: slots: 9999 is out of range;"
         " write at most 1024")),
        ("nodes: 2", "nodes: two", "pipeline.yaml:17: nodes: 'two' is not a whole number"),
        ("nodes: 2", "nodes: 2.5", "pipeline.yaml:17: nodes: 2.5 is not a whole number"),
        ("nodes: 2", "nodes: [a]", "pipeline.yaml:17: nodes: a whole number is needed, not a list"),
        ("nodes: 2", 'nodes: "2"', ("pipeline.yaml:17: nodes: '2' is not written as a whole number;"
         " write nodes: 2")),
        ("key: sku\n", "key: {sku: 1}\n", ("pipeline.yaml:8: key: a name or a list of names is"
         " needed here, not a mapping; e.g. key: product_id")),
        ("key: sku\n", "key: [sku, sku]\n", "pipeline.yaml:8: key: 'sku' is listed twice"),
        ("key: sku\n", "key: sku, store\n", ("pipeline.yaml:8: key: 'sku, store' is not a field of"
         " the event; a key of several fields is a list: key: [sku, store]")),
        ("key: sku\n", "key: amount\n", ("pipeline.yaml:8: key: 'amount' is a decimal,"
         " but a join key is an int or a text")),
        ("    sku: text", "    sku: text?", ("pipeline.yaml:8: key: 'sku' may be missing, and such"
         " an event has nothing to join by; write sku: text in source.fields, without '?'")),
        ("key: sku\n", "key: [sku, store]\n", ("pipeline.yaml:11: master.key: 1 column for 2 fields"
         " in key; name one column for each of sku, store, in that order")),
        ("join: inner", "join: anti", ("pipeline.yaml:12: master.columns: join: anti adds no"
         " columns; remove master.columns, or write join: inner")),
        ("    sku: text", "    sku: {type: text}", ("pipeline.yaml:5: source.fields.sku: one text"
         " is needed here, not a mapping; e.g. sku: int")),
        ("join: inner", "sink: out", ("pipeline.yaml:15: sink: a mapping is needed here, not the"
         " text 'out'; e.g. sink: {topic: sales.enriched}")),
        ("join: inner", "sink: {topic: sales.parked}", ("pipeline.yaml:15: sink.topic: Dovetail"
         " itself writes to 'sales.parked'; choose another topic")),
        ("join: inner", "sink: {topic: sales_parked}", ("pipeline.yaml:15: sink.topic: Dovetail"
         " itself writes to 'sales.parked' (to Kafka the same as 'sales_parked');"
         " choose another topic")),
        ("join: inner", "order: arrival", ("pipeline.yaml:15: order: 'arrival' is no order; write"
         " one of none, key, source, or {within: 1000}")),
        ("join: inner", "order: [key]", ("pipeline.yaml:15: order: this is no order; write one"
         " of none, key, source, or {within: 1000}")),
        ("join: inner", "order: {by: key}", ("pipeline.yaml:15: order: this is no order; write one"
         " of none, key, source, or {within: 1000}")),
        ("join: inner", "order:", "pipeline.yaml:15: order: nothing is given; e.g. order: source"),
        ("join: inner", "order: {within: 0}", ("pipeline.yaml:15: order: within 0 events is the"
         " source's order; write order: source")),
        ("join: inner", "order: {within: -1}", ("pipeline.yaml:15: order: within -1 events is out"
         " of range; write 1 to 1000000")),
        ("join: inner", "order: {within: 10s}", ("pipeline.yaml:15: order: within needs a whole"
         " number of events; e.g. {within: 1000}")),
        ("join: inner", "overload: shed", ("pipeline.yaml:15: overload: 'shed' is not known; write"
         " backpressure, or what to shed: {shed: auto, when_behind: 30s}")),
        ("join: inner", "overload: [auto]", ("pipeline.yaml:15: overload: a mapping is needed here,"
         " not a list; e.g. overload: {shed: auto, when_behind: 30s}")),
        ("join: inner", "overload: {shed: cluster}", ("pipeline.yaml:15: overload.shed: 'cluster'"
         " is none of auto, keep-w, sample-w, topw, cluster-sampling;"
         " did you mean 'cluster-sampling'?")),
        ("join: inner", "overload: {when_behind: 5min}", ("pipeline.yaml:15: overload.when_behind:"
         " '5min' has an unknown unit; write 5m")),
        ("join: inner", "overload: {when_behind: 200ms}", ("pipeline.yaml:15: overload.when_behind:"
         " 200ms is too short to tell an overload from a step of the join; write at least 1s")),
        ("join: inner", "overload: {when_behind: yes}", ("pipeline.yaml:15: overload.when_behind:"
         " a duration is needed here; e.g. 30s or 10m")),
        ("join: inner", "overload: {late: 5s}", ("pipeline.yaml:15: overload.late: there"
         " is no such setting; known are shed, when_behind, criterion")),
        ("join: inner", "shed: auto", ("pipeline.yaml:15: shed: there is no such setting here;"
         " it belongs in overload.shed")),
        ("join: inner", "overload: {shed: topw, criterion: random-sample}", ("pipeline.yaml:15:"
         " overload.criterion: shed: topw has made the choice that it is for; remove it, or write"
         " shed: auto")),
        ("memory: 64MiB", "memory: 64", ("pipeline.yaml:16: memory: 64 bytes is too little: a node"
         " needs at least 4MiB; did you mean 64MiB?")),
    ],
)  # fmt: skip
def test_one_problem_is_told_with_its_line_and_cure(
    told: Told, old: str, new: str, expected: str
) -> None:
    assert told(changed(old, new)) == [expected]


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("    store:", "    on:", '6: YAML reads on as a boolean; put it in quotes: "on"'),
        ("    store:", "    2024:", '6: YAML reads 2024 as a number; put it in quotes: "2024"'),
        ("    store:", "    null:", '6: YAML reads null as nothing; put it in quotes: "null"'),
        ("- vendor", "- no", '14: YAML reads no as a boolean; put it in quotes: "no"'),
        (
            "name: sales",
            "name: off",
            '1: name: YAML reads off as a boolean; put it in quotes: "off"',
        ),
        (
            "name: sales",
            "name: 2026-01-31",
            '1: name: YAML reads 2026-01-31 as a date; put it in quotes: "2026-01-31"',
        ),
        ("nodes: 2", "nodes: 02", "17: YAML reads 02 as 2; write the number in decimal"),
        ("nodes: 2", "nodes: 0x2", "17: YAML reads 0x2 as 2; write the number in decimal"),
        ("slots: 8", "slots: 1:30", "18: YAML reads 1:30 as 90; write the number in decimal"),
        (
            "nodes: 2",
            "nodes: 1e0",
            "17: nodes: '1e0' is not written as a whole number; write nodes: 1",
        ),
        (
            "nodes: 2",
            "nodes: yes",
            "17: nodes: a whole number is needed, and YAML reads yes, no, on and off as booleans",
        ),
        (
            "memory: 64MiB",
            "memory: 1e9",
            "16: memory: '1e9' is not a size; write a number and a unit, e.g. 128MiB",
        ),
        ("nodes: 2", "join: left", "17: 'join' is given twice, first on line 15; remove one"),
        ("    store: int", "    sku: int", "6: 'sku' is given twice, first on line 5; remove one"),
        ("nodes: 2", "nodes: !count 2", "17: the tag !count has no meaning here; remove it"),
    ],
)
def test_the_traps_of_yaml_are_pointed_out(told: Told, old: str, new: str, expected: str) -> None:
    assert f"pipeline.yaml:{expected}" in told(changed(old, new))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", "pipeline.yaml: the file is empty; docs/pipeline.md has an example to start from"),
        ("# only a remark\n", ("pipeline.yaml: the file is empty; docs/pipeline.md has an example"
         " to start from")),
        ("\n- sales\n", ("pipeline.yaml:2: a pipeline is a mapping of settings,"
         " one 'name: value' a line, e.g. name: sales")),
        ("name: a\nkey: b: c\n", ("pipeline.yaml:2: not YAML: mapping values are not allowed here"
         " at column 7; quote a value that has ': ' in it, or check the indent")),
        ("source:\n\tkey: 1\n", ("pipeline.yaml:2: not YAML: found character '\\t' that cannot"
         " start any token at column 1; indent with spaces, not with tabs")),
        ("key: [a,\nname: b\n", ("pipeline.yaml:3: not YAML: expected ',' or ']', but got"
         " '<stream end>' at column 1 (while parsing a flow sequence, begun on line 1);"
         " close the bracket or brace, and put commas between the items")),
        ('name: "a\n', ("pipeline.yaml:2: not YAML: found unexpected end of stream at column 1"
         " (while scanning a quoted scalar, begun on line 1); close the quotation mark")),
        ("name: a\nmemory:1\nkey: b\n", ("pipeline.yaml:3: not YAML: could not find expected ':' at"
         " column 1 (while scanning a simple key, begun on line 2); write 'name: value', with a"
         " space after the colon")),
        ("name: *a\n", ("pipeline.yaml:1: not YAML: found undefined alias 'a' at column 7; define"
         " the anchor (&name) above its use, or quote the value")),
        ("name: a\n---\nname: b\n", ("pipeline.yaml:2: not YAML: but found another document at"
         " column 1 (expected a single document in the stream, begun on line 1); keep one pipeline"
         " in a file, without '---' between")),
        (b"name: a\nkey: \xff\n", "pipeline.yaml:2: not UTF-8 text; save the file as UTF-8"),
        ("name: a\nkey: \x07\n", ("pipeline.yaml:2: not YAML: the character #x0007 is not allowed;"
         " remove it")),
        ("[" * 1500, "pipeline.yaml: not a pipeline: it is nested too deeply"),
    ],
)  # fmt: skip
def test_what_is_no_yaml_is_told_with_what_to_look_at(
    told: Told, text: str | bytes, expected: str
) -> None:
    assert told(text) == [expected]


def test_a_missing_file_and_a_folder_are_told(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"none\.yaml: there is no such file"):
        load_pipeline(tmp_path / "none.yaml", {})
    with pytest.raises(ConfigError, match="cannot be read: Is a directory"):
        load_pipeline(tmp_path, {})


def test_a_byte_order_mark_does_no_harm(load: Load) -> None:
    assert load(b"\xef\xbb\xbf" + GOOD.encode()) == load(GOOD)


def test_anchors_and_merges_can_be_used(load: Load) -> None:
    text = changed("key: sku\n", "key: &key sku\n").replace("key: code", "key: *key")
    merged = text.replace(
        "    sale_id: int\n", "    <<: {sale_id: text, note: text}\n    sale_id: int\n"
    )
    made = load(merged)
    assert made.master.key == ("sku",)
    assert made.source.fields["sale_id"].type is FieldType.INT
    assert made.source.fields["note"].type is FieldType.TEXT


def test_an_alias_of_what_it_is_part_of_is_told(told: Told) -> None:
    text = changed("columns:", "columns: &all")
    assert "pipeline.yaml:12: an alias refers to what it is part of; remove it" in told(
        text.replace("- vendor", "- *all")
    )


def test_a_thousand_million_aliases_are_read_in_no_time(told: Told) -> None:
    levels = ["a0: &a0 [x, x]"]
    levels += [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]" for i in range(1, 12)]
    assert "a11: there is no such setting" in "\n".join(told("\n".join(levels)))


def test_such_a_value_of_a_setting_is_not_spelled_out(told: Told) -> None:
    bomb = ["a0: &a0 [x, x]"]
    bomb += [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]" for i in range(1, 12)]
    text = "\n".join([*bomb, changed("nodes: 2", "nodes: *a11").replace("64MiB", "*a11")])
    assert "pipeline.yaml:29: nodes: a whole number is needed, not a list" in told(text)


def test_what_is_merged_last_counts_least(load: Load) -> None:
    """As YAML has it: the mapping's own, then the first of a list."""
    merged = "    <<: [{sku: int, note: text}, {note: int, more: int}]\n    sku: text\n"
    fields = load(changed("    sku: text\n", merged)).source.fields
    assert {name: str(fields[name]) for name in ("sku", "note", "more")} == {
        "sku": "text",
        "note": "text",
        "more": "int",
    }


def test_what_cannot_be_merged_is_told(told: Told) -> None:
    text = changed("    sku: text\n", "    <<: [x, {note: text}]\n    sku: text\n")
    assert told(text) == ["pipeline.yaml:5: '<<' takes an anchored mapping, or a list of them"]


def _doubling(first: str, next_one: str, levels: int) -> str:
    """A line for each level, which names the one before it several times."""
    lines = [f"a0: &a0 {first}"]
    lines += [f"a{n}: &a{n} {next_one.replace('$', f'*a{n - 1}')}" for n in range(1, levels)]
    return "\n".join(lines)


@pytest.mark.parametrize(
    "merges",
    [
        _doubling("{x: 1}", "{<<: [$, $, $, $, $, $, $, $, $, $]}", 6),
        "a: &a {}\nb: &b [" + "*a, " * 200 + "]\nc: [" + "{<<: *b}, " * 200 + "]",
        "a: &a [" + "x, " * 200 + "]\nc: [" + "{<<: *a}, " * 200 + "]",
        "a0: &a0 {x0: 1}\n"
        + "\n".join(f"a{n}: &a{n} {{<<: *a{n - 1}, x{n}: 1}}" for n in range(1, 200)),
    ],
)
def test_merges_bring_a_bounded_number_of_settings(told: Told, merges: str) -> None:
    (line,) = told(f"{GOOD}{merges}\n")
    assert line.endswith("'<<' brings more than 10,000 settings; write them out")


def test_a_list_in_a_key_is_not_walked_for_each_of_its_aliases(
    told: Told, monkeypatch: pytest.MonkeyPatch
) -> None:
    split, calls = paths.split, []
    monkeypatch.setattr(paths, "split", lambda path: calls.append(path) or split(path))
    lists = _doubling("[x, x]", "[$, $]", 15)
    text = changed("key: sku\n", f"{lists}\nkey: *a14\n").replace("  key: code\n", "")
    assert any("key: one text is needed here, not a list" in line for line in told(text))
    assert len(calls) < 100


def test_the_links_of_a_link_are_none(told: Told, monkeypatch: pytest.MonkeyPatch) -> None:
    whole, calls = schema_file._whole, []
    monkeypatch.setattr(schema_file, "_whole", lambda *given: calls.append(given) or whole(*given))
    links = _doubling("{master: {}, then: []}", "{master: {}, then: [$, $]}", 12)
    assert any(
        "then.0.then: there is no such setting" in x for x in told(f"{GOOD}{links}\nthen: [*a11]")
    )
    assert len(calls) < 10


def test_more_links_than_a_chain_has_are_not_looked_at(
    told: Told, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole, calls = schema_file._whole, []
    monkeypatch.setattr(schema_file, "_whole", lambda *given: calls.append(given) or whole(*given))
    assert told(f"{GOOD}then: [&link {{master: {{}}}}{', *link' * 3000}]\n") == [
        "pipeline.yaml:19: then: a chain has at most 8 tables, this one has 3002"
    ]
    assert len(calls) < 10


@pytest.mark.parametrize(
    "text",
    [
        GOOD + "".join(f"unknown{n}: 1\n" for n in range(1000)),
        GOOD + "twin: 1\n" * 1000,
        GOOD.replace("    store: int\n", "".join(f"    f{n}: wrong\n" for n in range(1000))),
        GOOD.replace("    store: int\n", "".join(f"    f{n}: int\n" for n in range(1000))).replace(
            "    - price\n", "".join(f"    - f{n}\n" for n in range(1000))
        ),
    ],
    ids=["unknown", "twins", "faulty", "broken rules"],
)
def test_of_very_many_problems_the_first_are_told(told: Told, text: str) -> None:
    first, *others = told(text)
    assert first == "pipeline.yaml: it has more than 100 problems; mend these first"
    assert len(others) == 100


class _Compared(str):
    """A name that counts how often it is compared."""

    __slots__ = ()
    times = 0

    def __eq__(self, other: object) -> bool:
        _Compared.times += 1
        return str.__eq__(self, other)

    __hash__ = str.__hash__


def test_a_column_is_not_compared_with_all_others() -> None:
    columns = [_Compared(f"c{n}") for n in range(300)]
    Master.model_validate({"table": "items", "key": "code", "columns": columns})
    assert _Compared.times < 3000


@pytest.mark.parametrize(
    "number",
    ["0x" + "f" * 5000, "1" + ":1" * 5000, "1" + ":1" * 5000 + ".5"],
    ids=["hexadecimal", "sexagesimal", "with a fraction"],
)
def test_a_number_of_thousands_of_digits_is_told(told: Told, number: str) -> None:
    assert told(changed("nodes: 2", f"nodes: {number}")) == [
        f"pipeline.yaml:17: nodes: '{number}' is not a whole number"
    ]


def test_sections_that_share_an_anchor_are_told_apart(told: Told) -> None:
    text = "name: sales\nsource: &all {topic: x}\nkey: sku\nmaster: *all\nsink: *all\n"
    assert [line.split(": ")[:2] for line in told(text)] == [
        ["pipeline.yaml:2", "source.fields"],
        ["pipeline.yaml:2", "master.topic"],
        ["pipeline.yaml:2", "sink.topic"],
        ["pipeline.yaml:4", "master.table"],
        ["pipeline.yaml:4", "master.columns"],
    ]


def test_columns_in_a_mapping_are_told_by_their_own_line(told: Told) -> None:
    text = changed("    - price\n    - vendor\n", "    price: cost\n    vendor: cost\n")
    assert told(text) == [
        (
            "pipeline.yaml:14: master.columns: 'price' and 'vendor' are both called 'cost' in the"
            " output; give one of them another name"
        )
    ]


def test_the_environment_overrides_the_file(load: Load) -> None:
    made = load(
        GOOD,
        DOVETAIL_MEMORY="1GiB",
        DOVETAIL_NODES="3",
        DOVETAIL_SLOTS="16",
        DOVETAIL_JOIN="left",
        DOVETAIL_ALGORITHM="srj",
    )
    assert (made.memory, made.nodes, made.slots) == (1024**3, 3, 16)
    assert made.join is JoinKind.LEFT


def test_an_empty_variable_overrides_nothing(load: Load) -> None:
    assert load(GOOD, **dict.fromkeys(OVERRIDES, "")) == load(GOOD)
    assert load(GOOD, **dict.fromkeys(OVERRIDES, " ")) == load(GOOD)


def test_a_blank_variable_is_not_blamed(told: Told) -> None:
    (line,) = told(changed("nodes: 2", "nodes: two"), DOVETAIL_NODES=" ")
    assert line.startswith("pipeline.yaml:17: nodes:")


def test_a_variable_hides_what_is_wrong_in_the_file(load: Load) -> None:
    assert load(changed("nodes: 2", "nodes: two"), DOVETAIL_NODES="4").nodes == 4


def test_what_is_wrong_with_a_variable_is_told_by_its_name(told: Told) -> None:
    assert told(
        GOOD, DOVETAIL_MEMORY="64M", DOVETAIL_NODES="two", DOVETAIL_ALGORITHM="meshjion"
    ) == [
        (
            "DOVETAIL_ALGORITHM: '***' is none of inlj, meshjoin, ameshjoin, hybridjoin,"
            " cmeshjoin, cachejoin, pcsrj, ssbj, ssbj-index, srj, auto; did you mean 'meshjoin'?"
        ),
        "DOVETAIL_MEMORY: '***' has an unknown unit; write 64MiB",
        "DOVETAIL_NODES: '***' is not a whole number",
    ]


def test_a_rule_broken_by_a_variable_is_told_by_its_name(told: Told) -> None:
    assert told(GOOD, DOVETAIL_SLOTS="1") == [
        (
            "DOVETAIL_SLOTS: nodes: 2 nodes cannot share 1 slot; write at least slots: 2,"
            " or fewer nodes"
        )
    ]
    semi = changed("  columns:\n    - price\n    - vendor\njoin: inner", "join: semi")
    (line,) = told(semi, DOVETAIL_JOIN="left")
    assert line.startswith("DOVETAIL_JOIN: master.columns: join: left needs at least one column")


@pytest.mark.parametrize("join", ["semi", "anti"])
def test_a_join_without_columns_sets_those_of_the_file_aside(load: Load, join: str) -> None:
    made = load(GOOD, DOVETAIL_JOIN=join)
    assert made.join == join
    assert made.master.columns == {}


def test_the_environment_of_the_process_counts_by_default(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "pipeline.yaml"
    path.write_text(GOOD)
    monkeypatch.setitem(os.environ, "DOVETAIL_NODES", "5")
    assert load_pipeline(path).nodes == 5


def test_a_problem_stays_on_one_line_whatever_the_value(told: Told) -> None:
    (line,) = told(changed("join: inner", 'join: "in\\nner"'))
    assert line.startswith("pipeline.yaml:15: join: 'in\\nner' is none of inner")


def test_a_negative_number_in_a_variable_is_out_of_range(told: Told) -> None:
    assert told(GOOD, DOVETAIL_NODES="-1") == [
        "DOVETAIL_NODES: *** is out of range; write at least 1"
    ]


ODD_LINES = """\
x: 1
- a
  k: {a: 1}
nodes: [1]
sink:
source: 5
master: [a]
key: {a: b}
    3: int
    "": int
name: ~
    a: [int]
    a: strin?
  columns: {a: 1, b: {}}
  columns: 7
sink: {topic: 4, x: y}
  key: [a, [b], {c: d}]
  columns: {"": "", a: no}
"""
PIECES = st.sampled_from((GOOD + ODD_LINES).splitlines(keepends=True))
FUZZ = settings(
    max_examples=300,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)


def problems_of(load: Load, lines: list[str]) -> list[str]:
    try:
        load("".join(lines))
    except ConfigError as error:
        return str(error).splitlines()
    return []


@example(lines=["master:\n", '  columns: {"": "", a: no}\n'])
@given(lines=st.lists(PIECES, max_size=25))
@FUZZ
def test_any_file_gives_a_pipeline_or_problems(load: Load, lines: list[str]) -> None:
    problems = problems_of(load, lines)
    assert all(line.startswith("pipeline.yaml") for line in problems)
    assert len(set(problems)) == len(problems)


@given(changes=st.dictionaries(st.integers(0, 17), PIECES, min_size=1, max_size=4))
@FUZZ
def test_a_good_file_with_lines_exchanged_gives_a_pipeline_or_problems(
    load: Load, changes: dict[int, str]
) -> None:
    lines = GOOD.splitlines(keepends=True)
    for position, line in changes.items():
        lines[position] = line
    assert all(line.startswith("pipeline.yaml") for line in problems_of(load, lines))
