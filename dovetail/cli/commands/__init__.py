"""Every command: what it is for, and the function that says what it takes.

A command's module is imported when the command is asked for, so that `dovetail check` starts
without Kafka, and `dovetail status` without Numba.
"""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import argparse


@dataclass(frozen=True, slots=True)
class Command:
    text: str
    module: str
    function: str

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        module = importlib.import_module(f"{__name__}.{self.module}")
        getattr(module, self.function)(parser)


COMMANDS = {
    # A file, a broker, a database: no control service is needed.
    "up": Command("start everything on this machine, as `make run` does", "up", "add_up"),
    "check": Command("validate a pipeline file", "check", "add_check"),
    "size": Command("how much memory a rate needs, and the reverse", "size", "add_size"),
    "generate": Command("send the benchmark's stream of sales events", "generate", "add_generate"),
    "audit": Command("check the conservation sum", "oracle", "add_audit"),
    "verify": Command("compare a drained pipeline's output with SQL", "oracle", "add_verify"),
    "permissions": Command(
        "what each service may do on Kafka and in PostgreSQL", "permissions", "add_permissions"
    ),
    # What goes on.
    "status": Command("what everything does now, live on a terminal", "status", "add_status"),
    "nodes": Command("the processes, their memory and their lag", "status", "add_nodes"),
    "slots": Command("who owns which slot", "status", "add_slots"),
    "history": Command("figures over time", "status", "add_history"),
    "cache": Command("the keys of the caches, and why they are there", "join", "add_cache"),
    "lookup": Command(
        "where an event of a key would be answered, and from which row", "join", "add_lookup"
    ),
    "algorithm": Command(
        "which algorithm runs and why, with its cost factors", "join", "add_algorithm"
    ),
    # What can be done.
    "pipelines": Command("list, store, change and delete pipelines", "pipelines", "add_pipelines"),
    "set": Command("change settings while it runs", "running", "add_set"),
    "start": Command("let a pipeline go on whose processes are there", "running", "add_start"),
    "pause": Command("take nothing more", "running", "add_pause"),
    "resume": Command("go on", "running", "add_resume"),
    "drain": Command("take nothing new, and finish the rest", "running", "add_drain"),
    "restart": Command("read the source again from an offset or a time", "running", "add_restart"),
    "jobs": Command("long operations: list, follow, cancel", "jobs", "add_jobs"),
    "dead-letters": Command("bad events: list, show, replay", "letters", "add_dead_letters"),
    "parked": Command(
        "events whose key has too many rows: list, show, replay", "letters", "add_parked"
    ),
    "spark": Command("run jobs on Spark, and see their runs", "spark", "add_spark"),
    "plans": Command("cache plans, and why a key is in one", "spark", "add_plans"),
    # Who may, and who did.
    "me": Command("who I am to the control service", "access", "add_me"),
    "tokens": Command("list, make, rotate and revoke tokens", "access", "add_tokens"),
    "changes": Command("who changed what, and why", "access", "add_changes"),
    "completion": Command(
        "print a script that completes commands in a shell", "completion", "add_completion"
    ),
}
