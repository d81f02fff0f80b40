"""Everything that the API's routes need, made once."""

from __future__ import annotations

import logging
import os
import time
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from dovetail.errors import Unavailable
from dovetail.pipeline.load import load_pipeline
from dovetail.service.orders import digest_of
from dovetail.topology import Topology
from services.access.tokens import Tokens
from services.control import documents
from services.control.commander import Commander
from services.control.jobs import Jobs
from services.control.monitor import GONE, Monitor, Tick
from services.control.operations import Operations
from services.control.places import Places
from services.control.store.changes import Changes
from services.control.store.commands import DRAIN, PAUSE, Commands
from services.control.store.history import EVERY_S, TOTALS, Figures, History
from services.control.store.jobs import RUNNING, JobRows
from services.control.store.pipelines import API, FILE, NewRevision, Pipelines
from services.problem import Kind, ProblemError, conflict, not_found

if TYPE_CHECKING:
    import sqlalchemy as sa

    from dovetail.pipeline.spec import Pipeline
    from dovetail.settings import Settings
    from services.access.roles import Who
    from services.access.settings import AccessSettings
    from services.control.store.jobs import JobRow
    from services.control.store.pipelines import RevisionRow

log = logging.getLogger(__name__)

_REPAIR_EVERY_S = 5.0
_BURY_EVERY_S = 10.0
_FORGET_EVERY_S = 300.0
_ITSELF = "control"
_HELD = ("in", "enriched", "unmatched", "parked", "dead_lettered", "shed", "outputs")
_NOW = ("in_flight", "waiting", "hit_rate")


@dataclass(frozen=True, slots=True)
class State:
    """How a pipeline is."""

    word: str
    reason: str = ""


