from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Command(_message.Message):
    __slots__ = ("id", "pipeline", "service", "action", "issued_at_ms", "number", "revision", "document", "file_digest", "read_from", "read_from_number")
    class Action(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        ACTION_UNSPECIFIED: _ClassVar[Command.Action]
        ACTION_PAUSE: _ClassVar[Command.Action]
        ACTION_RESUME: _ClassVar[Command.Action]
        ACTION_DRAIN: _ClassVar[Command.Action]
    ACTION_UNSPECIFIED: Command.Action
    ACTION_PAUSE: Command.Action
    ACTION_RESUME: Command.Action
    ACTION_DRAIN: Command.Action
    class ReadFromEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: int
        value: int
        def __init__(self, key: _Optional[int] = ..., value: _Optional[int] = ...) -> None: ...
    ID_FIELD_NUMBER: _ClassVar[int]
    PIPELINE_FIELD_NUMBER: _ClassVar[int]
    SERVICE_FIELD_NUMBER: _ClassVar[int]
    ACTION_FIELD_NUMBER: _ClassVar[int]
    ISSUED_AT_MS_FIELD_NUMBER: _ClassVar[int]
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    REVISION_FIELD_NUMBER: _ClassVar[int]
    DOCUMENT_FIELD_NUMBER: _ClassVar[int]
    FILE_DIGEST_FIELD_NUMBER: _ClassVar[int]
    READ_FROM_FIELD_NUMBER: _ClassVar[int]
    READ_FROM_NUMBER_FIELD_NUMBER: _ClassVar[int]
    id: str
    pipeline: str
    service: str
    action: Command.Action
    issued_at_ms: int
    number: int
    revision: int
    document: str
    file_digest: bytes
    read_from: _containers.ScalarMap[int, int]
    read_from_number: int
    def __init__(self, id: _Optional[str] = ..., pipeline: _Optional[str] = ..., service: _Optional[str] = ..., action: _Optional[_Union[Command.Action, str]] = ..., issued_at_ms: _Optional[int] = ..., number: _Optional[int] = ..., revision: _Optional[int] = ..., document: _Optional[str] = ..., file_digest: _Optional[bytes] = ..., read_from: _Optional[_Mapping[int, int]] = ..., read_from_number: _Optional[int] = ...) -> None: ...

class Heartbeat(_message.Message):
    __slots__ = ("pipeline", "service", "node", "state", "at_ms", "pid", "url", "figures", "reason", "partitions", "revision", "command")
    class State(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        STATE_UNSPECIFIED: _ClassVar[Heartbeat.State]
        STATE_STARTING: _ClassVar[Heartbeat.State]
        STATE_READY: _ClassVar[Heartbeat.State]
        STATE_PAUSED: _ClassVar[Heartbeat.State]
        STATE_DRAINING: _ClassVar[Heartbeat.State]
        STATE_FAILED: _ClassVar[Heartbeat.State]
    STATE_UNSPECIFIED: Heartbeat.State
    STATE_STARTING: Heartbeat.State
    STATE_READY: Heartbeat.State
    STATE_PAUSED: Heartbeat.State
    STATE_DRAINING: Heartbeat.State
    STATE_FAILED: Heartbeat.State
    class FiguresEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: float
        def __init__(self, key: _Optional[str] = ..., value: _Optional[float] = ...) -> None: ...
    PIPELINE_FIELD_NUMBER: _ClassVar[int]
    SERVICE_FIELD_NUMBER: _ClassVar[int]
    NODE_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    AT_MS_FIELD_NUMBER: _ClassVar[int]
    PID_FIELD_NUMBER: _ClassVar[int]
    URL_FIELD_NUMBER: _ClassVar[int]
    FIGURES_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    REVISION_FIELD_NUMBER: _ClassVar[int]
    COMMAND_FIELD_NUMBER: _ClassVar[int]
    pipeline: str
    service: str
    node: int
    state: Heartbeat.State
    at_ms: int
    pid: int
    url: str
    figures: _containers.ScalarMap[str, float]
    reason: str
    partitions: _containers.RepeatedScalarFieldContainer[int]
    revision: int
    command: int
    def __init__(self, pipeline: _Optional[str] = ..., service: _Optional[str] = ..., node: _Optional[int] = ..., state: _Optional[_Union[Heartbeat.State, str]] = ..., at_ms: _Optional[int] = ..., pid: _Optional[int] = ..., url: _Optional[str] = ..., figures: _Optional[_Mapping[str, float]] = ..., reason: _Optional[str] = ..., partitions: _Optional[_Iterable[int]] = ..., revision: _Optional[int] = ..., command: _Optional[int] = ...) -> None: ...
