"""Every setting of a pipeline by itself: its type, its limits, its default, an example.

How settings have to fit one another is in rules.py; a `Draft` that keeps those rules too is a
`Pipeline` (spec.py). Every example is valid by itself: the loader shows it where a setting is
missing, and puts it in the place of a faulty one to go on looking for further problems.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from enum import StrEnum, auto
from typing import Annotated, Any, Self, TypeVar

import pydantic
from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict
from pydantic_core import PydanticKnownError

from dovetail.join.kinds import JoinKind
from dovetail.join.shedding.choice import Criterion
from dovetail.pipeline.duration import format_duration, parse_duration
from dovetail.pipeline.hints import did_you_mean
from dovetail.pipeline.size import KIB, MIB, format_size, parse_size
from dovetail.stream.events import paths

LEAST_MEMORY = 4 * MIB
LEAST_BEHIND_S = 1.0
LEAST_REFRESH_S = 1.0
FARTHEST = 1_000_000
"""Events that an output may be from its place: more is hardly an order."""
NEVER = "never"
BACKPRESSURE = "backpressure"
MOST_KEY_PARTS = 8
MOST_LINKS = 8
"""Tables that one event is enriched from."""
DERIVED_TOPICS = (
    "clean",
    "mapped",
    "missed",
    "migrations",
    "progress",
    "unmatched",
    "dead-letter",
    "shed",
    "parked",
    "requests",
    "still-unmatched",
    "backfill",
    "states",
    "foreign",
    "node-progress",
    "source-progress",
)
LINK_TOPICS = ("mapped", "missed", "migrations", "progress", "node-progress")
"""Those that every table of a chain has for itself."""


class Algorithm(StrEnum):
    INLJ = auto()
    MESHJOIN = auto()
    AMESHJOIN = auto()
    HYBRIDJOIN = auto()
    CMESHJOIN = auto()
    CACHEJOIN = auto()
    PCSRJ = auto()
    SSBJ = auto()
    SSBJ_INDEX = "ssbj-index"
    SRJ = auto()
    AUTO = auto()


class Engine(StrEnum):
    """What runs the pipeline."""

    SERVICES = auto()
    """A process for each stage, and for each node."""
    SPARK = auto()
    """One Structured Streaming application."""


class Layout(StrEnum):
    """Which processes the services are."""

    SPLIT = auto()
    """One for each stage, with topics between them."""
    FUSED = auto()
    """One for each node, which does all of it."""


class Format(StrEnum):
    JSON = auto()
    AVRO = auto()
    PROTOBUF = auto()


class Framing(StrEnum):
    """What stands before an event's bytes."""

    PLAIN = auto()
    """Nothing."""
    REGISTRY = auto()
    """The header of a schema registry's serialisers."""


class Shed(StrEnum):
    """Which events go on in an overload, and which are shed."""

    AUTO = auto()
    """By what an event joins with, and what the output should be."""
    KEEP_W = "keep-w"
    SAMPLE_W = "sample-w"
    TOPW = auto()
    CLUSTER_SAMPLING = "cluster-sampling"


class FieldType(StrEnum):
    INT = auto()
    FLOAT = auto()
    DECIMAL = auto()
    TEXT = auto()
    BOOLEAN = auto()
    DATE = auto()
    TIMESTAMP = auto()
    JSON = auto()


class KeyType(StrEnum):
    INT = auto()
    TEXT = auto()
    COMPOSITE = auto()


_Choice = TypeVar("_Choice", bound=StrEnum)


def _choose(kind: type[_Choice], value: object) -> _Choice:
    if not isinstance(value, str):
        raise PydanticKnownError("string_type")
    known = [str(choice) for choice in kind]
    if value not in known:
        allowed = ", ".join(known)
        raise ValueError(f"'{value}' is none of {allowed}{did_you_mean(value, known)}")
    return kind(value)


def _name(text: str) -> str:
    """Names go into the output as they stand, so none may need an escape in JSON."""
    if not text or text != text.strip() or not text.isprintable() or set(text) & set('"\\'):
        raise ValueError(
            f"{text!r} cannot be a name: it needs at least one character, no space at its ends,"
            " no quotation mark, backslash or control character"
        )
    return text


def _path(text: str) -> str:
    """A name, or the names on the way into objects; each goes into the output as it stands."""
    names = paths.split(_name(text))
    if not all(names) or any(name != name.strip() for name in names):
        raise ValueError(
            f"'{text}' is not a path: a dot stands between two names, as in order.id; a dot that"
            " belongs to a name is doubled, as in net..price"
        )
    if len(names) > paths.MOST_NAMES:
        raise ValueError(f"'{text}' stands too deep: a path has at most {paths.MOST_NAMES} names")
    return text


