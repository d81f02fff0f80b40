"""Who am I; tokens; who changed what."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from fastapi import APIRouter

from services.access.roles import Role, needs
from services.control.routes.common import Asker
from services.control.shapes import (
    Change,
    GivenToken,
    Me,
    Moment,
    Most,
    NewToken,
    Number,
    Rotation,
    Token,
    Word,
)

if TYPE_CHECKING:
    from services.control.hub import Hub


def access_routes(hub: Hub) -> APIRouter:
    app = APIRouter(tags=["access"])

    @app.get("/v1/me", response_model=Me)
    def show_me(who: Asker) -> dict[str, Any]:
        """Say whom a token belongs to, and what it may."""
        return {"name": who.name, "role": who.role, "local": who.local}

    @app.get("/v1/tokens", response_model=list[Token])
    @needs(Role.ADMIN)
    def list_tokens() -> list[dict[str, Any]]:
        return [asdict(row) for row in hub.tokens.all()]

    @app.post("/v1/tokens", status_code=201, response_model=GivenToken)
    @needs(Role.ADMIN)
    def create_token(new: NewToken, who: Asker) -> dict[str, Any]:
        """Make a token; it is shown this once."""
        row, token = hub.tokens.create(new.name, new.role, who.name, new.expires_in_s)
        hub.changes.note(who, "token.create", token=row.id, name=row.name, role=row.role)
        return {**asdict(row), "token": token}

    @app.post("/v1/tokens/{number}/rotate", response_model=GivenToken)
    @needs(Role.ADMIN)
    def rotate_token(number: Number, rotation: Rotation, who: Asker) -> dict[str, Any]:
        """Give a token another value; the one before holds for a while, if wanted."""
        row, token = hub.tokens.rotate(number, rotation.keep_old_for_s)
        hub.changes.note(who, "token.rotate", token=row.id, name=row.name)
        return {**asdict(row), "token": token}

    @app.delete("/v1/tokens/{number}", status_code=204)
    @needs(Role.ADMIN)
    def revoke_token(number: Number, who: Asker) -> None:
        hub.tokens.revoke(number)
        hub.changes.note(who, "token.revoke", token=number)

    @app.get("/v1/changes", response_model=list[Change])
    def list_changes(
        by: Word | None = None,
        action: Word | None = None,
        pipeline: Word | None = None,
        since: Moment | None = None,
        most: Most = 100,
    ) -> list[dict[str, Any]]:
        """Show who changed what, the latest first."""
        rows = hub.changes.last(most, by=by, action=action, pipeline=pipeline, since=since)
        return [asdict(row) for row in rows]

    return app
