"""Why a request by HTTP is not taken, in the form of RFC 9457."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from fastapi import Response

if TYPE_CHECKING:
    from http import HTTPStatus


class RefusalError(Exception):
    """Nothing of the request's events is on the source topic, unless its detail says otherwise."""

    def __init__(
        self,
        status: HTTPStatus,
        detail: str,
        *,
        headers: dict[str, str] | None = None,
        place: dict[str, int] | None = None,
    ) -> None:
        """`place` says where in the body it is wrong: `{"line": 3}`."""
        super().__init__(detail)
        self.status = status
        self._headers = headers
        self._place = place or {}

    def response(self) -> Response:
        problem = {
            "type": "about:blank",
            "title": self.status.phrase,
            "status": self.status.value,
            "detail": str(self),
            **self._place,
        }
        return Response(json.dumps(problem), self.status, self._headers, "application/problem+json")


def again_later(status: HTTPStatus, detail: str, seconds: int = 1) -> RefusalError:
    return RefusalError(status, detail, headers={"Retry-After": str(seconds)})