def _identifier(text: str) -> str:
    """Longer ones would be cut by PostgreSQL, which encodes the rows."""
    if len(text.encode()) > 63:
        raise ValueError(f"'{text}' is longer than the 63 bytes that PostgreSQL allows")
    return text


def _pipeline_name(text: str) -> str:
    if not re.fullmatch(r"[a-z][a-z0-9-]{0,99}", text):
        raise ValueError(
            f"'{text}' cannot name a pipeline, for its topics begin with it: use up to 100"
            " lower-case letters, digits and hyphens, a letter first"
        )
    return text


def _topic(text: str) -> str:
    if not re.fullmatch(r"[A-Za-z0-9._-]{1,249}", text) or text in (".", ".."):
        raise ValueError(
            f"'{text}' cannot name a topic in Kafka: use up to 249 letters, digits, '.', '_', '-'"
        )
    if text.startswith("__"):
        raise ValueError(f"'{text}' is one of Kafka's own topics: they begin with '__'")
    return text


def _registry(text: str | None) -> str | None:
    scheme, separator, rest = (text or "").partition("://")
    if "@" in rest:
        raise ValueError("a password has no place in a pipeline file; leave out user and password")
    if separator and (scheme not in ("http", "https") or not rest.strip("/")):
        raise ValueError(f"'{text}' is no registry's URL; write http://host:8081 or https://…")
    return text


def _table(text: str) -> str:
    if not all(text.split(".")) or text.count(".") > 1:
        raise ValueError(f"'{text}' is not a table; write products or shop.products")
    return text


def _names(value: object) -> object:
    """Take one name for a list of one."""
    if isinstance(value, str):
        return (value,)
    return tuple(value) if isinstance(value, list | tuple) else value


def _some_names_once(names: tuple[str, ...]) -> tuple[str, ...]:
    if not names:
        raise ValueError("at least one is needed")
    if len(names) > MOST_KEY_PARTS:
        raise ValueError(f"a key has at most {MOST_KEY_PARTS} parts, this one has {len(names)}")
    _refuse_twins(names)
    return names


def _columns(value: object) -> object:
    """Take a list of columns for a mapping of each to its own name."""
    if not isinstance(value, list | tuple) or not all(isinstance(item, str) for item in value):
        return value
    _refuse_twins(value)
    return {column: column for column in value}


def _refuse_twins(names: list[str] | tuple[str, ...]) -> None:
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise ValueError(f"'{name}' is listed twice")
        seen.add(name)


def _links(value: object) -> object:
    """Count them before any is looked at: by an alias, one can stand there any number of times."""
    if not isinstance(value, list | tuple):
        return value
    if len(value) >= MOST_LINKS:
        raise ValueError(f"a chain has at most {MOST_LINKS} tables, this one has {len(value) + 1}")
    return tuple(value)


def _memory(value: object) -> object:
    return parse_size(value) if isinstance(value, str) else value


def _enough_memory(size: int) -> int:
    if size >= LEAST_MEMORY:
        return size
    meant = f"; did you mean {size}MiB?" if LEAST_MEMORY <= size * MIB < MIB * MIB else ""
    least = format_size(LEAST_MEMORY)
    raise ValueError(f"{format_size(size)} is too little: a node needs at least {least}{meant}")


def _duration(value: object) -> object:
    if isinstance(value, str):
        return parse_duration(value)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError("a duration is needed here; e.g. 30s or 10m")  # noqa: TRY004 - told as it is
    return float(value)


def _long_enough(seconds: float) -> float:
    if seconds < LEAST_BEHIND_S:
        raise ValueError(
            f"{format_duration(seconds)} is too short to tell an overload from a step of the"
            f" join; write at least {format_duration(LEAST_BEHIND_S)}"
        )
    return seconds


def _refresh(value: object) -> object:
    return math.inf if value == NEVER else _duration(value)


def _seldom_enough(seconds: float) -> float:
    if seconds < LEAST_REFRESH_S:
        raise ValueError(
            f"{format_duration(seconds)} is too short for a cache to be of use; write at least"
            f" {format_duration(LEAST_REFRESH_S)}, or {NEVER}"
        )
    return seconds


def _overload(value: object) -> object:
    """Take the word for its section's absence."""
    if value == BACKPRESSURE:
        return None
    if isinstance(value, str):
        raise ValueError(  # noqa: TRY004 - another text would do
            f"'{value}' is not known; write {BACKPRESSURE}, or what to shed:"
            " {shed: auto, when_behind: 30s}"
        )
    return value


