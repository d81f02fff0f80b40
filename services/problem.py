"""What a request is refused with: a problem in the form of RFC 9457, which says what to do."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any

from fastapi import Response

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

MEDIA_TYPE = "application/problem+json"


class Kind(Enum):
    """Every kind of problem: its status and title."""

    REQUEST_INVALID = (422, "The request is not valid")
    PIPELINE_INVALID = (422, "The pipeline is not valid")
    NOT_FOUND = (404, "There is no such thing")
    METHOD_NOT_ALLOWED = (405, "The method is not allowed here")
    UNAUTHENTICATED = (401, "A token is needed")
    FORBIDDEN = (403, "This is not allowed")
    CONFLICT = (409, "It cannot be done in this state")
    CONFIRMATION_NEEDED = (409, "A confirmation is needed")
    SETTING_FIXED = (409, "A setting cannot change now")
    ALREADY_REPLAYED = (409, "It was replayed before")
    TOO_LARGE = (413, "The request is too large")
    TOO_MANY_REQUESTS = (429, "There are too many requests")
    UNAVAILABLE = (503, "Something does not answer")
    INTERNAL = (500, "This is a bug")

    @property
    def status(self) -> int:
        return self.value[0]

    @property
    def type(self) -> str:
        return f"urn:dovetail:problem:{self.name.lower().replace('_', '-')}"


@dataclass(frozen=True, slots=True)
class Blame:
    """A single field that is wrong."""

    field: str
    text: str
    line: int | None = None


class ProblemError(Exception):
    def __init__(
        self,
        kind: Kind,
        detail: str,
        *,
        blames: Sequence[Blame] = (),
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(detail)
        self.kind = kind
        self._blames = blames
        self._headers = dict(headers or {})

    def response(self) -> Response:
        status, title = self.kind.value
        body: dict[str, Any] = {
            "type": self.kind.type,
            "title": title,
            "status": status,
            "detail": str(self),
        }
        if self._blames:
            body["problems"] = [asdict(blame) for blame in self._blames]
        return Response(json.dumps(body), status, self._headers, MEDIA_TYPE)


def not_found(detail: str) -> ProblemError:
    return ProblemError(Kind.NOT_FOUND, detail)


def conflict(detail: str) -> ProblemError:
    return ProblemError(Kind.CONFLICT, detail)


def again_later(kind: Kind, detail: str, seconds: float = 1) -> ProblemError:
    return ProblemError(kind, detail, headers={"Retry-After": str(max(1, round(seconds)))})
