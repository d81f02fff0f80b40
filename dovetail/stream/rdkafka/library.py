"""librdkafka's C interface: where the shared library is, and the calls used from it.

Only what rdkafka.h documents as public is declared. The control plane calls these functions
through ctypes, which lets go of the GIL while it waits; the loops over events call the same
functions by address from compiled code (see kernels.py).
"""

from __future__ import annotations

import ctypes
import ctypes.util
import os
import sys
from ctypes import c_char_p, c_int, c_int32, c_int64, c_size_t, c_ssize_t, c_void_p
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from dovetail.errors import ConfigError

# Release 2.1 mended seeking and batch consumption across pauses, 2.4 records that came twice.
_OLDEST = (2, 4)

PRODUCER, CONSUMER = 0, 1
OFFSET_BEGINNING = -2
OFFSET_INVALID = -1001
UNASSIGNED_PARTITION = -1


class TopicPartition(ctypes.Structure):
    """rd_kafka_topic_partition_t."""

    _fields_ = (
        ("topic", c_char_p),
        ("partition", c_int32),
        ("offset", c_int64),
        ("metadata", c_void_p),
        ("metadata_size", c_size_t),
        ("opaque", c_void_p),
        ("err", c_int),
        ("_private", c_void_p),
    )


class TopicPartitionList(ctypes.Structure):
    """rd_kafka_topic_partition_list_t."""

    _fields_ = (
        ("cnt", c_int),
        ("size", c_int),
        ("elems", ctypes.POINTER(TopicPartition)),
    )


class Message(ctypes.Structure):
    """rd_kafka_message_t. The kernels read it as nine words of eight bytes."""

    _fields_ = (
        ("err", c_int),
        ("topic", c_void_p),
        ("partition", c_int32),
        ("payload", c_void_p),
        ("len", c_size_t),
        ("key", c_void_p),
        ("key_len", c_size_t),
        ("offset", c_int64),
        ("_private", c_void_p),
    )


PartitionsPointer = ctypes.POINTER(TopicPartitionList)
RebalanceCallback = ctypes.CFUNCTYPE(None, c_void_p, c_int, PartitionsPointer, c_void_p)
LogCallback = ctypes.CFUNCTYPE(None, c_void_p, c_int, c_char_p, c_char_p)

_OUT_INT64 = ctypes.POINTER(c_int64)

