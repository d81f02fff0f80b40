from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Progress(_message.Message):
    __slots__ = ("slot", "number", "answered")
    class Answered(_message.Message):
        __slots__ = ("offset", "events", "bits")
        OFFSET_FIELD_NUMBER: _ClassVar[int]
        EVENTS_FIELD_NUMBER: _ClassVar[int]
        BITS_FIELD_NUMBER: _ClassVar[int]
        offset: int
        events: int
        bits: bytes
        def __init__(self, offset: _Optional[int] = ..., events: _Optional[int] = ..., bits: _Optional[bytes] = ...) -> None: ...
    SLOT_FIELD_NUMBER: _ClassVar[int]
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    ANSWERED_FIELD_NUMBER: _ClassVar[int]
    slot: int
    number: int
    answered: _containers.RepeatedCompositeFieldContainer[Progress.Answered]
    def __init__(self, slot: _Optional[int] = ..., number: _Optional[int] = ..., answered: _Optional[_Iterable[_Union[Progress.Answered, _Mapping]]] = ...) -> None: ...
