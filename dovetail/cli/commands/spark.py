"""`dovetail spark` and `dovetail plans`: jobs on Spark, their runs, and what they plan.

`dovetail spark snapshot` runs the job in this process; `dovetail spark start snapshot` has the
control service run it where that is.
"""

from __future__ import annotations

import sys
from argparse import REMAINDER
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from dovetail.cli import exits
from dovetail.cli.client import connect
from dovetail.cli.following import conclude
from dovetail.cli.output import (
    Figure,
    Output,
    count,
    fields,
    moment,
    plain,
    seconds,
    share,
    size,
    state,
    table,
)
from dovetail.cli.parsing import (
    add_action,
    add_actions,
    add_change,
    add_connection,
    add_most,
    add_no_wait,
    add_pipeline,
    changed,
)
from dovetail.errors import ConfigError
from services.spark.jobs import JOBS

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator, Sequence

    from rich.console import RenderableType

_JARS = "jars"
_VERDICTS = ("chosen", "budget", "inequality", "too-large")


def run_here(words: Sequence[str]) -> int | None:
    """Run a job in this process; its own parser reads the words. None if they name no job."""
    if not words or words[0] not in {*JOBS, _JARS}:
        return None
    try:
        from services.spark.__main__ import main
    except ModuleNotFoundError as error:
        if error.name not in {"pyspark", "py4j"}:
            raise
        print("dovetail: Spark is not installed: pip install 'dovetail[spark]'", file=sys.stderr)
        return exits.NO
    return main(words)


def add_spark(parser: argparse.ArgumentParser) -> None:
    add_connection(parser)
    parser.set_defaults(run=_jobs)
    actions = add_actions(parser)
    for name, job in JOBS.items():
        # Their options are their own: `run_here` takes them before they are looked at here.
        here = actions.add_parser(name, help=f"here: {job.text}", add_help=False)
        here.set_defaults(run=_misplaced)
    jars = actions.add_parser(_JARS, help="print what spark-submit needs as --jars", add_help=False)
    jars.set_defaults(run=_misplaced)
    runs = add_action(actions, "runs", "the latest runs, or one of them", _runs)
    runs.add_argument("id", type=int, nargs="?")
    start = add_action(actions, "start", "have the control service run a job", _start)
    start.add_argument("job", choices=tuple(JOBS))
    start.add_argument("argument", nargs=REMAINDER, help="the job's own: --hour next")
    add_change(start)
    add_no_wait(start)


def add_plans(parser: argparse.ArgumentParser) -> None:
    add_connection(parser)
    add_pipeline(parser)
    add_most(parser, 20)
    parser.set_defaults(run=_plans)
    actions = add_actions(parser)
    show = add_action(actions, "show", "one, and its first keys", _plan, pipeline=True)
    _add_version(show)
    keys = add_action(actions, "keys", "its keys, the most worthwhile first", _keys, pipeline=True)
    _add_version(keys)
    keys.add_argument("--verdict", choices=_VERDICTS, help="only these")
    add_most(keys, 20, nested=True)
    key = add_action(actions, "key", "why a key is in it, or is not", _key, pipeline=True)
    key.add_argument("key", help="the parts of a composite one are set off by |")
    _add_version(key)


