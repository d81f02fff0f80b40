"""`dovetail pipelines`: what is stored, and its revisions."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from dovetail.cli import exits
from dovetail.cli.client import connect
from dovetail.cli.following import conclude
from dovetail.cli.output import Output, count, fields, moment, plain, state, table
from dovetail.cli.parsing import (
    add_action,
    add_actions,
    add_change,
    add_connection,
    add_most,
    add_no_wait,
    add_yes,
    changed,
    confirm,
)
from dovetail.errors import ConfigError

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator

    from rich.console import RenderableType

    from dovetail.cli.client import Client
    from dovetail.cli.parsing import Actions


def add_pipelines(parser: argparse.ArgumentParser) -> None:
    add_connection(parser)
    parser.set_defaults(run=_list)
    actions = add_actions(parser)
    _add_looking(actions)
    _add_changing(actions)


def _add_looking(actions: Actions) -> None:
    show = add_action(actions, "show", "one, with its state and its document", _show)
    _add_name(show)
    show.add_argument("--document", action="store_true", help="only its document, as it is stored")
    revisions = add_action(actions, "revisions", "what was changed, by whom, why", _revisions)
    _add_name(revisions)
    add_most(revisions, 20)
    revision = add_action(actions, "revision", "one revision, with its document", _revision)
    revision.add_argument("revision", type=int)
    _add_name(revision)
    revision.add_argument("--document", action="store_true", help="only its document")
    topology = add_action(actions, "topology", "stages and topics, as the data flows", _topology)
    _add_name(topology)
    validate = add_action(
        actions, "validate", "let the control service check a file, without storing it", _validate
    )
    _add_file(validate)
    validate.add_argument("--no-database", action="store_true", help="do not look at the tables")


def _add_changing(actions: Actions) -> None:
    create = add_action(actions, "create", "store another one", _create)
    _add_file(create)
    add_change(create)
    update = add_action(actions, "update", "store a new revision: a whole document", _update)
    _add_file(update)
    _add_name(update)
    update.add_argument(
        "--from-revision", type=int, metavar="N", help="refuse if another change was made since"
    )
    add_change(update)
    add_no_wait(update)
    delete = add_action(actions, "delete", "delete one that is stopped", _delete)
    delete.add_argument("name")
    delete.add_argument("--topics", action="store_true", help="its topics as well, with all events")
    add_change(delete)
    add_yes(delete)


def _add_name(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", nargs="?", help="(the one that runs there)")


def _add_file(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", help="a pipeline file; - reads stdin")


def _list(arguments: argparse.Namespace) -> int:
    Output.of(arguments).show(connect(arguments).get("/v1/pipelines"), _list_shown)
    return exits.FINE


def _list_shown(pipelines: list[dict[str, Any]]) -> Iterator[RenderableType]:
    rows = (
        (
            one["name"],
            state(one["state"]),
            one["here"],
            count(one["revision"]),
            moment(one["changed_at"]),
        )
        for one in pipelines
    )
    headings = ("pipeline", "state", "here", "revision", "changed (UTC)")
    yield table(headings, rows, "no pipeline is stored")


def _show(arguments: argparse.Namespace) -> int:
    client = connect(arguments)
    return _document(client.get(client.pipeline(arguments.name)), arguments, _pipeline_shown)


def _revision(arguments: argparse.Namespace) -> int:
    client = connect(arguments)
    path = f"{client.pipeline(arguments.name)}/revisions/{arguments.revision}"
    return _document(client.get(path), arguments, _revision_shown)


def _document(answer: dict[str, Any], arguments: argparse.Namespace, render: Any) -> int:
    """Show it, or nothing but its document, byte for byte: for an editor, not for a terminal."""
    if arguments.document and not arguments.json:
        sys.stdout.write(answer["document"])
    else:
        Output.of(arguments).show(answer, render)
    return exits.FINE


def _pipeline_shown(answer: dict[str, Any]) -> Iterator[RenderableType]:
    told: dict[str, object] = {
        "pipeline": answer["name"],
        "state": state(answer["state"]),
        "reason": answer["reason"],
        "here": answer["here"],
        "revision": answer["revision"],
        "changed": f"{moment(answer['changed_at'])} by {answer['changed_by']}",
        "why": answer["why"],
        "applied": ", ".join(f"{name} {number}" for name, number in answer["applied"].items()),
    }
    yield fields({name: value for name, value in told.items() if value != ""})
    yield plain(f"\n{answer['document']}")


def _revision_shown(answer: dict[str, Any]) -> Iterator[RenderableType]:
    yield fields(
        {
            "revision": answer["revision"],
            "at": f"{moment(answer['at'])} by {answer['by']} ({answer['origin']})",
            "why": answer["why"],
            "changes": "\n".join(answer["changes"]),
        }
    )
    yield plain(f"\n{answer['document']}")


def _revisions(arguments: argparse.Namespace) -> int:
    client = connect(arguments)
    path = f"{client.pipeline(arguments.name)}/revisions"
    Output.of(arguments).show(client.get(path, most=arguments.most), _revisions_shown)
    return exits.FINE


def _revisions_shown(revisions: list[dict[str, Any]]) -> Iterator[RenderableType]:
    rows = (
        (
            count(one["revision"]),
            moment(one["at"]),
            one["by"],
            one["origin"],
            "; ".join(one["changes"]),
            one["why"],
        )
        for one in revisions
    )
    yield table(("revision", "at (UTC)", "by", "by way of", "changes", "why"), rows, "none")


def _topology(arguments: argparse.Namespace) -> int:
    client = connect(arguments)
    answer = client.get(f"{client.pipeline(arguments.name)}/topology")
    Output.of(arguments).show(answer, _topology_shown)
    return exits.FINE


def _topology_shown(answer: dict[str, Any]) -> Iterator[RenderableType]:
    stages = (
        (
            one["service"],
            one["link"],
            "every node" if one["per_node"] else "once",
            one["reads"],
            ", ".join(one["writes"]),
        )
        for one in answer["stages"]
    )
    yield table(("stage", "link", "runs", "reads", "writes"), stages, "no stages")
    yield plain("")
    topics = ((one["name"], one["role"], one["partitions"]) for one in answer["topics"])
    yield table(("topic", "role", "partitions"), topics, "no topics")
    yield plain(f"\n{answer['slots']} slots, {answer['nodes']} nodes, {answer['links']} tables")


def _validate(arguments: argparse.Namespace) -> int:
    body = {"document": _read(arguments.file), "database": not arguments.no_database}
    answer = connect(arguments).post("/v1/validate", body)
    Output.of(arguments).show(answer, _validate_shown)
    return exits.FINE


def _validate_shown(answer: dict[str, Any]) -> Iterator[RenderableType]:
    for finding in answer["findings"]:
        yield plain(f"{finding['level']}: {finding['text']}")
    yield plain(answer["summary"])


def _create(arguments: argparse.Namespace) -> int:
    body = changed(arguments, document=_read(arguments.file))
    Output.of(arguments).show(connect(arguments).post("/v1/pipelines", body), _pipeline_shown)
    return exits.FINE


def _update(arguments: argparse.Namespace) -> int:
    client = connect(arguments)
    body = changed(arguments, document=_read(arguments.file), from_revision=arguments.from_revision)
    return revised(client.put(client.pipeline(arguments.name), body), arguments, client)


def revised(answer: dict[str, Any], arguments: argparse.Namespace, client: Client) -> int:
    """Say what a new revision changes, and follow it until every process runs by it."""
    output = Output.of(arguments)
    job = answer.pop("job")
    said = "; ".join(answer["changes"]) or "nothing changes"
    if job is None:
        output.show(
            {**answer, "job": None}, lambda _: [plain(f"revision {answer['revision']}: {said}")]
        )
        return exits.FINE
    if not output.as_json:
        output.print(plain(f"revision {answer['revision']}: {said}"))
    return conclude(job, arguments, client, output, **answer)


def _delete(arguments: argparse.Namespace) -> int:
    also = " and its topics, with all events on them," if arguments.topics else ""
    confirm(arguments, f"pipeline {arguments.name}{also} will be deleted")
    body = changed(arguments, confirm=True, topics=arguments.topics)
    connect(arguments).delete(f"/v1/pipelines/{quote(arguments.name, safe='')}", body)
    Output.of(arguments).show(
        {"deleted": arguments.name}, lambda _: [plain(f"{arguments.name} is deleted")]
    )
    return exits.FINE


def _read(file: str) -> str:
    if file == "-":
        return sys.stdin.read()
    try:
        return Path(file).read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"{file} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise ConfigError(f"{file} is not UTF-8: a pipeline file is") from None
