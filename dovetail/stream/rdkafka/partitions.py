"""rd_kafka_topic_partition_list_t to and from Python; one topic, so a partition is a number."""

from __future__ import annotations

import ctypes
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from dovetail.stream.rdkafka.errors import check_code
from dovetail.stream.rdkafka.library import OFFSET_INVALID, library

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping


@contextmanager
def partition_list(topic: str, partitions: Iterable[int]) -> Iterator[Any]:
    """Make a list of partitions without offsets, freed at the end."""
    lib = library()
    listed = lib.topic_partition_list_new(1)
    try:
        for partition in partitions:
            lib.topic_partition_list_add(listed, topic.encode(), partition)
        yield listed
    finally:
        lib.topic_partition_list_destroy(listed)


@contextmanager
def offset_list(topic: str, offsets: Mapping[int, tuple[int, str]]) -> Iterator[Any]:
    """Make a list of partitions with an offset and its metadata each."""
    # librdkafka frees a list's metadata with its own allocator, so ours is lent and taken back.
    # The zero at the end is sent, too: confluent-kafka reads metadata as a C string, and without
    # it past its end.
    texts = [metadata.encode() + b"\0" if metadata else b"" for _, metadata in offsets.values()]
    with partition_list(topic, offsets) as listed:
        elements = listed.contents.elems[: listed.contents.cnt]
        for element, (offset, _), text in zip(elements, offsets.values(), texts, strict=True):
            element.offset = offset
            if text:
                element.metadata = ctypes.cast(ctypes.c_char_p(text), ctypes.c_void_p)
                element.metadata_size = len(text)
        try:
            yield listed
        finally:
            for element in elements:
                element.metadata, element.metadata_size = None, 0


def numbers(listed: Any) -> list[int]:
    return [element.partition for element in _elements(listed)]


def known_offsets(listed: Any) -> dict[int, int]:
    """Give the offsets by partition, without those that are not known."""
    return {
        element.partition: element.offset
        for element in _elements(listed)
        if element.offset != OFFSET_INVALID
    }


def metadata_of(listed: Any) -> dict[int, str]:
    return {
        element.partition: _text(element.metadata, element.metadata_size)
        if element.metadata
        else ""
        for element in _elements(listed)
    }


def _text(metadata: int, size: int) -> str:
    return ctypes.string_at(metadata, size).removesuffix(b"\0").decode()


def check_each(listed: Any, doing: str) -> None:
    """Raise the first error that is noted beside a partition."""
    for element in _elements(listed):
        check_code(element.err, f"{doing} of partition {element.partition}")


def _elements(listed: Any) -> list[Any]:
    elements: list[Any] = listed.contents.elems[: listed.contents.cnt]
    return elements
