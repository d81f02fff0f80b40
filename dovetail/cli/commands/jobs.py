"""`dovetail jobs`: long operations."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dovetail.cli import exits
from dovetail.cli.client import connect
from dovetail.cli.following import conclude, shown
from dovetail.cli.output import Output, count, moment, share, state, table
from dovetail.cli.parsing import add_action, add_actions, add_connection, add_most, add_pipeline

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator

    from rich.console import RenderableType

_KINDS = ("settings", "pause", "resume", "drain", "start", "restart", "replay", "spark")
_STATES = ("running", "done", "failed", "cancelled")


def add_jobs(parser: argparse.ArgumentParser) -> None:
    add_connection(parser)
    add_pipeline(parser)
    add_most(parser, 20)
    parser.add_argument("--kind", choices=_KINDS, help="only these")
    parser.add_argument("--state", choices=_STATES, help="only these")
    parser.set_defaults(run=_list)
    actions = add_actions(parser)
    for name, text, run in (
        ("show", "one of them", _show),
        ("follow", "wait until it ends", _follow),
        ("cancel", "end a drain, a replay or a Spark job", _cancel),
    ):
        add_action(actions, name, text, run).add_argument("id", type=int)


def _list(arguments: argparse.Namespace) -> int:
    jobs = connect(arguments).get(
        "/v1/jobs",
        pipeline=arguments.pipeline,
        kind=arguments.kind,
        state=arguments.state,
        most=arguments.most,
    )
    Output.of(arguments).show(jobs, _list_shown)
    return exits.FINE


def _list_shown(jobs: list[dict[str, Any]]) -> Iterator[RenderableType]:
    rows = (
        (
            count(job["id"]),
            job["kind"],
            job["pipeline"],
            state(job["state"]),
            share(job["progress"]),
            moment(job["started_at"]),
            job["by"],
            job["error"] or job["text"],
            job["why"],
        )
        for job in jobs
    )
    headings = ("job", "kind", "of", "state", "done", "started (UTC)", "by", "text", "why")
    yield table(headings, rows, "there is no such job")


def _show(arguments: argparse.Namespace) -> int:
    Output.of(arguments).show(connect(arguments).get(f"/v1/jobs/{arguments.id}"), shown)
    return exits.FINE


def _follow(arguments: argparse.Namespace) -> int:
    client = connect(arguments)
    arguments.no_wait = False
    return conclude(client.get(f"/v1/jobs/{arguments.id}"), arguments, client, Output.of(arguments))


def _cancel(arguments: argparse.Namespace) -> int:
    job = connect(arguments).post(f"/v1/jobs/{arguments.id}/cancel", {})
    Output.of(arguments).show(job, shown)
    return exits.FINE
