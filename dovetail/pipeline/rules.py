"""How the settings of a pipeline have to fit one another."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, replace

from dovetail.pipeline.hints import count, did_you_mean
from dovetail.pipeline.problem import Problem
from dovetail.pipeline.shape import Draft, Engine, FieldType, Format, Framing, Layout, Shed
from dovetail.stream.events import paths
from dovetail.topology import CONTROL_TOPIC, STATS_TOPIC

Path = tuple[str, ...]
_Check = Callable[[Draft], Iterator[Problem]]


@dataclass(frozen=True, slots=True)
class Rule:
    reads: tuple[Path, ...]
    check: _Check
    of_links: bool
    """Whether every further table of a chain has to keep it too."""

    def touches(self, faulty: Collection[Path]) -> bool:
        return any(path == read[: len(path)] for path in faulty for read in self.reads)


RULES: list[Rule] = []


def _rule(*reads: str, of_links: bool = False) -> Callable[[_Check], _Check]:
    def register(check: _Check) -> _Check:
        RULES.append(Rule(tuple(tuple(path.split(".")) for path in reads), check, of_links))
        return check

    return register


def broken_rules(
    draft: Draft, faulty: Collection[Path] = frozenset()
) -> Iterator[tuple[Rule, Problem]]:
    """Check what can be judged without the settings known to be faulty."""
    for rule in RULES:
        if not rule.touches(faulty):
            yield from ((rule, found) for found in rule.check(draft) if found.place not in faulty)
    if any(path[0] in ("then", "source", "master") for path in faulty):
        return  # what a link is joined with is not known
    for number in range(2, draft.links + 1):
        link = draft.link(number)
        for rule in RULES:
            if rule.of_links:
                place = ("then", str(number - 2))
                yield from (
                    (rule, replace(found, path=(*place, *found.path))) for found in rule.check(link)
                )


@_rule("key", "source.fields")
def _key_fields_can_be_joined(draft: Draft) -> Iterator[Problem]:
    fields = draft.source.fields
    for name in draft.key:
        field = fields.get(name)
        if field is None:
            yield Problem(
                ("key",), f"'{name}' is not a field of the event{_cure(name, fields)}", name
            )
        elif field.type not in (FieldType.INT, FieldType.TEXT):
            yield Problem(
                ("key",), f"'{name}' is a {field.type}, but a join key is an int or a text", name
            )
        elif field.optional:
            yield Problem(
                ("key",),
                f"'{name}' may be missing, and such an event has nothing to join by;"
                f" write {name}: {field.type} in source.fields, without '?'",
                name,
            )


def _cure(name: str, fields: Collection[str]) -> str:
    if "," in name:
        return f"; a key of several fields is a list: key: [{name}]"
    ends = [path for path in fields if paths.split(path)[-1] == name]
    if len(ends) == 1:
        return f"; did you mean '{ends[0]}'?"
    return did_you_mean(name, fields) or "; source.fields must have it"


@_rule("source.event_time", "source.fields")
def _the_event_time_is_a_timestamp(draft: Draft) -> Iterator[Problem]:
    name, fields = draft.source.event_time, draft.source.fields
    if name is None:
        return
    timestamps = [path for path, field in fields.items() if field.type is FieldType.TIMESTAMP]
    if name not in fields:
        cure = did_you_mean(name, timestamps) or "; source.fields must have it, as a timestamp"
        yield Problem(("source", "event_time"), f"'{name}' is not a field of the event{cure}")
    elif name not in timestamps:
        yield Problem(
            ("source", "event_time"),
            f"'{name}' is of type {fields[name].type}, but an event's time is a timestamp",
        )


@_rule("source.fields")
def _objects_are_no_fields(draft: Draft) -> Iterator[Problem]:
    fields = {paths.split(path): path for path in draft.source.fields}
    for names, path in fields.items():
        outer = next(
            (fields[names[:end]] for end in range(1, len(names)) if names[:end] in fields), None
        )
        if outer is not None:
            yield Problem(
                ("source", "fields"),
                f"'{path}' makes '{outer}' an object, but '{outer}' is a field by itself;"
                " remove one of them",
                path,
            )


@_rule("source.format", "source.schema_file", "source.message")
def _a_format_has_its_schema(draft: Draft) -> Iterator[Problem]:
    source = draft.source
    if source.format is Format.JSON:
        for setting in ("schema_file", "message"):
            if getattr(source, setting) is not None:
                yield Problem(
                    ("source", setting), "format: json has none; remove it, or set source.format"
                )
        return
    if source.schema_file is None:
        example = "sale.avsc" if source.format is Format.AVRO else "sale.desc"
        yield Problem(
            ("source", "schema_file"),
            f"format: {source.format} needs one; e.g. schema_file: {example}",
        )
    if source.format is Format.PROTOBUF and source.message is None:
        yield Problem(("source", "message"), "format: protobuf needs one; e.g. message: shop.Sale")
    if source.format is Format.AVRO and source.message is not None:
        yield Problem(("source", "message"), "an Avro schema is one record itself; remove it")


@_rule("source.format", "source.framing", "source.registry")
def _a_registry_is_there_where_it_is_asked(draft: Draft) -> Iterator[Problem]:
    source = draft.source
    framed = source.framing is Framing.REGISTRY
    if framed and source.format is Format.JSON:
        yield Problem(("source", "framing"), "format: json has no header; write framing: plain")
    elif framed and source.format is Format.AVRO and source.registry is None:
        yield Problem(
            ("source", "registry"),
            "framing: registry needs one to look up schemas by their ids; e.g."
            " registry: http://localhost:8081, or a folder with <id>.avsc files",
        )
    elif source.registry is not None and not (framed and source.format is Format.AVRO):
        why = (
            "Protobuf needs no schema but schema_file"
            if source.format is Format.PROTOBUF
            else "only Avro events with framing: registry name schemas"
        )
        yield Problem(("source", "registry"), f"{why}; remove it")


@_rule("key", "master.key", of_links=True)
def _keys_have_as_many_parts(draft: Draft) -> Iterator[Problem]:
    ours, theirs = len(draft.key), len(draft.master.key)
    if ours != theirs:
        yield Problem(
            ("master", "key"),
            f"{count(theirs, 'column')} for {count(ours, 'field')} in key;"
            f" name one column for each of {', '.join(draft.key)}, in that order",
        )


@_rule("master.columns", "source.fields", "master.table", of_links=True)
def _columns_leave_the_event_alone(draft: Draft) -> Iterator[Problem]:
    taken = {paths.split(path)[0] for path in draft.source.fields}
    for column, name in draft.master.columns.items():
        if name in taken:
            yield Problem(
                ("master", "columns"),
                f"'{name}' is also a field of the event; rename it in the output,"
                f" e.g. {column}: {draft.master.relation[1]}_{name}",
                column,
            )


@_rule("master.columns", of_links=True)
def _columns_have_names_of_their_own(draft: Draft) -> Iterator[Problem]:
    first: dict[str, str] = {}
    for column, name in draft.master.columns.items():
        other = first.setdefault(name, column)
        if other != column:
            yield Problem(
                ("master", "columns"),
                f"'{other}' and '{column}' are both called '{name}' in the output;"
                " give one of them another name",
                column,
            )


@_rule("join", "master.columns", of_links=True)
def _columns_go_with_the_join(draft: Draft) -> Iterator[Problem]:
    columns, join = draft.master.columns, draft.join
    if columns and not join.takes_columns:
        yield Problem(
            ("master", "columns"),
            f"join: {join} adds no columns; remove master.columns, or write join: inner",
        )
    if not columns and join.takes_columns:
        yield Problem(
            ("master", "columns"),
            f"join: {join} needs at least one column to add, e.g. columns: [name, category];"
            " to only keep events that have a master row, write join: semi",
        )


@_rule("nodes", "slots")
def _every_node_has_a_slot(draft: Draft) -> Iterator[Problem]:
    if draft.nodes > draft.slots:
        yield Problem(
            ("nodes",),
            f"{count(draft.nodes, 'node')} cannot share {count(draft.slots, 'slot')};"
            f" write at least slots: {draft.nodes}, or fewer nodes",
        )


@_rule("layout", "engine")
def _only_services_have_a_layout(draft: Draft) -> Iterator[Problem]:
    if draft.layout is Layout.FUSED and draft.engine is not Engine.SERVICES:
        yield Problem(("layout",), "Spark has a layout of its own; leave layout out")


@_rule("overload.shed", "overload.criterion")
def _a_criterion_leaves_the_choice(draft: Draft) -> Iterator[Problem]:
    overload = draft.overload
    if overload and overload.criterion and overload.shed is not Shed.AUTO:
        yield Problem(
            ("overload", "criterion"),
            f"shed: {overload.shed} has made the choice that it is for; remove it,"
            " or write shed: auto",
        )


@_rule("then", "key", "source.fields", "master.columns")
def _links_can_be_joined(draft: Draft) -> Iterator[Problem]:
    for number, link in enumerate(draft.then, 2):
        place = ("then", str(number - 2))
        fields = draft.link(number).source.fields
        added = {name for name in fields if name not in draft.source.fields}
        for name in link.key:
            field = fields.get(name)
            if field is None:
                cure = did_you_mean(name, fields) or "; one of them must have it"
                yield Problem(
                    (*place, "key"),
                    f"'{name}' is neither a field of the event nor a column of a table before it"
                    f"{cure}",
                    name,
                )
            elif field.type not in (FieldType.INT, FieldType.TEXT):
                cure = (
                    f"; say what it is, fields: {{{name}: int}} or {{{name}: text}}"
                    if name in added and field.type is FieldType.JSON
                    else f" and this one is {field.type}"
                )
                yield Problem((*place, "key"), f"a join key is an int or a text{cure}", name)
        for name in link.fields:
            if paths.join((name,)) not in added:
                yield Problem(
                    (*place, "fields"),
                    f"no table before adds a column '{name}'{did_you_mean(name, added)}; here"
                    " stand the types of such columns alone",
                    name,
                )


@_rule("then", "order", "overload")
def _a_chain_goes_without_order_and_shedding(draft: Draft) -> Iterator[Problem]:
    if draft.then and draft.order.kept:
        yield Problem(
            ("order",),
            f"a chain keeps none: its tables are joined in parallel; remove order: {draft.order},"
            " or the tables under then",
        )
    if draft.then and draft.overload is not None:
        yield Problem(
            ("overload",),
            "a chain sheds nothing: what waits for its further tables is not watched; write"
            " overload: backpressure, or remove the tables under then",
        )


@_rule("name", "then", "source.topic", "sink.topic")
def _topics_do_not_meet(draft: Draft) -> Iterator[Problem]:
    taken = {_metric(topic): topic for topic in (*draft.derived_topics, CONTROL_TOPIC, STATS_TOPIC)}
    for section, topic in (("source", draft.source.topic), ("sink", draft.sink.topic)):
        if other := taken.get(_metric(topic)):
            same = "" if topic == other else f" (to Kafka the same as '{topic}')"
            yield Problem(
                (section, "topic"),
                f"Dovetail itself writes to '{other}'{same}; choose another topic",
            )
    if _metric(draft.source.topic) == _metric(draft.sink.topic):
        yield Problem(
            ("sink", "topic"),
            f"'{draft.sink.topic}' is the source too: the output would be read again;"
            " choose another topic",
        )


def _metric(topic: str) -> str:
    """Kafka refuses a topic that differs from another one only in '.' and '_'."""
    return topic.replace(".", "_")
