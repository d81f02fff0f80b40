"""What an exit code says."""

from __future__ import annotations

from dovetail.errors import ConfigError, DovetailError, RefusedError, Unavailable

FINE = 0
NO = 1
"""The answer is no: a check failed, a sum is off, a job failed, there is no such thing."""
WRONG = 2
"""Wrong usage, or a wrong setting; argparse's own code."""
UNREACHABLE = 3
"""The control service, the broker or the database does not answer."""
FORBIDDEN = 4
"""No token, an unknown one, or one with too low a role."""
INTERRUPTED = 130

_OF_STATUS = {
    **dict.fromkeys((400, 405, 413, 422), WRONG),
    **dict.fromkeys((401, 403), FORBIDDEN),
    **dict.fromkeys((429, 502, 503, 504), UNREACHABLE),
}


def exit_code(error: DovetailError) -> int:
    if isinstance(error, RefusedError):
        return _OF_STATUS.get(error.status, NO)
    if isinstance(error, ConfigError):
        return WRONG
    return UNREACHABLE if isinstance(error, Unavailable) else NO
