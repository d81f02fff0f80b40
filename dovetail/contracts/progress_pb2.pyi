from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Progress(_message.Message):
    __slots__ = ("slot", "committed", "answered")
    class Range(_message.Message):
        __slots__ = ("first", "end", "first_event", "end_event")
        FIRST_FIELD_NUMBER: _ClassVar[int]
        END_FIELD_NUMBER: _ClassVar[int]
        FIRST_EVENT_FIELD_NUMBER: _ClassVar[int]
        END_EVENT_FIELD_NUMBER: _ClassVar[int]
        first: int
        end: int
        first_event: int
        end_event: int
        def __init__(self, first: _Optional[int] = ..., end: _Optional[int] = ..., first_event: _Optional[int] = ..., end_event: _Optional[int] = ...) -> None: ...
    SLOT_FIELD_NUMBER: _ClassVar[int]
    COMMITTED_FIELD_NUMBER: _ClassVar[int]
    ANSWERED_FIELD_NUMBER: _ClassVar[int]
    slot: int
    committed: int
    answered: _containers.RepeatedCompositeFieldContainer[Progress.Range]
    def __init__(self, slot: _Optional[int] = ..., committed: _Optional[int] = ..., answered: _Optional[_Iterable[_Union[Progress.Range, _Mapping]]] = ...) -> None: ...
