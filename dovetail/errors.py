"""Every error that Dovetail raises on purpose.

    DovetailError
    ├── ConfigError        a setting or a pipeline file is wrong; the message names the cure
    ├── Unavailable        a broker or a database cannot be reached
    │   └── SlowError      a database can, and takes longer than there is time for
    ├── NotAllowedError    a broker or a database says who we are not, or what we may not
    ├── MasterDataError    the master table is missing, empty or of the wrong shape
    │   └── TooLongError   a read of it is longer than any value that PostgreSQL can build
    ├── StackError         the local stack could not be prepared, started or stopped
    ├── RefusedError       the control service says no, and why
    └── ConservationError  events went missing or came twice: the sum is off

A bad event is not an error: it is data, and goes to the dead-letter topic with its reason.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

_SHORT = 4


class DovetailError(Exception):
    """The root: its message is fit to be shown to a user as it is."""


class ConfigError(DovetailError):
    pass


class Unavailable(DovetailError):  # noqa: N818 - it names a state, not a mistake
    pass


class SlowError(Unavailable):
    """A read was ended because it took too long; the next one may take longer."""


class NotAllowedError(DovetailError):
    """The message names the permission that is missing; no waiting mends it."""


class MasterDataError(DovetailError):
    pass


class TooLongError(MasterDataError):
    """A read is longer than any value that PostgreSQL can build: to repeat it is no use."""


class TooManyRowsError(MasterDataError):
    """The rows of one join key do not fit into the memory of the join."""


class StackError(DovetailError):
    pass


class RefusedError(DovetailError):
    """`problem` is the control service's problem document (RFC 9457)."""

    def __init__(self, text: str, status: int, problem: Mapping[str, Any]) -> None:
        super().__init__(text)
        self.status = status
        self.problem = problem


class ConservationError(DovetailError):
    pass


def hidden(text: str, *values: str) -> str:
    """A text of somebody else's about settings, without their values."""
    for value in sorted(filter(None, values), key=len, reverse=True):
        whole = re.escape(value) if len(value) > _SHORT else rf"(?<!\w){re.escape(value)}(?!\w)"
        text = re.sub(whole, "***", text)
    return text