class Hub:
    def __init__(self, settings: Settings, access: AccessSettings, engine: sa.Engine) -> None:
        self.settings = settings
        self.access = access
        self.engine = engine
        self.file = settings.pipeline.resolve()
        by_file = load_pipeline(self.file)
        self.name = by_file.name
        self.topology = Topology(by_file)
        self.places = Places.from_environment(self.topology, os.environ)
        self.tokens = Tokens(engine)
        self.changes = Changes(engine)
        self.pipelines = Pipelines(engine)
        self.history = History(engine, self.name)
        self.jobs = Jobs(JobRows(engine))
        self.monitor = Monitor(settings, self.topology)
        self.commander = Commander(settings, self.topology, Commands(engine), self.pipelines)
        self.operations = Operations(
            settings, self.topology, self.monitor, self.commander, self.jobs
        )
        self._parsed: tuple[int, Pipeline] | None = None
        self._actions: dict[str, str] = {}
        for tick in (
            Tick(_REPAIR_EVERY_S, lambda: self.commander.repair(self.monitor.members())),
            Tick(_BURY_EVERY_S, self.jobs.rows.bury),
            Tick(EVERY_S, self._keep_figures),
            Tick(_FORGET_EVERY_S, self.history.forget),
        ):
            self.monitor.every(tick)

    def begin(self) -> None:
        """Store the pipeline of the file, where it is new or has changed, and say what holds."""
        if self.access.first_token:
            self.tokens.set_first(self.access.first_token)
        digest = digest_of(self.file)
        document = self.file.read_bytes().decode("utf-8-sig")
        parsed = documents.written(self.topology.pipeline)
        current = self.pipelines.current(self.name)
        if current is None:
            first = NewRevision(document, parsed, [], FILE, _ITSELF, "the pipeline's file")
            self.pipelines.create(self.name, first, digest)
        elif self.pipelines.file_digest(self.name) != digest:
            changes = documents.changes(current.parsed, parsed)
            new = NewRevision(document, parsed, changes, FILE, _ITSELF, "the file has changed")
            self.pipelines.revise(self.name, current.revision, new, digest)
        self.commander.begin(_ITSELF)

    # ── pipelines ────────────────────────────────────────────────────────────────────────

    @property
    def pipeline(self) -> Pipeline:
        """The one whose services run here, by the revision that is in force."""
        current = self.current(self.name)
        if self._parsed is None or self._parsed[0] != current.revision:
            self._parsed = (current.revision, self.stored(current))
        return self._parsed[1]

    def current(self, name: str) -> RevisionRow:
        found = self.pipelines.current(name)
        if found is None:
            known = ", ".join(row.pipeline for row in self.pipelines.all())
            raise not_found(f"there is no pipeline {name!r}; there is {known}")
        return found

    def require_here(self, name: str) -> None:
        if name != self.name:
            self.current(name)
            raise conflict(
                f"the services of {name!r} do not run here, but those of {self.name!r}: start them"
                f" with `make run PIPELINE=<its file>`, or with Helm, and ask their own control"
            )

    def stored(self, row: RevisionRow) -> Pipeline:
        """The pipeline of a revision that was taken; of the one here, as its services read it."""
        environment = os.environ if row.pipeline == self.name else {}
        return documents.parse(row.document, self.file, environment, row.document)

    def revise(
        self, who: Who, name: str, document: str, why: str, from_revision: int | None
    ) -> tuple[int, list[str], JobRow | None]:
        """Put a new revision in force: its number, what it changes, and the job that applies it."""
        current = self.current(name)
        if from_revision not in (None, current.revision):
            raise conflict(
                f"revision {current.revision} is in force, not {from_revision}: somebody has"
                " changed the pipeline meanwhile; look at it, and make your change again"
            )
        environment = os.environ if name == self.name else {}
        new = documents.parse(document, self.file, environment, current.document)
        if new.name != name:
            raise ProblemError(
                Kind.SETTING_FIXED, f"the document is of {new.name!r}; create that one instead"
            )
        written = documents.written(new)
        changes = documents.changes(current.parsed, written)
        if name == self.name:
            documents.require_not_overridden(current.document, document, os.environ)
            # Not what was stored: a release that came before did not know every setting.
            documents.require_free(documents.written(self.stored(current)), written)
        if not changes and document == current.document:
            job = self._catch_up(who, why, current, new) if name == self.name else None
            return current.revision, [], job
        old = self._told_of() if name == self.name else None
        revision = NewRevision(document, written, changes, API, who.name, why)
        number = self.pipelines.revise(name, current.revision, revision)
        if number is None:
            raise conflict("somebody else has changed the pipeline at the same time: look again")
        job = None
        if old is not None:
            job = self._apply(who, why, number, old, new, current)
        self.changes.note(who, "pipeline.update", name, why=why, revision=number, changes=changes)
        return number, changes, job

    def _catch_up(self, who: Who, why: str, current: RevisionRow, new: Pipeline) -> JobRow | None:
        """Begin the job of the revision in force once more, if not all services were told of it.

        The one before may have failed half-way, or never have been begun. One that only took
        another back says the same as that before, and nobody was told.
        """
        number = current.revision
        under_way = self.jobs.rows.last(1, pipeline=self.name, kind="settings", state=RUNNING)
        told = (
            self.pipelines.revision(self.name, one)
            for one in {*self.commander.revisions().values()}
        )
        if under_way or all(row is not None and row.document == current.document for row in told):
            return None
        job = self.operations.settings(who, why, number, self._told_of(), new)
        self.changes.note(who, "pipeline.update", self.name, why=why, revision=number, changes=[])
        return job

    def _told_of(self) -> Pipeline:
        """The one that the services run by; where they differ, as the last of them does."""
        oldest = self.pipelines.revision(self.name, min(self.commander.revisions().values()))
        return self.pipeline if oldest is None else self.stored(oldest)

    def _apply(
        self, who: Who, why: str, number: int, old: Pipeline, new: Pipeline, before: RevisionRow
    ) -> JobRow:
        """Begin the job; if it cannot be, the revision before is in force again."""
        try:
            return self.operations.settings(who, why, number, old, new)
        except ProblemError:
            back = NewRevision(
                before.document, before.parsed, [], API, _ITSELF, f"{number} was not applied"
            )
            self.pipelines.revise(self.name, number, back)
            raise

    # ── how it is ────────────────────────────────────────────────────────────────────────

    def state(self, name: str) -> State:
        if name != self.name:
            return State("stopped", "its services do not run here")
        now = time.monotonic()
        members = self.monitor.members()
        if not any(member.state(now) != GONE for member in members):
            return State("stopped", "no process of it is heard of")
        for member in members:
            state = member.state(now)
            if state in (GONE, "failed"):
                return State("degraded", f"{member.name} is {state}")
        starting = [member for member in members if member.state(now) == "starting"]
        if starting:
            why = starting[0].beat.reason
            return State("starting", f"{starting[0].name}: {why}" if why else starting[0].name)
        at_work = [member.name for member in members if member.state(now) != "paused"]
        return self._ordered(at_work)

    def _ordered(self, at_work: list[str]) -> State:
        """As it was ordered, and obeyed by all but those `at_work`."""
        try:
            self._actions = self.commander.actions()
        except Unavailable:
            # What was last known: figures are shown without the database, too.
            log.warning("what was ordered cannot be looked up", exc_info=True)
        actions = self._actions
        if set(actions.values()) == {DRAIN}:
            audit = self.monitor.last_audit
            in_flight = audit.in_flight if audit else 1
            if in_flight:
                return State("draining", f"{in_flight:,} events are in flight")
            if at_work:  # a fused node counts what it has taken when that is answered
                return State("draining", f"{at_work[0]} answers what it has taken")
            return State("drained")
        paused = [service for service, action in actions.items() if action == PAUSE]
        if not paused:
            return State("running")
        return State("paused", "" if len(paused) == len(actions) else ", ".join(paused))

    def applied(self) -> dict[str, int]:
        return {member.name: member.beat.revision for member in self.monitor.members()}

    def stats(self) -> dict[str, Any]:
        state = self.state(self.name)
        return {**self.monitor.stats(), "state": state.word, "reason": state.reason}

    def _keep_figures(self) -> None:
        stats = self.monitor.stats()
        rows = [
            Figures(one["service"], one["node"], _figures(one))
            for one in stats["services"]
            if one["state"] != GONE
        ]
        seen = stats["totals"]
        if seen is not None:
            held = {name: seen[name] for name in (*_HELD, *_NOW) if seen[name] is not None}
            rates = {f"rate.{name}": rate for name, rate in stats["rates"].items()}
            rows.append(Figures(TOTALS, 0, {**held, **rates}))
        self.history.add(rows)


def _figures(service: dict[str, Any]) -> dict[str, float]:
    rates = {f"rate.{name}": rate for name, rate in service["rates"].items()}
    return {**service["figures"], **rates}


def shown_job(job: JobRow) -> dict[str, Any]:
    shown = asdict(job)
    del shown["cancel"]
    return shown