def _add_version(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("version", nargs="?", default="latest", help="a number (latest)")


def _misplaced(arguments: argparse.Namespace) -> int:
    raise ConfigError(f"write `dovetail spark {arguments.action}` first, and its options after it")


def _jobs(arguments: argparse.Namespace) -> int:
    Output.of(arguments).show(connect(arguments).get("/v1/spark/jobs"), _jobs_shown)
    return exits.FINE


def _jobs_shown(jobs: list[dict[str, Any]]) -> Iterator[RenderableType]:
    rows = (
        (
            job["job"],
            state(job["last"]["state"]) if job["last"] else "never ran",
            moment(job["last"]["started_at"]) if job["last"] else "",
            job["can_start"] or f"no: {job['reason']}",
            job["text"],
        )
        for job in jobs
    )
    yield table(("job", "last run", "began (UTC)", "can start", ""), rows, "there is no job")


def _runs(arguments: argparse.Namespace) -> int:
    client, output = connect(arguments), Output.of(arguments)
    if arguments.id is None:
        output.show(client.get("/v1/spark/runs"), _runs_shown)
    else:
        output.show(client.get(f"/v1/spark/runs/{arguments.id}"), _run_shown)
    return exits.FINE


def _runs_shown(runs: list[dict[str, Any]]) -> Iterator[RenderableType]:
    rows = (
        (
            count(run["id"]),
            run["job"],
            state(run["state"]),
            moment(run["started_at"]),
            seconds(run["seconds"]),
            run["error"] or _figures(run["figures"]),
        )
        for run in runs
    )
    yield table(("run", "job", "state", "began (UTC)", "took", "figures"), rows, "nothing ran yet")


def _figures(figures: dict[str, Any]) -> str:
    return ", ".join(f"{name} {_figure(value)}" for name, value in figures.items())


def _figure(value: float | str) -> str:
    return value if isinstance(value, str) else f"{value:,.6g}" if value % 1 else f"{value:,.0f}"


def _run_shown(run: dict[str, Any]) -> Iterator[RenderableType]:
    yield fields(
        {
            "run": f"{run['id']}: {run['job']}",
            "state": state(run["state"]),
            "process": run["process"],
            "began": moment(run["started_at"]),
            "ended": moment(run["ended_at"]),
            "took": seconds(run["seconds"]),
            "error": run["error"],
        }
    )
    figures = ((name, Figure(_figure(value))) for name, value in run["figures"].items())
    yield table(("figure", ""), figures, "no figures yet")


def _start(arguments: argparse.Namespace) -> int:
    client = connect(arguments)
    body = changed(arguments, arguments=arguments.argument)
    job = client.post(f"/v1/spark/jobs/{quote(arguments.job)}/start", body)
    return conclude(job, arguments, client, Output.of(arguments))


def _plans(arguments: argparse.Namespace) -> int:
    client = connect(arguments)
    path = f"{client.pipeline(arguments.pipeline)}/plans"
    Output.of(arguments).show(client.get(path, most=arguments.most), _plans_shown)
    return exits.FINE


def _plans_shown(plans: list[dict[str, Any]]) -> Iterator[RenderableType]:
    rows = (
        (
            count(plan["version"]),
            moment(plan["made_at"]),
            moment(plan["sent_at"]),
            count(plan["keys"]["chosen"]),
            size(plan["bytes"]),
            share(plan["expected_hit_rate"]),
            "all" if plan["hour"] is None else f"hour {plan['hour']} of the week",
        )
        for plan in plans
    )
    headings = ("plan", "made (UTC)", "sent (UTC)", "keys", "bytes", "hits expected", "for")
    yield table(headings, rows, "there is no plan: `dovetail spark frequency` makes one")


def _plan(arguments: argparse.Namespace) -> int:
    client = connect(arguments)
    path = f"{client.pipeline(arguments.pipeline)}/plans/{quote(arguments.version, safe='')}"
    Output.of(arguments).show(client.get(path), _plan_shown)
    return exits.FINE


def _plan_shown(plan: dict[str, Any]) -> Iterator[RenderableType]:
    yield fields({name: value for name, value in plan.items() if name != "first_keys"})
    yield plain("")
    yield from _keys_shown(plan["first_keys"])


def _keys(arguments: argparse.Namespace) -> int:
    client = connect(arguments)
    version = quote(arguments.version, safe="")
    answer = client.get(
        f"{client.pipeline(arguments.pipeline)}/plans/{version}/keys",
        verdict=arguments.verdict,
        most=arguments.most,
    )
    Output.of(arguments).show(answer, _keys_shown)
    return exits.FINE


def _keys_shown(keys: list[dict[str, Any]]) -> Iterator[RenderableType]:
    rows = (
        (
            key["key"],
            count(key["slot"]),
            Figure(f"{key['events']:,.1f}"),
            count(key["rows"]),
            size(key["bytes"]),
            key["verdict"],
            key["reason"],
        )
        for key in keys
    )
    headings = ("key", "slot", "events", "rows", "bytes", "verdict", "reason")
    yield table(headings, rows, "no such key is listed")


def _key(arguments: argparse.Namespace) -> int:
    client = connect(arguments)
    version, key = quote(arguments.version, safe=""), quote(arguments.key, safe="")
    path = f"{client.pipeline(arguments.pipeline)}/plans/{version}/keys/{key}"
    answer = client.get(path)
    Output.of(arguments).show(answer, lambda _: _keys_shown([answer]))
    return exits.FINE
