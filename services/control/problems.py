"""Gives every error of the API the one form that services/problem.py has."""

from __future__ import annotations

import logging
import uuid
from typing import TYPE_CHECKING, Any

from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException

from dovetail.errors import DovetailError, Unavailable
from dovetail.pipeline.problem import InvalidPipelineError
from services.problem import Blame, Kind, ProblemError, again_later

if TYPE_CHECKING:
    from fastapi import FastAPI, Request, Response

log = logging.getLogger(__name__)

_KINDS = {kind.status: kind for kind in reversed(Kind)}


def tell_problems(app: FastAPI) -> None:
    handlers: list[tuple[type[Exception], Any]] = [
        (ProblemError, _refused),
        (RequestValidationError, _invalid),
        (InvalidPipelineError, _wrong_pipeline),
        (HTTPException, _by_status),
        (DovetailError, _undone),
        (Exception, _bug),
    ]
    for kind, handler in handlers:
        app.add_exception_handler(kind, handler)


async def _refused(_: Request, error: ProblemError) -> Response:
    return error.response()


async def _invalid(_: Request, error: RequestValidationError) -> Response:
    blames = [
        Blame(".".join(str(part) for part in one["loc"]), str(one["msg"])) for one in error.errors()
    ]
    told = "; ".join(f"{blame.field}: {blame.text}" for blame in blames[:3])
    return ProblemError(Kind.REQUEST_INVALID, told, blames=blames).response()


async def _wrong_pipeline(_: Request, error: InvalidPipelineError) -> Response:
    blames = [Blame(fault.field, fault.text, fault.line) for fault in error.faults]
    count = f"{len(blames)} problems" if len(blames) > 1 else "a problem"
    detail = f"{count}; `problems` names line, field and cure"
    return ProblemError(Kind.PIPELINE_INVALID, detail, blames=blames).response()


async def _by_status(_: Request, error: HTTPException) -> Response:
    kind = _KINDS.get(error.status_code, Kind.REQUEST_INVALID)
    detail = str(error.detail)
    if detail == "Not Found":
        detail = "there is no such path; /openapi.json lists all that there are"
    elif kind is Kind.METHOD_NOT_ALLOWED:
        detail = "the path is there, but not with this method; `Allow` names those that are"
    return ProblemError(kind, detail, headers=error.headers).response()


async def _undone(_: Request, error: DovetailError) -> Response:
    if isinstance(error, Unavailable):
        return again_later(Kind.UNAVAILABLE, str(error), 2).response()
    return ProblemError(Kind.CONFLICT, str(error)).response()


async def _bug(_: Request, error: Exception) -> Response:
    number = uuid.uuid4().hex[:12]
    log.error("a bug", exc_info=error, extra={"id": number})
    return ProblemError(
        Kind.INTERNAL, f"the log of control has it under {number}; please report it"
    ).response()
