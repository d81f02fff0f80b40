"""What librdkafka reports, as one exception."""

from __future__ import annotations

from dovetail.errors import DovetailError, Unavailable
from dovetail.stream.rdkafka.library import library

QUEUE_FULL = -184
TIMED_OUT = -185
STATE = -172
FATAL = -150
UNKNOWN_PARTITION = -190
PARTITION_EOF = -191
NO_OFFSET = -140

_REFUSED = frozenset({29, 30, 31, 53})
"""Topic, group, cluster, transactional id: not this user's to use."""

_FENCED = frozenset({-144, 47, 90})  # instance fenced, producer epoch too old, producer fenced

# Code-only failures carry no flags. These pass by themselves: transport, brokers down, timeout,
# coordinator moving or loading, leader moving, offsets still inside a transaction.
_PASSING = frozenset({-195, -187, TIMED_OUT, -180, 5, 6, 7, 14, 15, 16, 88})


class KafkaFailure(Unavailable):
    """A Kafka call that did not do its work; the flags say what may be done about it.

    retriable  the same call may be made again
    abortable  the transaction must be aborted, then begun anew
    fatal      the client is beyond use: close it and make another
    fenced     fatal because another producer took over this transactional id
    """

    def __init__(
        self,
        doing: str,
        code: int,
        reason: str = "",
        *,
        retriable: bool = False,
        abortable: bool = False,
        fatal: bool = False,
    ) -> None:
        self.code = code
        self.name: str = library().err2name(code).decode()
        self.retriable = retriable
        self.abortable = abortable
        self.fatal = fatal
        super().__init__(f"{doing}: {reason or describe(code)} ({self.name})")

    @property
    def refused(self) -> bool:
        """Whether a permission is missing, which no waiting mends."""
        return self.code in _REFUSED

    @property
    def fenced(self) -> bool:
        return self.code in _FENCED


class StuckError(DovetailError):
    """Clients that can be neither used nor closed; no other try helps within this process."""


def describe(code: int) -> str:
    text: bytes = library().err2str(code)
    return text.decode()


def check_code(code: int, doing: str) -> None:
    """Raise what a call that answers with a bare code reports."""
    if code:
        raise KafkaFailure(doing, code, retriable=code in _PASSING, fatal=code == FATAL)


def check_error(error: int | None, doing: str) -> None:
    """Raise what a call that answers with an error object reports, and free the object."""
    if error:
        raise failure_of(error, doing)


def failure_of(error: int, doing: str) -> KafkaFailure:
    lib = library()
    try:
        return KafkaFailure(
            doing,
            lib.error_code(error),
            lib.error_string(error).decode(errors="replace"),
            retriable=bool(lib.error_is_retriable(error)),
            abortable=bool(lib.error_txn_requires_abort(error)),
            fatal=bool(lib.error_is_fatal(error)),
        )
    finally:
        lib.error_destroy(error)
