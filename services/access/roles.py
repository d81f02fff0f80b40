from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum, auto
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable


class Role(StrEnum):
    """What a token may do; each may do all that those before it may."""

    READ = auto()
    OPERATE = auto()
    ADMIN = auto()

    def includes(self, needed: Role) -> bool:
        roles = list(Role)
        return roles.index(self) >= roles.index(needed)


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
