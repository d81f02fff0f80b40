"""A pipeline's R as the current version of its snapshot, taken over while everything runs.

    version 7 ──► Pages 0…b ──► … ──► last page ──► renew: 8 is current ──► Pages 0…b of version 8

A cycle of pages is read from one version. `renew` looks which one is current and says what the
engine has to be told: if it is another one, every pending key starts over, so that each has seen
one state of R, whole. A partition or the rows of keys come whole from the version that is current
by then. A version that is read is held: nobody removes it.

A new version that does not fit the pipeline, or is damaged, is not taken over: the one before goes
on being read, and the log says why.
"""

from __future__ import annotations

import logging
import time
from dataclasses import replace
from typing import TYPE_CHECKING

from dovetail.errors import MasterDataError, TooManyRowsError, Unavailable
from dovetail.join.exchange import Pages
from dovetail.join.phase import Relation
from dovetail.master.snapshot import manifest
from dovetail.master.snapshot.slots import SlotsRelation
from dovetail.master.snapshot.versions import Content, Hold

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from dovetail.join.exchange import Read, Request
    from dovetail.master.snapshot.versions import Versions
    from dovetail.pipeline.spec import Pipeline

log = logging.getLogger(__name__)


class CurrentSnapshot:
    """Reads the pipeline's slots in the current version; for one engine at a time."""

    def __init__(
        self,
        versions: Versions,
        pipeline: Pipeline,
        command: str,
        *,
        is_cached: Callable[[int], bool] = lambda _size: False,
    ) -> None:
        """`command` is what writes a snapshot: whoever misses one is told it.

        `is_cached` says of a version of so many bytes whether it is read through the page cache.
        """
        self._versions = versions
        self._content = Content.of(pipeline)
        self._cure = f"run `{command}`"
        self._is_cached = is_cached
        self._slots: frozenset[int] | None = None
        self._opened: frozenset[int] | None = None
        """The slots of `_relation`."""
        self._hold: Hold | None = None
        self._relation: SlotsRelation | None = None
        self._refused: int | None = None
        self._trouble = ""
        self._told: tuple[int, frozenset[int] | None] | None = None

    @property
    def facts(self) -> Relation:
        """What the engine has to know of R; a guess while there is no version yet."""
        self._take_over()
        if self._relation is None:
            return Relation()
        facts = self._relation.facts
        return replace(facts, unique=True) if self._content.columns is None else facts

    @property
    def queries(self) -> int:
        """None: files are read."""
        return 0

    @property
    def version(self) -> int | None:
        """The version that is read now."""
        return None if self._hold is None else self._hold.version.version

    def waiting_for(self) -> str:
        """Why nothing can be read; empty when it can. Any thread may ask."""
        if self._hold is not None and self._slots == self._opened:
            return ""
        try:
            with self._current() as hold:
                for folder in self._folders(hold).values():
                    manifest.load(folder)
                return ""
        except (MasterDataError, OSError) as error:
            return self._with_cure(error)

    def now(self) -> float:
        """A version counts as what R is for as long as it is the current one."""
        return time.time()

    def keep(self, slots: frozenset[int] | None) -> None:
        """Read these slots alone, from the next `renew` on; None = all."""
        self._slots = slots

    def renew(self) -> Relation | None:
        """Begin a cycle: new facts if version or slots are others than in the last, else None."""
        facts = self.facts
        told = self._require(), self._slots
        if told == self._told:
            return None
        self._told = told
        return facts

    def rest(self) -> None:
        """End the cycle: no memory is held; the version still is."""
        if self._relation is not None:
            self._relation.forget()

    def read(self, request: Request, most: int) -> Read:
        """Read of the version of the cycle, or of the current one where there is none."""
        if isinstance(request, Pages):
            assert self._told == (self.version, self._slots), "renew() comes before a cycle"
        else:
            self._take_over()
            self._require()
        assert self._relation is not None
        try:
            return self._relation.read(request, most)
        except TooManyRowsError:
            raise
        except MasterDataError as error:  # lost or cut while it is read: another one is waited for
            raise Unavailable(self._with_cure(error)) from error

    def close(self) -> None:
        if self._relation is not None:
            self._relation.close()
        if self._hold is not None:
            self._hold.close()
        self._relation = self._hold = None

    def _require(self) -> int:
        if self._hold is None or self._slots != self._opened:
            raise Unavailable(self._trouble)
        return self._hold.version.version

    def _take_over(self) -> None:
        """Go over to the current version, if it is another one and can be read."""
        number = None
        try:
            number = self._versions.current()
            known = (self.version,) if self._hold is None else (self.version, self._refused)
            lost = self._hold is not None and not self._hold.is_there
            if number is None or number not in known or lost:
                self._change(self._current())
            elif self._slots != self._opened and self._hold is not None:
                self._relation = self._replaced(self._open(self._hold))
        except (MasterDataError, OSError) as error:
            self._refused = number
            self._tell(self._with_cure(error))

    def _current(self) -> Hold:
        """Hold the current version, if it is what the pipeline wants."""
        number = self._versions.current()
        if number is None:
            raise MasterDataError(f"there is no snapshot in {self._versions.folder} yet")
        hold = Hold(self._versions.path(number))
        if hold.version.content == self._content:
            return hold
        hold.close()
        raise MasterDataError(
            f"{hold.folder} was written for {_shown(hold.version.content)}, and the pipeline "
            f"wants {_shown(self._content)}"
        )

    def _change(self, hold: Hold) -> None:
        try:
            relation = self._open(hold)
        except BaseException:
            hold.close()
            raise
        self._relation = self._replaced(relation)
        if self._hold is not None:
            self._hold.close()
        self._hold, self._refused, self._trouble = hold, None, ""
        self._told = None  # another one may have the number of one that was lost
        log.info(
            "snapshot taken over",
            extra={"version": hold.version.version, "rows": hold.version.rows},
        )

    def _open(self, hold: Hold) -> SlotsRelation:
        size = sum(slot.size for slot in hold.version.slots)
        return SlotsRelation(
            self._folders(hold),
            self._content.slots,
            self._content.key_type,
            direct=not self._is_cached(size),
        )

    def _folders(self, hold: Hold) -> dict[int, Path]:
        slots = range(self._content.slots) if self._slots is None else self._slots
        return {slot: hold.slot(slot) for slot in slots}

    def _replaced(self, relation: SlotsRelation) -> SlotsRelation:
        """Close the relation that was read till now."""
        if self._relation is not None:
            self._relation.close()
        self._opened = self._slots
        return relation

    def _with_cure(self, error: Exception) -> str:
        return f"{error}: {self._cure}"

    def _tell(self, trouble: str) -> None:
        if trouble != self._trouble:
            self._trouble = trouble
            log.warning("no new snapshot", extra={"reason": trouble, "reads": self.version})


def _shown(content: Content) -> str:
    columns = "the keys alone" if content.columns is None else ", ".join(content.columns)
    return f"{columns} of {content.table} by {', '.join(content.key)} in {content.slots} slots"
