from __future__ import annotations

from typing import Annotated

from fastapi import Depends, Request

from services.access.gate import WHO
from services.access.roles import Who
from services.problem import Kind, ProblemError


async def who_asks(request: Request) -> Who:
    who = getattr(request.state, WHO)
    assert isinstance(who, Who)
    return who


Asker = Annotated[Who, Depends(who_asks)]


def require_confirmed(confirm: bool, what: str) -> None:
    if not confirm:
        raise ProblemError(
            Kind.CONFIRMATION_NEEDED, f'{what}: if you want that, send "confirm": true as well'
        )