def _order(value: object) -> object:
    """Take a word, or a mapping of within to a number."""
    if isinstance(value, Order):
        return value
    if isinstance(value, str) and value in _ORDERS:
        return _ORDERS[value]
    if isinstance(value, dict) and value.keys() == {"within"}:
        return Order(within=_places(value["within"]))
    if value is None:
        raise PydanticKnownError("string_type")
    words = ", ".join(_ORDERS)
    shown = f"'{value}'" if isinstance(value, str) else "this"
    raise ValueError(f"{shown} is no order; write one of {words}, or {{within: 1000}}")


def _places(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise ValueError("within needs a whole number of events; e.g. {within: 1000}")  # noqa: TRY004 - told as it is
    if value == 0:
        raise ValueError("within 0 events is the source's order; write order: source")
    if not 0 < value <= FARTHEST:
        raise ValueError(f"within {value} events is out of range; write 1 to {FARTHEST}")
    return value


def _some_fields(fields: dict[str, Field]) -> dict[str, Field]:
    if not fields:
        raise ValueError("an event has at least the field of its key; e.g. product_id: int")
    return fields


Name = Annotated[str, AfterValidator(_name)]
Path = Annotated[str, AfterValidator(_path)]
Identifier = Annotated[Name, AfterValidator(_identifier)]
Topic = Annotated[str, AfterValidator(_topic)]
Key = Annotated[tuple[Name, ...], BeforeValidator(_names), AfterValidator(_some_names_once)]
PathKey = Annotated[tuple[Path, ...], BeforeValidator(_names), AfterValidator(_some_names_once)]
Memory = Annotated[int, BeforeValidator(_memory), AfterValidator(_enough_memory)]


def _whole(low: int, high: int) -> Any:
    return pydantic.Field(ge=low, le=high)


class _Section(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class Field(_Section):
    """The type of an event's field; an optional one may be missing or null."""

    type: FieldType
    optional: bool = False

    def __str__(self) -> str:
        return f"{self.type}?" if self.optional else str(self.type)


_OTHER_NAMES = {
    **dict.fromkeys(("integer", "bigint", "long", "int64"), FieldType.INT),
    **dict.fromkeys(("double", "real", "float64", "number"), FieldType.FLOAT),
    **dict.fromkeys(("numeric", "money"), FieldType.DECIMAL),
    **dict.fromkeys(("string", "str", "varchar"), FieldType.TEXT),
    **dict.fromkeys(("bool",), FieldType.BOOLEAN),
    **dict.fromkeys(("datetime", "timestamptz", "time"), FieldType.TIMESTAMP),
}


def _field(value: object) -> object:
    if isinstance(value, Field):
        return value
    if isinstance(value, dict) and value.keys() == {"type", "optional"}:
        return Field(type=_choose(FieldType, value["type"]), optional=value["optional"])
    if not isinstance(value, str):
        raise PydanticKnownError("string_type")
    name = value.removesuffix("?")
    if name.casefold() in _OTHER_NAMES:
        raise ValueError(f"'{name}' is called {_OTHER_NAMES[name.casefold()]} here")
    return Field(type=_choose(FieldType, name), optional=name != value)


class Source(_Section):
    topic: Annotated[Topic, pydantic.Field(examples=["sales"])]
    partitions: Annotated[int, _whole(1, 10_000), pydantic.Field(examples=[4])] = 4
    format: Annotated[
        Format, BeforeValidator(lambda v: _choose(Format, v)), pydantic.Field(examples=["json"])
    ] = Format.JSON
    framing: Annotated[
        Framing, BeforeValidator(lambda v: _choose(Framing, v)), pydantic.Field(examples=["plain"])
    ] = Framing.PLAIN
    schema_file: Annotated[str | None, pydantic.Field(examples=["sale.avsc"])] = None
    """The reader's Avro schema, or a descriptor set; from the pipeline file's folder on."""
    message: Annotated[str | None, pydantic.Field(examples=["shop.Sale"])] = None
    """The full name of the event's message in Protobuf."""
    registry: Annotated[
        str | None,
        AfterValidator(_registry),
        pydantic.Field(examples=["http://localhost:8081"]),
    ] = None
    """The URL of a schema registry, or a folder with `<id>.avsc` files."""
    max_event_bytes: Annotated[int, _whole(64, MIB), pydantic.Field(examples=[65536])] = 64 * KIB
    fields: Annotated[
        dict[Path, Annotated[Field, BeforeValidator(_field)]],
        AfterValidator(_some_fields),
        pydantic.Field(examples=[{"product_id": "int", "amount": "decimal"}]),
    ]
    event_time: Annotated[Path | None, pydantic.Field(examples=["sold_at"])] = None
    """The field that says when an event happened; without it, the record's timestamp does."""


class Master(_Section):
    table: Annotated[str, AfterValidator(_table), pydantic.Field(examples=["products"])]
    key: Annotated[Key, pydantic.Field(examples=["product_id"])]
    """A column for each part of the pipeline's key, in its order."""
    columns: Annotated[
        dict[Identifier, Identifier],
        BeforeValidator(_columns),
        pydantic.Field(examples=[["name", "category"]], default_factory=dict),
    ]
    """Each column and its name in the output."""
    refresh: Annotated[
        float,
        BeforeValidator(_refresh),
        AfterValidator(_seldom_enough),
        pydantic.Field(examples=["10m"]),
    ] = 600.0
    """Seconds after which a cached row is read anew; infinite if never."""
    snapshot: Annotated[str | None, pydantic.Field(examples=["snapshots"])] = None
    """The folder of all snapshots, read instead of the table; from the pipeline file's on."""

    @property
    def relation(self) -> tuple[str | None, str]:
        """The schema, if one is given, and the table; both as they stand in the catalogue."""
        schema, _, table = self.table.rpartition(".")
        return schema or None, table


class Sink(_Section):
    topic: Annotated[Topic, pydantic.Field(examples=["sales.enriched"])]


class Order(_Section):
    """What the output keeps of the order in which a slot's events came."""

    by_key: bool = False
    """Whether the outputs of one join key are in order among themselves."""
    within: int | None = None
    """How many events an output may be from where its event stood; 0 is the very order."""

    @property
    def kept(self) -> bool:
        return self.by_key or self.within is not None

    @pydantic.model_serializer
    def as_written(self) -> str | dict[str, int]:
        return {"within": self.within} if self.within else str(self)

    def __str__(self) -> str:
        return next(
            (word for word, order in _ORDERS.items() if order == self), f"within {self.within}"
        )


_ORDERS = {"none": Order(), "key": Order(by_key=True), "source": Order(within=0)}


class Overload(_Section):
    """What the pipeline sheds when events would wait too long."""

    shed: Annotated[
        Shed, BeforeValidator(lambda v: _choose(Shed, v)), pydantic.Field(examples=["auto"])
    ] = Shed.AUTO
    when_behind: Annotated[
        float,
        BeforeValidator(_duration),
        AfterValidator(_long_enough),
        pydantic.Field(examples=["30s"]),
    ] = 30.0
    """Seconds that an event may have to wait behind the mapper before anything is shed."""
    criterion: Annotated[
        Criterion | None,
        BeforeValidator(lambda v: None if v is None else _choose(Criterion, v)),
        pydantic.Field(examples=["max-subset"]),
    ] = None
    """What the output should be meanwhile; for `auto` alone, and max-subset unless given."""


JoinSetting = Annotated[
    JoinKind, BeforeValidator(lambda v: _choose(JoinKind, v)), pydantic.Field(examples=["inner"])
]
AlgorithmSetting = Annotated[
    Algorithm, BeforeValidator(lambda v: _choose(Algorithm, v)), pydantic.Field(examples=["auto"])
]


class Link(_Section):
    """A further table of a chain: joined with what the tables before it gave."""

    key: Annotated[PathKey, pydantic.Field(examples=["customer_id"])]
    """Fields of the event, or columns that a table before has added."""
    fields: Annotated[
        dict[Name, Annotated[Field, BeforeValidator(_field)]],
        pydantic.Field(examples=[{"vendor_id": "int"}], default_factory=dict),
    ]
    """The types of those columns, for no event declares them."""
    master: Annotated[
        Master, pydantic.Field(examples=[{"table": "customers", "columns": ["segment"]}])
    ]
    join: JoinSetting = JoinKind.INNER
    algorithm: AlgorithmSetting = Algorithm.AUTO
    memory: Annotated[Memory, pydantic.Field(examples=["64MiB"])] = 128 * MIB

    @pydantic.model_validator(mode="before")
    @classmethod
    def _derive_key(cls, data: Any) -> Any:
        return _with_master_key(data) if isinstance(data, dict) else data


class Draft(_Section):
    """A pipeline whose settings are right one by one."""

    name: Annotated[str, AfterValidator(_pipeline_name), pydantic.Field(examples=["sales"])]
    source: Annotated[
        Source, pydantic.Field(examples=[{"fields": {"product_id": "int", "amount": "decimal"}}])
    ]
    key: Annotated[PathKey, pydantic.Field(examples=["product_id"])]
    master: Annotated[
        Master, pydantic.Field(examples=[{"table": "products", "columns": ["name", "category"]}])
    ]
    join: JoinSetting = JoinKind.INNER
    algorithm: AlgorithmSetting = Algorithm.AUTO
    memory: Annotated[Memory, pydantic.Field(examples=["128MiB"])] = 128 * MIB
    """Bytes on each node, for everything that the join holds."""
    then: Annotated[
        tuple[Link, ...],
        BeforeValidator(_links),
        pydantic.Field(examples=[[]]),
    ] = ()
    """Further tables, in turn; with the one above they are the links of a chain."""
    engine: Annotated[
        Engine, BeforeValidator(lambda v: _choose(Engine, v)), pydantic.Field(examples=["services"])
    ] = Engine.SERVICES
    layout: Annotated[
        Layout, BeforeValidator(lambda v: _choose(Layout, v)), pydantic.Field(examples=["split"])
    ] = Layout.SPLIT
    """Of the services; Spark has its own."""
    nodes: Annotated[int, _whole(1, 1024), pydantic.Field(examples=[2])] = 1
    slots: Annotated[int, _whole(1, 1024), pydantic.Field(examples=[8])] = 8
    order: Annotated[Order, BeforeValidator(_order), pydantic.Field(examples=["source"])] = Order()
    overload: Annotated[
        Overload | None,
        BeforeValidator(_overload),
        pydantic.Field(examples=[{"shed": "auto", "when_behind": "30s"}]),
    ] = None
    """Without it events wait in Kafka, however long: backpressure."""
    sink: Annotated[Sink, pydantic.Field(examples=[{"topic": "sales.enriched"}])]

    @pydantic.model_validator(mode="before")
    @classmethod
    def _derive_defaults(cls, data: Any) -> Any:
        return with_derived_defaults(data) if isinstance(data, dict) else data

    @property
    def key_type(self) -> KeyType:
        if len(self.key) > 1:
            return KeyType.COMPOSITE
        return KeyType(self.source.fields[self.key[0]].type.value)

    @property
    def derived_topics(self) -> tuple[str, ...]:
        """The topics between the stages and beside the sink, which no setting may name."""
        of_links = (
            f"{self.name}.{number}.{suffix}"
            for number in range(2, self.links + 1)
            for suffix in LINK_TOPICS
        )
        return (*(f"{self.name}.{suffix}" for suffix in DERIVED_TOPICS), *of_links)

    @property
    def links(self) -> int:
        """Tables that an event is enriched from, one after another."""
        return 1 + len(self.then)

    def link(self, number: int) -> Self:
        """The pipeline of one of its tables alone, from 1 on.

        Its events are what the tables before have made of them: a column they have added is a
        field too, of the type that the link says, or of any.
        """
        if number == 1:
            return self
        one = self.then[number - 2]
        before = (self.master, *(link.master for link in self.then[: number - 2]))
        added = {
            paths.join((name,)): one.fields.get(name, _ANY)
            for master in before
            for name in master.columns.values()
        }
        fields = {**self.source.fields, **added}
        return self.model_copy(
            update={
                "source": self.source.model_copy(update={"fields": fields}),
                "key": one.key,
                "master": one.master,
                "join": one.join,
                "algorithm": one.algorithm,
                "memory": one.memory,
            }
        )


def _column_of(key: Any) -> Any:
    """Name the column that a part of the key is joined with: as the field itself is called."""
    if isinstance(key, list | tuple):
        return [paths.split(part)[-1] if isinstance(part, str) else part for part in key]
    return paths.split(key)[-1] if isinstance(key, str) else key


_Derive = Callable[[dict[str, Any]], Any]
DERIVED_DEFAULTS: dict[tuple[str, str], _Derive] = {
    ("source", "topic"): lambda data: data["name"],
    ("sink", "topic"): lambda data: f"{data['name']}.enriched",
    ("master", "key"): lambda data: _column_of(data["key"]),
}
"""Settings whose default follows from another setting: wrong only when that one is."""


_ANY = Field(type=FieldType.JSON, optional=True)


def _with_master_key(link: dict[str, Any]) -> dict[str, Any]:
    master = link.get("master")
    if not isinstance(master, dict) or "key" in master or "key" not in link:
        return link
    return {**link, "master": {**master, "key": _column_of(link["key"])}}


def with_derived_defaults(data: dict[str, Any]) -> dict[str, Any]:
    filled = {"sink": {}, **data}
    for (section, setting), derive in DERIVED_DEFAULTS.items():
        given = filled.get(section)
        if isinstance(given, dict) and setting not in given:
            try:
                filled[section] = {**given, setting: derive(data)}
            except KeyError:
                continue  # the setting it follows from is reported as missing
    return filled
