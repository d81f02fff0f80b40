"""What is sent to the API and comes back, as OpenAPI shows it; docs/api.md tells what it means."""

from __future__ import annotations

import re
from datetime import datetime
from typing import Annotated, Any, Literal

from fastapi import Path, Query
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, StringConstraints, TypeAdapter

from services.access.roles import Role

_ONE_LINE = r"^[^\x00-\x1f\x7f]*$"
_PIPELINE = r"^[a-z][a-z0-9-]{0,99}$"
_MOST_ID = 2**63 - 1
_EXAMPLE = """name: sales
source:
  fields: {product_id: int, amount: decimal}
key: product_id
master: {table: products, columns: [name, price]}
"""


def _time(value: object) -> datetime:
    """A time as it is written, not the seconds that pydantic would take as well."""
    try:
        if isinstance(value, str) and "T" in value.upper():
            return _ANY_TIME.validate_python(value)
    except ValueError:
        pass
    raise ValueError("write a time as 2026-01-31T09:00:00Z")


def _digits(value: object) -> object:
    """A whole number of a path or a query as it is written: not 1.0, +1 or 1_0."""
    if isinstance(value, str) and not re.fullmatch(r"-?[0-9]+", value):
        raise ValueError("write a whole number in digits")
    return value


def _bool(value: object) -> object:
    """For a literal, to which 1 would be true as well."""
    if not isinstance(value, bool):
        raise ValueError("write true")  # noqa: TRY004 - pydantic takes a ValueError alone
    return value


_ANY_TIME = TypeAdapter(datetime)
Moment = Annotated[datetime, BeforeValidator(_time), Field(examples=["2026-01-31T09:00:00Z"])]
Whole = Annotated[int, BeforeValidator(_digits)]
Why = Annotated[
    str, StringConstraints(max_length=500, pattern=_ONE_LINE), Field(examples=["less memory"])
]
Word = Annotated[str, Query(max_length=200, pattern=_ONE_LINE)]
Figure = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_.:-]{1,100}$")]
Granted = Literal[Role.READ, Role.INSPECT, Role.OPERATE, Role.SEND, Role.ADMIN]
PipelineName = Annotated[str, Path(pattern=_PIPELINE, examples=["sales"])]
Number = Annotated[Whole, Path(ge=0, le=_MOST_ID, examples=[17])]
RevisionNumber = Annotated[Whole, Path(ge=1, le=2**31 - 1, examples=[3])]
Most = Annotated[Whole, Query(ge=1, le=1000)]
LinkNumber = Annotated[Whole, Query(ge=1, le=8, description="Which table of a chain.")]
Document = Annotated[
    str,
    StringConstraints(min_length=1, max_length=200_000, pattern=r"^[^\x00]*$"),
    Field(examples=[_EXAMPLE]),
]


class Shape(BaseModel):
    """What is sent, in the types of JSON: nothing is taken for what it is not."""

    model_config = ConfigDict(extra="forbid", strict=True)


class Answer(BaseModel):
    model_config = ConfigDict(extra="allow")


# --- problems


class BlameShape(Answer):
    field: str
    text: str
    line: int | None = None


class ProblemShape(Answer):
    type: Annotated[str, Field(examples=["urn:dovetail:problem:conflict"])]
    title: str
    status: int
    detail: str
    problems: list[BlameShape] | None = None


# --- pipelines


class NewPipeline(Shape):
    document: Document
    why: Why = ""


class CheckedDocument(Shape):
    document: Document
    database: bool = False


class WholeRevision(NewPipeline):
    from_revision: Annotated[int, Field(ge=1, le=2**31 - 1)] | None = None


class Settings(Shape):
    algorithm: (
        Annotated[
            str, StringConstraints(max_length=50, pattern=_ONE_LINE), Field(examples=["ssbj"])
        ]
        | None
    ) = None
    memory: (
        Annotated[
            str, StringConstraints(max_length=50, pattern=_ONE_LINE), Field(examples=["64MiB"])
        ]
        | Annotated[int, Field(ge=0, le=2**50)]
        | None
    ) = None
    order: (
        Annotated[str, StringConstraints(max_length=50, pattern=_ONE_LINE), Field(examples=["key"])]
        | dict[Literal["within"], Annotated[int, Field(ge=0, le=2**31)]]
        | None
    ) = None
    overload: (
        Annotated[
            str,
            StringConstraints(max_length=50, pattern=_ONE_LINE),
            Field(examples=["backpressure"]),
        ]
        | dict[
            Literal["shed", "when_behind", "criterion"],
            Annotated[str, StringConstraints(max_length=50, pattern=_ONE_LINE)],
        ]
        | None
    ) = None


class PartialRevision(Shape):
    settings: Settings
    why: Why = ""
    from_revision: Annotated[int, Field(ge=1, le=2**31 - 1)] | None = None


class Deletion(Shape):
    confirm: bool = False
    topics: bool = False
    why: Why = ""


class Listed(Answer):
    name: str
    here: bool
    state: str
    revision: int
    changed_at: datetime
    summary: str


