"""Which revision of the pipeline a service runs by: the one ordered, or its own file.

A revision made by the API goes beyond a certain file, and holds while a service has that one. Who
was given another file since then runs by it: control, which reads the same, makes it a revision.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from dovetail.errors import ConfigError
from dovetail.pipeline.load import parse_pipeline
from dovetail.service.orders import digest_of

if TYPE_CHECKING:
    from pathlib import Path

    from dovetail.contracts.control_pb2 import Command
    from dovetail.pipeline.spec import Pipeline

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Revision:
    file: Path
    digest: bytes
    """Of the file, as it was when the service started."""
    pipeline: Pipeline
    number: int = 0
    """0: as the file says, and nobody has given that a number."""
    refused: str = ""
    """Why another one, which was ordered, is not run by."""

    @classmethod
    def ordered(cls, file: Path, by_file: Pipeline, command: Command | None) -> Revision:
        """What to start by."""
        own = cls(file, digest_of(file), by_file)
        return own if command is None else own.after(command)

    def after(self, command: Command) -> Revision:
        """What a command says to run by; as before, where it says nothing or cannot be obeyed."""
        if not command.revision or command.file_digest != self.digest:
            return self
        try:
            pipeline = parse_pipeline(command.document.encode(), self.file)
        except ConfigError as error:
            return self._refusing(command, str(error))
        if pipeline.name != self.pipeline.name:
            return self._refusing(command, f"it is of the pipeline {pipeline.name}")
        if (pipeline.slots, pipeline.links) != (self.pipeline.slots, self.pipeline.links):
            return self._refusing(command, "its slots and tables are not those that run")
        return Revision(self.file, self.digest, pipeline, command.revision)

    def _refusing(self, command: Command, why: str) -> Revision:
        refused = f"revision {command.revision} is refused: {why}"
        log.error("revision refused", extra={"revision": command.revision, "reason": why})
        return replace(self, refused=refused)
