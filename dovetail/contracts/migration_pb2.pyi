from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Optional as _Optional

DESCRIPTOR: _descriptor.FileDescriptor

class Migration(_message.Message):
    __slots__ = ("entry", "read_at_ms", "events", "cycle")
    ENTRY_FIELD_NUMBER: _ClassVar[int]
    READ_AT_MS_FIELD_NUMBER: _ClassVar[int]
    EVENTS_FIELD_NUMBER: _ClassVar[int]
    CYCLE_FIELD_NUMBER: _ClassVar[int]
    entry: bytes
    read_at_ms: int
    events: int
    cycle: int
    def __init__(self, entry: _Optional[bytes] = ..., read_at_ms: _Optional[int] = ..., events: _Optional[int] = ..., cycle: _Optional[int] = ...) -> None: ...