class Shown(Answer):
    name: str
    here: bool
    state: str
    reason: str
    revision: int
    changed_at: datetime
    changed_by: str
    why: str
    applied: dict[str, int]
    document: str
    pipeline: dict[str, Any]


class FindingShape(Answer):
    level: str
    text: str


class Checked(Answer):
    pipeline: dict[str, Any]
    summary: str
    findings: list[FindingShape]


class RevisionShape(Answer):
    revision: int
    at: datetime
    by: str
    why: str
    origin: Literal["api", "file"]
    changes: list[str]


class WholeRevisionShape(RevisionShape):
    document: str
    pipeline: dict[str, Any]


class JobShape(Answer):
    id: int
    kind: str
    pipeline: str
    state: Literal["running", "done", "failed", "cancelled"]
    by: str
    why: str
    started_at: datetime
    ended_at: datetime | None
    progress: float | None
    text: str
    result: dict[str, Any] | None
    error: str | None


class Revised(Answer):
    revision: int
    changes: list[str]
    job: JobShape | None


# --- running it


class Reason(Shape):
    why: Why = ""


class Act(Reason):
    service: Annotated[str, StringConstraints(max_length=100, pattern=_ONE_LINE)] | None = Field(
        default=None, examples=["disk_phase"]
    )


class FromTime(Shape):
    time: Moment


class FromOffsets(Shape):
    offsets: dict[
        Annotated[str, StringConstraints(pattern=r"^(0|[1-9][0-9]{0,4})$")],
        Annotated[int, Field(ge=0, le=_MOST_ID)],
    ] = Field(min_length=1, examples=[{"0": 1200}])


class FromBeginning(Shape):
    beginning: Annotated[Literal[True], BeforeValidator(_bool)]


class Restart(Reason):
    from_: Annotated[FromTime | FromOffsets | FromBeginning, Field(alias="from")]
    confirm: bool = False


# --- letters


class Replay(Reason):
    force: bool = False


class ReplayMany(Reason):
    reason: Annotated[str, StringConstraints(max_length=100, pattern=_ONE_LINE)] | None = None
    origin: Annotated[str, StringConstraints(max_length=300, pattern=_ONE_LINE)] | None = None
    since: Moment | None = None
    until: Moment | None = None
    ids: list[Annotated[int, Field(ge=0, le=_MOST_ID)]] | None = Field(
        default=None, max_length=10_000
    )
    confirm: bool = False


class Replayed(Answer):
    at: datetime
    by: str
    to: str | None


class Letter(Answer):
    id: int
    at: datetime | None
    origin: str
    reason: str
    detail: str
    bytes: int
    preview: str
    replayed: Replayed | None


class WholeLetter(Letter):
    text: str | None
    base64: str


class Letters(Answer):
    letters: list[Letter]
    next: int | None
    total: int


class Sent(Answer):
    id: int
    origin: str
    to: str


# --- sizing


class SizeQuestion(Shape):
    rate: Annotated[float, Field(gt=0, le=1e9, examples=[50_000])] | None = None
    memory: Annotated[str, StringConstraints(max_length=20), Field(examples=["64MiB"])] | None = (
        None
    )
    rows: Annotated[float, Field(ge=1, le=1e10)] = 1e6
    row_bytes: Annotated[float, Field(ge=1, le=1e6)] = 120
    event_bytes: Annotated[float, Field(ge=1, le=1e6)] = 130
    skew: Annotated[float, Field(ge=0, le=3)] = 1.0
    rows_a_key: Annotated[float, Field(ge=1, le=1e6)] = 1.0
    ordered: bool = False
    unique: bool = False
    index: bool = True
    nodes: Annotated[int, Field(ge=1, le=1024)] = 2
    algorithms: list[Annotated[str, StringConstraints(max_length=50)]] | None = Field(
        default=None, max_length=20, examples=[["srj", "ssbj"]]
    )


class Sized(Answer):
    algorithm: str
    rate: float | None
    memory: float | None
    hit_share: float | None
    parts: dict[str, float] | None
    reason: str
    enough: bool


class Sizes(Answer):
    answers: list[Sized]


# --- Spark


class SparkStart(Reason):
    arguments: list[Annotated[str, StringConstraints(max_length=200, pattern=_ONE_LINE)]] = Field(
        default=[], max_length=20
    )


# --- access


class Me(Answer):
    name: str
    role: Granted
    local: bool


class NewToken(Shape):
    name: Annotated[
        str,
        StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9._@ -]{0,99}$"),
        Field(examples=["grafana"]),
    ]
    role: Granted
    expires_in_s: Annotated[float, Field(ge=1, le=10 * 366 * 86_400)] | None = None


class Rotation(Shape):
    keep_old_for_s: Annotated[float, Field(ge=0, le=30 * 86_400)] = 0


class Token(Answer):
    id: int
    name: str
    role: Granted
    created_at: datetime
    created_by: str
    expires_at: datetime | None
    last_used_at: datetime | None
    revoked_at: datetime | None


class GivenToken(Token):
    token: str


class Change(Answer):
    id: int
    at: datetime
    by: str
    role: str
    address: str
    action: str
    pipeline: str | None
    detail: dict[str, Any]
    why: str
