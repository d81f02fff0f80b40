"""Dead letters and parked events: list, inspect, replay after a fix."""

from __future__ import annotations

import base64
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

from fastapi import APIRouter, Query

from services.access.roles import Role, needs
from services.control.hub import shown_job
from services.control.letters import DEAD_LETTERS, KINDS, Filter, LetterBox, Sender
from services.control.routes.common import Asker, require_confirmed
from services.control.shapes import (
    JobShape,
    Letters,
    Moment,
    Most,
    Number,
    PipelineName,
    Replay,
    ReplayMany,
    Sent,
    Whole,
    WholeLetter,
    Word,
)
from services.control.store.replays import Replays
from services.problem import Kind, ProblemError, not_found

if TYPE_CHECKING:
    from collections.abc import Iterator

    from services.control.hub import Hub
    from services.control.jobs import Progress
    from services.control.letters import Entry, Letter
    from services.control.store.replays import ReplayRow


def letter_routes(hub: Hub) -> list[APIRouter]:
    replays = Replays(hub.engine, hub.name)
    sender = Sender(hub.settings, hub.topology, replays)
    topics = dict(zip(KINDS, (hub.topology.dead_letter, hub.topology.parked), strict=True))
    return [
        _routes_of(kind, hub, LetterBox(hub.settings, topics[kind]), sender, replays)
        for kind in KINDS
    ]


def _routes_of(kind: str, hub: Hub, box: LetterBox, sender: Sender, replays: Replays) -> APIRouter:
    app = APIRouter(prefix=f"/v1/pipelines/{{name}}/{kind}", tags=["letters"])
    called = kind.replace("-", "_")

    @app.get("", response_model=Letters, operation_id=f"list_{called}")
    @needs(Role.INSPECT)
    def list_letters(
        name: PipelineName,
        reason: Word | None = None,
        origin: Word | None = None,
        since: Moment | None = None,
        until: Moment | None = None,
        before: Annotated[Whole | None, Query(ge=0, le=2**63 - 1)] = None,
        most: Most = 50,
    ) -> dict[str, Any]:
        """Show letters, the newest first."""
        hub.require_here(name)
        found, following = box.page(Filter(reason, origin, since, until), most, before)
        told = replays.of(letter.origin for letter in found)
        audit = hub.monitor.last_audit
        total = 0
        if audit is not None:
            total = audit.dead_lettered if kind == DEAD_LETTERS else audit.parked
        return {
            "letters": [_shown(letter, told.get(letter.origin)) for letter in found],
            "next": following,
            "total": total,
        }

    @app.get("/{number}", response_model=WholeLetter, operation_id=f"show_{called}")
    @needs(Role.INSPECT)
    def show_letter(name: PipelineName, number: Number) -> dict[str, Any]:
        """Show one letter with its bytes."""
        hub.require_here(name)
        letter = _find(box, number)
        value = letter.value or b""
        return {
            **_shown(letter, replays.of([letter.origin]).get(letter.origin)),
            "text": _text(value),
            "base64": base64.b64encode(value).decode(),
        }

    @app.post("/{number}/replay", response_model=Sent, operation_id=f"replay_{called}")
    @needs(Role.OPERATE)
    def replay(name: PipelineName, number: Number, order: Replay, who: Asker) -> dict[str, Any]:
        """Send a letter's original bytes back to the source, as a new event; once for an origin."""
        hub.require_here(name)
        letter = _find(box, number)
        to = sender.send(kind, letter, who.name, force=order.force)
        if to is None:
            raise ProblemError(
                Kind.ALREADY_REPLAYED,
                f'{letter.origin} was replayed before: send "force": true to repeat it',
            )
        hub.changes.note(
            who, "letter.replay", name, why=order.why, letters=kind, origin=letter.origin, to=to
        )
        return {"id": letter.id, "origin": letter.origin, "to": to}

    @app.post(
        "/replay",
        status_code=202,
        response_model=JobShape,
        operation_id=f"replay_many_{called}",
    )
    @needs(Role.OPERATE)
    def replay_many(name: PipelineName, order: ReplayMany, who: Asker) -> dict[str, Any]:
        """Replay all letters that a filter takes, but those that were replayed before."""
        hub.require_here(name)
        require_confirmed(order.confirm, "every letter that is meant becomes a new event")

        def work(progress: Progress) -> dict[str, int]:
            counts = {"replayed": 0, "skipped": 0}
            for letter in _meant(box, order):
                to = sender.send(kind, letter, who.name)
                counts["skipped" if to is None else "replayed"] += 1
                progress.tell(f"{counts['replayed']:,} replayed, {counts['skipped']:,} skipped")
            return counts

        job = hub.jobs.start(name, "replay", who.name, order.why, work)
        hub.changes.note(
            who,
            "letters.replay",
            name,
            letters=kind,
            **order.model_dump(mode="json", exclude={"confirm"}),
        )
        return shown_job(job)

    return app


def _meant(box: LetterBox, order: ReplayMany) -> Iterator[Letter]:
    wanted = Filter(order.reason, order.origin, order.since, order.until)
    if order.ids is None:
        yield from box.all(wanted)
        return
    for number in order.ids:
        letter = box.find(number)
        if letter is not None and wanted.takes(letter):
            yield letter


def _find(box: LetterBox, number: int) -> Letter:
    letter = box.find(number)
    if letter is None:
        raise not_found(f"there is no letter {number} on {box.topic.name}, or no longer")
    return letter


def _shown(letter: Entry, replayed: ReplayRow | None) -> dict[str, Any]:
    return {
        "id": letter.id,
        "at": letter.at,
        "origin": letter.origin,
        "reason": letter.reason,
        "detail": letter.detail,
        "bytes": letter.size,
        "preview": letter.preview.decode(errors="replace"),
        "replayed": None if replayed is None else asdict(replayed),
    }


def _text(value: bytes) -> str | None:
    try:
        return value.decode()
    except UnicodeDecodeError:
        return None
