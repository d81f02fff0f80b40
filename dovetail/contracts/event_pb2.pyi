from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Origin(_message.Message):
    __slots__ = ("topic", "partition", "offset")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    topic: str
    partition: int
    offset: int
    def __init__(self, topic: _Optional[str] = ..., partition: _Optional[int] = ..., offset: _Optional[int] = ...) -> None: ...

class SalesEvent(_message.Message):
    __slots__ = ("sale_id", "product_id", "customer_id", "quantity", "amount", "channel", "sold_at_ms")
    SALE_ID_FIELD_NUMBER: _ClassVar[int]
    PRODUCT_ID_FIELD_NUMBER: _ClassVar[int]
    CUSTOMER_ID_FIELD_NUMBER: _ClassVar[int]
    QUANTITY_FIELD_NUMBER: _ClassVar[int]
    AMOUNT_FIELD_NUMBER: _ClassVar[int]
    CHANNEL_FIELD_NUMBER: _ClassVar[int]
    SOLD_AT_MS_FIELD_NUMBER: _ClassVar[int]
    sale_id: int
    product_id: int
    customer_id: int
    quantity: int
    amount: str
    channel: str
    sold_at_ms: int
    def __init__(self, sale_id: _Optional[int] = ..., product_id: _Optional[int] = ..., customer_id: _Optional[int] = ..., quantity: _Optional[int] = ..., amount: _Optional[str] = ..., channel: _Optional[str] = ..., sold_at_ms: _Optional[int] = ...) -> None: ...

class EnrichedEvent(_message.Message):
    __slots__ = ("event", "master", "origin", "answer")
    class Answer(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        ANSWER_UNSPECIFIED: _ClassVar[EnrichedEvent.Answer]
        ANSWER_CACHE: _ClassVar[EnrichedEvent.Answer]
        ANSWER_DISK: _ClassVar[EnrichedEvent.Answer]
    ANSWER_UNSPECIFIED: EnrichedEvent.Answer
    ANSWER_CACHE: EnrichedEvent.Answer
    ANSWER_DISK: EnrichedEvent.Answer
    EVENT_FIELD_NUMBER: _ClassVar[int]
    MASTER_FIELD_NUMBER: _ClassVar[int]
    ORIGIN_FIELD_NUMBER: _ClassVar[int]
    ANSWER_FIELD_NUMBER: _ClassVar[int]
    event: bytes
    master: bytes
    origin: Origin
    answer: EnrichedEvent.Answer
    def __init__(self, event: _Optional[bytes] = ..., master: _Optional[bytes] = ..., origin: _Optional[_Union[Origin, _Mapping]] = ..., answer: _Optional[_Union[EnrichedEvent.Answer, str]] = ...) -> None: ...
