"""`dovetail`: check a pipeline, generate events, audit and verify a pipeline, run a Spark job."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from dovetail.errors import DovetailError


def main() -> int:
    parser = argparse.ArgumentParser(prog="dovetail", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True, metavar="command")
    _add_check(commands)
    _add_generate(commands)
    _add_size(commands)
    _add_pipeline_command(commands, "audit", _audit, "check the conservation sum")
    _add_pipeline_command(
        commands, "verify", _verify, "compare a drained pipeline's output with SQL"
    )
    commands.add_parser("spark", help="run a job on Spark", add_help=False)
    arguments, others = parser.parse_known_args()
    if arguments.command == "spark":
        return _spark(others)
    if others:
        parser.error(f"unrecognized arguments: {' '.join(others)}")
    try:
        return int(arguments.run(arguments))
    except DovetailError as error:
        print(f"dovetail: {error}", file=sys.stderr)
        return 1


# Each command imports what it needs when it runs: `dovetail check` starts without Kafka.


def _add_check(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser("check", help="validate a pipeline file")
    parser.add_argument("pipeline", type=Path)
    parser.add_argument("--database", help="also check the master table there (DATABASE_URL)")
    parser.set_defaults(run=_check)


def _check(arguments: argparse.Namespace) -> int:
    from dovetail.pipeline.check import check_command

    database = arguments.database or os.environ.get("DATABASE_URL")
    return check_command(arguments.pipeline, database, sys.stdout)


def _add_generate(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    from dovetail.demo import generate

    parser = commands.add_parser("generate", help="send the benchmark's stream of sales events")
    generate.add_arguments(parser)
    parser.set_defaults(run=_generate)


def _generate(arguments: argparse.Namespace) -> int:
    from dovetail.demo import generate
    from dovetail.settings import Settings

    settings = Settings.from_environment({"DATABASE_URL": "unused", **os.environ})
    return generate.run(arguments, settings.client())


def _add_size(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    from dovetail.join.cost import command

    parser = commands.add_parser("size", help="how much memory a rate needs, and the reverse")
    command.add_arguments(parser)
    parser.set_defaults(run=command.run)


def _add_pipeline_command(
    commands: argparse._SubParsersAction[argparse.ArgumentParser],
    name: str,
    run: object,
    text: str,
) -> None:
    parser = commands.add_parser(name, help=text)
    parser.add_argument("pipeline", type=Path, nargs="?", default=Path("pipeline.yaml"))
    parser.set_defaults(run=run)


def _audit(arguments: argparse.Namespace) -> int:
    from dovetail.audit import Auditor
    from dovetail.pipeline.load import load_pipeline
    from dovetail.settings import Settings
    from dovetail.topology import Topology

    settings = Settings.from_environment({"DATABASE_URL": "unused", **os.environ})
    seen = Auditor(settings, Topology(load_pipeline(arguments.pipeline))).audit()
    print(seen.equation())
    print(f"waiting to be taken: {seen.waiting:,}")
    for problem in seen.problems:
        print(f"off: {problem}")
    return 1 if seen.off else 0


def _verify(arguments: argparse.Namespace) -> int:
    from dovetail.pipeline.load import load_pipeline
    from dovetail.settings import Settings
    from dovetail.topology import Topology
    from dovetail.verify import verify

    pipeline = load_pipeline(arguments.pipeline)
    verdict = verify(Settings.from_environment(), pipeline, Topology(pipeline), print)
    print(f"{verdict.events:,} events, {verdict.expected:,} outputs expected")
    print(f"{verdict.outputs:,} outputs found")
    if verdict.shed:
        print(f"{verdict.shed:,} events shed, of which no output is expected")
    for difference in verdict.differences:
        print(f"off: {difference}")
    return 0 if verdict.equal else 1


def _spark(arguments: list[str]) -> int:
    """The job's own parser reads its arguments: `dovetail spark --help` lists the jobs."""
    try:
        from services.spark.__main__ import main
    except ModuleNotFoundError as error:
        if error.name not in {"pyspark", "py4j"}:
            raise
        print("dovetail: Spark is not installed: pip install 'dovetail[spark]'", file=sys.stderr)
        return 1
    return main(arguments)


if __name__ == "__main__":
    sys.exit(main())
