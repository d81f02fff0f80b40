from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Optional as _Optional

DESCRIPTOR: _descriptor.FileDescriptor

class Batch(_message.Message):
    __slots__ = ("pipeline", "slot", "events", "unfit", "arrow")
    PIPELINE_FIELD_NUMBER: _ClassVar[int]
    SLOT_FIELD_NUMBER: _ClassVar[int]
    EVENTS_FIELD_NUMBER: _ClassVar[int]
    UNFIT_FIELD_NUMBER: _ClassVar[int]
    ARROW_FIELD_NUMBER: _ClassVar[int]
    pipeline: str
    slot: int
    events: int
    unfit: str
    arrow: bytes
    def __init__(self, pipeline: _Optional[str] = ..., slot: _Optional[int] = ..., events: _Optional[int] = ..., unfit: _Optional[str] = ..., arrow: _Optional[bytes] = ...) -> None: ...
