"""What a service is told by its environment about access.

DOVETAIL_LOCAL=1             open to this machine, if it is bound to a loopback address
DOVETAIL_ADMIN_TOKEN_FILE    a file with the first admin token
DOVETAIL_ADMIN_TOKEN         the token itself, where there is no file
DOVETAIL_REQUESTS            a second for each token or address, 50 unless given
"""

from __future__ import annotations

import logging
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from dovetail.errors import ConfigError
from dovetail.web import is_loopback

if TYPE_CHECKING:
    from collections.abc import Mapping

log = logging.getLogger(__name__)

_FILE, _TOKEN, _LOCAL = "DOVETAIL_ADMIN_TOKEN_FILE", "DOVETAIL_ADMIN_TOKEN", "DOVETAIL_LOCAL"
_RATE = "DOVETAIL_REQUESTS"
RATE = 50.0
LEAST_LENGTH = 32
"""Characters of a token that is given from outside."""
SECRET_VARIABLES = (_TOKEN,)
"""What a process that is started by a service need not inherit."""


@dataclass(frozen=True, slots=True)
class AccessSettings:
    local: bool = False
    first_token: str | None = field(default=None, repr=False)
    rate: float = RATE
    """Requests a second for each token or address; four times as many at once."""

    @classmethod
    def from_environment(
        cls, host: str, environment: Mapping[str, str] = os.environ
    ) -> AccessSettings:
        wanted = environment.get(_LOCAL, "").strip() not in ("", "0", "no", "false")
        if wanted and not is_loopback(host):
            log.warning("%s does not open what is bound to %s: a token is needed", _LOCAL, host)
        rate = environment.get(_RATE, "").strip() or str(RATE)
        if rate != str(RATE) and not (rate.isdecimal() and float(rate)):
            raise ConfigError(f"{_RATE} is not a number of requests a second; write 50")
        return cls(wanted and is_loopback(host), _first_token(environment), float(rate))


def _first_token(environment: Mapping[str, str]) -> str | None:
    file = environment.get(_FILE, "").strip()
    token = environment.get(_TOKEN, "").strip()
    if file:
        try:
            token = Path(file).read_text().strip()
        except (OSError, UnicodeDecodeError) as error:
            why = error.strerror if isinstance(error, OSError) else "it is not text"
            raise ConfigError(f"the file that {_FILE} names cannot be read: {why}") from None
    if not token:
        return None
    if len(token) < LEAST_LENGTH:
        raise ConfigError(
            f"{_FILE if file else _TOKEN}: an admin token needs at least {LEAST_LENGTH} characters;"
            " make one with: openssl rand -hex 32"
        )
    return token
