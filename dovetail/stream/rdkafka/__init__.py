"""Kafka at the edges: one message an event, without a Python object an event.

A thin binding to the librdkafka that the confluent-kafka wheel brings along. Where a message
is a whole batch, confluent-kafka itself serves as well; where it is one event, its objects cost
more than the event's own work.
"""

from __future__ import annotations

from dovetail.stream.rdkafka.consumer import Consumer, GroupMetadata
from dovetail.stream.rdkafka.errors import KafkaFailure
from dovetail.stream.rdkafka.kernels import compile_kernels
from dovetail.stream.rdkafka.parcel import Parcel
from dovetail.stream.rdkafka.producer import Producer
from dovetail.stream.rdkafka.records import Records

__all__ = [
    "Consumer",
    "GroupMetadata",
    "KafkaFailure",
    "Parcel",
    "Producer",
    "Records",
    "compile_kernels",
]