# name: (what it returns, what it takes), all after the prefix rd_kafka_
_CALLS: dict[str, tuple[Any, tuple[Any, ...]]] = {
    "version": (c_int, ()),
    "version_str": (c_char_p, ()),
    "err2str": (c_char_p, (c_int,)),
    "err2name": (c_char_p, (c_int,)),
    "error_code": (c_int, (c_void_p,)),
    "error_string": (c_char_p, (c_void_p,)),
    "error_is_fatal": (c_int, (c_void_p,)),
    "error_is_retriable": (c_int, (c_void_p,)),
    "error_txn_requires_abort": (c_int, (c_void_p,)),
    "error_destroy": (None, (c_void_p,)),
    "fatal_error": (c_int, (c_void_p, c_char_p, c_size_t)),
    "conf_new": (c_void_p, ()),
    "conf_destroy": (None, (c_void_p,)),
    "conf_set": (c_int, (c_void_p, c_char_p, c_char_p, c_char_p, c_size_t)),
    "conf_set_opaque": (None, (c_void_p, c_void_p)),
    "conf_set_log_cb": (None, (c_void_p, LogCallback)),
    "conf_set_rebalance_cb": (None, (c_void_p, RebalanceCallback)),
    "conf_set_dr_msg_cb": (None, (c_void_p, c_void_p)),
    "new": (c_void_p, (c_int, c_void_p, c_char_p, c_size_t)),
    "destroy": (None, (c_void_p,)),
    "set_log_queue": (c_int, (c_void_p, c_void_p)),
    "poll": (c_int, (c_void_p, c_int)),
    "topic_partition_list_new": (PartitionsPointer, (c_int,)),
    "topic_partition_list_add": (
        ctypes.POINTER(TopicPartition),
        (PartitionsPointer, c_char_p, c_int32),
    ),
    "topic_partition_list_destroy": (None, (PartitionsPointer,)),
    "poll_set_consumer": (c_int, (c_void_p,)),
    "queue_get_consumer": (c_void_p, (c_void_p,)),
    "queue_destroy": (None, (c_void_p,)),
    "subscribe": (c_int, (c_void_p, PartitionsPointer)),
    "consume_batch_queue": (c_ssize_t, (c_void_p, c_int, c_void_p, c_size_t)),
    "message_errstr": (c_char_p, (c_void_p,)),
    "message_timestamp": (c_int64, (c_void_p, c_void_p)),
    "message_destroy": (None, (c_void_p,)),
    "rebalance_protocol": (c_char_p, (c_void_p,)),
    "assign": (c_int, (c_void_p, PartitionsPointer)),
    "incremental_assign": (c_void_p, (c_void_p, PartitionsPointer)),
    "incremental_unassign": (c_void_p, (c_void_p, PartitionsPointer)),
    "assignment_lost": (c_int, (c_void_p,)),
    "position": (c_int, (c_void_p, PartitionsPointer)),
    "committed": (c_int, (c_void_p, PartitionsPointer, c_int)),
    "seek_partitions": (c_void_p, (c_void_p, PartitionsPointer, c_int)),
    "pause_partitions": (c_int, (c_void_p, PartitionsPointer)),
    "resume_partitions": (c_int, (c_void_p, PartitionsPointer)),
    "get_watermark_offsets": (c_int, (c_void_p, c_char_p, c_int32, _OUT_INT64, _OUT_INT64)),
    "consumer_group_metadata": (c_void_p, (c_void_p,)),
    "consumer_group_metadata_new": (c_void_p, (c_char_p,)),
    "consumer_group_metadata_destroy": (None, (c_void_p,)),
    "consumer_close": (c_int, (c_void_p,)),
    "default_topic_conf_dup": (c_void_p, (c_void_p,)),
    "topic_conf_set": (c_int, (c_void_p, c_char_p, c_char_p, c_char_p, c_size_t)),
    "topic_new": (c_void_p, (c_void_p, c_char_p, c_void_p)),
    "topic_destroy": (None, (c_void_p,)),
    "produceva": (c_void_p, (c_void_p, c_void_p, c_size_t)),
    "flush": (c_int, (c_void_p, c_int)),
    "metadata": (c_int, (c_void_p, c_int, c_void_p, ctypes.POINTER(c_void_p), c_int)),
    "metadata_destroy": (None, (c_void_p,)),
    "init_transactions": (c_void_p, (c_void_p, c_int)),
    "begin_transaction": (c_void_p, (c_void_p,)),
    "send_offsets_to_transaction": (c_void_p, (c_void_p, PartitionsPointer, c_void_p, c_int)),
    "commit_transaction": (c_void_p, (c_void_p, c_int)),
    "abort_transaction": (c_void_p, (c_void_p, c_int)),
}


class Library:
    """Each call of _CALLS as an attribute without its prefix, and the address of any of them."""

    def __init__(self, path: str) -> None:
        try:
            shared = ctypes.CDLL(path)
            for name, (returns, takes) in _CALLS.items():
                call = getattr(shared, f"rd_kafka_{name}")
                call.restype, call.argtypes = returns, list(takes)
                setattr(self, name, call)
        except (OSError, AttributeError) as error:
            raise ConfigError(f"{path} is not a usable librdkafka: {error}") from error
        self._require_release(path)

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"rd_kafka_{name} is not declared in {__name__}")

    def address(self, name: str) -> int:
        return ctypes.cast(getattr(self, name), c_void_p).value or 0

    def _require_release(self, path: str) -> None:
        version = self.version()
        if (version >> 24, version >> 16 & 0xFF) < _OLDEST:
            release = self.version_str().decode()
            oldest = ".".join(map(str, _OLDEST))
            raise ConfigError(f"{path} is librdkafka {release}; {oldest} or newer is needed")


def find_library() -> str:
    """LIBRDKAFKA if set, else the one inside the confluent-kafka wheel, else the system's."""
    if chosen := os.environ.get("LIBRDKAFKA"):
        return chosen
    if bundled := _bundled():
        return str(bundled)
    if installed := ctypes.util.find_library("rdkafka"):
        return installed
    raise ConfigError(
        "librdkafka was not found: install the confluent-kafka wheel, which brings it along, "
        "or set LIBRDKAFKA to the path of the shared library"
    )


def _bundled() -> Path | None:
    spec = find_spec("confluent_kafka")
    if spec is None or spec.origin is None:
        return None
    package = Path(spec.origin).parent
    folders = (package.with_name("confluent_kafka.libs"), package / ".dylibs")
    found = (path for folder in folders for path in sorted(folder.glob("librdkafka*")))
    return next(found, None)


@cache
def library() -> Library:
    """Load it, once a process; the wheel's is the very copy that confluent-kafka runs on."""
    if sys.byteorder != "little" or ctypes.sizeof(c_void_p) != 8:
        raise ConfigError("the Kafka kernels need a 64-bit little-endian machine")
    return Library(find_library())
