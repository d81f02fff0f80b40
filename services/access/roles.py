from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum, auto
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable


class Role(StrEnum):
    """What a token may do, and what an endpoint needs."""

    READ = auto()
    """Figures, states, documents: whatever shows no key, no row and no event."""
    INSPECT = auto()
    """Also keys, rows of master data, and the events that became letters."""
    OPERATE = auto()
    """Also change what runs."""
    SEND = auto()
    """Send events by HTTP, and nothing else: a till's, which need not see what it sells into."""
    ADMIN = auto()
    """All of it, and tokens."""
    PASS = auto()
    """Ask the stages what they hold, for a minute: control's own, which nobody can make."""

    def includes(self, needed: Role) -> bool:
        return needed in _MAY[self]


GRANTED = tuple(role for role in Role if role is not Role.PASS)
"""Those that a token can be made with."""
_SEEN = {Role.READ}
_INSPECTED = {*_SEEN, Role.INSPECT, Role.PASS}
_OPERATED = {*_INSPECTED, Role.OPERATE}
_MAY = {
    Role.READ: _SEEN,
    Role.INSPECT: _INSPECTED,
    Role.OPERATE: _OPERATED,
    Role.SEND: {Role.SEND},
    Role.ADMIN: {*_OPERATED, Role.SEND, Role.ADMIN},
    Role.PASS: {Role.PASS},
}


def least(needed: Role) -> Role:
    """The role to ask an admin for."""
    return next(role for role in GRANTED if role.includes(needed))


@dataclass(frozen=True, slots=True)
class Who:
    """Somebody who makes a request."""

    name: str
    role: Role
    token: int | None = None
    """None: in local mode, without one."""
    address: str = ""

    @property
    def local(self) -> bool:
        return self.token is None


_Endpoint = TypeVar("_Endpoint", bound="Callable[..., Any]")
_NEEDS = "needs_role"


def needs(role: Role) -> Callable[[_Endpoint], _Endpoint]:
    """Say which role an endpoint needs; without it, GET needs `read` and all else `admin`."""

    def mark(endpoint: _Endpoint) -> _Endpoint:
        setattr(endpoint, _NEEDS, role)
        return endpoint

    return mark


def needed_by(endpoint: object, method: str) -> Role:
    usual = Role.READ if method in ("GET", "HEAD") else Role.ADMIN
    role: Role = getattr(endpoint, _NEEDS, usual)
    return role
