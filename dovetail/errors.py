"""Every error that Dovetail raises on purpose.

    DovetailError
    ├── ConfigError        a setting or a pipeline file is wrong; the message names the cure
    ├── Unavailable        a broker or a database cannot be reached
    ├── MasterDataError    the master table is missing, empty or of the wrong shape
    ├── StackError         the local stack could not be prepared, started or stopped
    └── ConservationError  events went missing or came twice: the sum is off

A bad event is not an error: it is data, and goes to the dead-letter topic with its reason.
"""

from __future__ import annotations


class DovetailError(Exception):
    """The root: its message is fit to be shown to a user as it is."""


class ConfigError(DovetailError):
    pass


class Unavailable(DovetailError):  # noqa: N818 - it names a state, not a mistake
    pass


class MasterDataError(DovetailError):
    pass


class TooManyRowsError(MasterDataError):
    """The rows of one join key do not fit into the memory of the join."""


class StackError(DovetailError):
    pass


class ConservationError(DovetailError):
    pass
