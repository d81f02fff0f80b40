"""`dovetail size`: how much memory for this rate, which rate in this memory, by which algorithm."""

from __future__ import annotations

import argparse
import json
import time
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from dovetail.errors import ConfigError
from dovetail.join.cost.factors import NAMES, TYPICAL, Factors
from dovetail.join.cost.footprint import engine_workload
from dovetail.join.cost.popularity import CountedPopularity, Popularity, ZipfPopularity
from dovetail.join.cost.sizing import Sizing, enough_for, memory_for, models, rate_for
from dovetail.pipeline.size import about_size, parse_size

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from dovetail.join.cost.plan import Plan

_HEADINGS = ("algorithm", "events/s", "memory", "cache", "pending", "queue", "disk buffer", "hits")
_ROWS = 1_000_000


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--rate", type=float, help="events a second; left out, the highest is computed")
    add("--memory", type=_size, help="e.g. 64MiB; left out, the least is computed")
    add("--rows", type=float, help=f"master rows ({_ROWS:,}, or those in --frequencies)")
    add("--row-bytes", type=float, default=120, help="a master row (%(default)s)")
    add("--event-bytes", type=float, default=130, help="an event (%(default)s)")
    add("--skew", type=float, default=1.0, help="Zipf exponent of the keys (%(default)s)")
    add("--rows-a-key", type=float, default=1.0, help="master rows a join key (%(default)s)")
    add(
        "--frequencies",
        type=Path,
        help="instead of a skew, a file with a line for each key: its events and, after a comma, "
        "its master rows (1)",
    )
    add("--ordered", action="store_true", help="R lies in the order of popularity")
    add("--unique", action="store_true", help="no join key has a second row")
    add("--no-index", action="store_true", help="only algorithms that need no index on R")
    add("--nodes", type=int, default=2, help="nodes of pcsrj (%(default)s)")
    add("--algorithm", action="append", choices=sorted(models()), help="only this one; repeatable")
    add("--factors", type=Path, help="cost factors as JSON, in seconds, by name")
    add("--measure", action="store_true", help="measure the processor's cost factors first")
    add("--json", action="store_true", help="answer in JSON, for scripts")


def run(args: argparse.Namespace) -> int:
    if args.rate is None and args.memory is None:
        raise ConfigError("name a --rate or a --memory, and the other one is computed")
    if args.nodes < 1:
        raise ConfigError(f"pcsrj needs at least one node, not {args.nodes}")
    workload = engine_workload(
        _popularity(args),
        args.row_bytes,
        args.event_bytes,
        ordered=args.ordered,
        unique=args.unique,
    )
    factors = _factors(args)
    known = models(args.nodes)
    among = args.algorithm or [
        name for name, model in known.items() if not (args.no_index and model.needs_index)
    ]
    if args.memory is None:
        answers = memory_for(workload, factors, args.rate, among, args.nodes)
    else:
        answers = rate_for(workload, factors, args.memory, among, args.nodes)
    if args.json:
        print(json.dumps({"answers": [_document(answer, args.rate) for answer in answers]}))
    else:
        print(table(answers))
        for line in reasons(answers) + verdict(answers, args.rate, args.memory):
            print(line)
    return 0 if _enough(answers, args) else 1


def table(answers: Sequence[Sizing]) -> str:
    """Lay out the answers, the best first."""
    lines = [_HEADINGS, *(_cells(answer.algorithm, answer.plan) for answer in answers)]
    widths = [max(len(line[i]) for line in lines) for i in range(len(_HEADINGS))]
    return "\n".join(
        "  ".join(
            cell.ljust(width) if i == 0 else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(line, widths, strict=True))
        )
        for line in lines
    )


def reasons(answers: Sequence[Sizing]) -> list[str]:
    """Say each answer's reason, once where several share it."""
    names: dict[str, list[str]] = {}
    for answer in answers:
        names.setdefault(answer.reason, []).append(answer.algorithm)
    return [f"{', '.join(shared)}: {reason}" for reason, shared in names.items()]


def verdict(answers: Sequence[Sizing], rate: float | None, memory: float | None) -> list[str]:
    """Name the best, or those that are enough; nothing where there is no answer."""
    if answers[0].plan is None:
        return []
    if memory is None:
        return [f"least memory: {_best(answers, lambda plan: about_size(plan.memory))}"]
    if rate is None:
        return [f"highest rate: {_best(answers, lambda plan: f'{plan.rate:,.0f} events/s')}"]
    fit = ", ".join(answer.algorithm for answer in enough_for(answers, rate))
    return [f"{rate:,.0f} events/s in {about_size(memory)}: {fit or 'none of them'}"]


def _enough(answers: Sequence[Sizing], args: argparse.Namespace) -> bool:
    if args.memory is None or args.rate is None:
        return answers[0].plan is not None
    return bool(enough_for(answers, args.rate))


def _document(answer: Sizing, rate: float | None) -> dict[str, object]:
    plan = answer.plan
    return {
        "algorithm": answer.algorithm,
        "rate": plan and plan.rate,
        "memory": plan and plan.memory,
        "hit_share": plan and plan.hit_share,
        "parts": plan and asdict(plan.parts),
        "reason": answer.reason,
        "enough": plan is not None and (rate is None or plan.rate >= rate),
    }


def _best(answers: Sequence[Sizing], figure: Callable[[Plan], str]) -> str:
    """Name the first answer and all that equal it."""
    figures = [(answer.algorithm, figure(answer.plan)) for answer in answers if answer.plan]
    best = figures[0][1]
    return f"{' or '.join(name for name, reached in figures if reached == best)}, {best}"


def _cells(name: str, plan: Plan | None) -> tuple[str, ...]:
    if plan is None:
        return (name, *("–" for _ in _HEADINGS[1:]))
    parts = plan.parts.values()
    sizes = (about_size(size) for size in (plan.memory, *parts))
    return (name, f"{plan.rate:,.0f}", *sizes, f"{plan.hit_share:.0%}")


def _popularity(args: argparse.Namespace) -> Popularity:
    if args.frequencies is None:
        return ZipfPopularity(args.rows or _ROWS, args.skew, args.rows_a_key)
    try:
        columns = np.loadtxt(args.frequencies, delimiter=",", ndmin=2)
    except (OSError, ValueError) as problem:
        raise ConfigError(f"{args.frequencies} cannot be read as key frequencies: {problem}") from (
            problem
        )
    return CountedPopularity(columns[:, 0], columns[:, 1] if columns.shape[1] > 1 else 1)


def _factors(args: argparse.Namespace) -> Factors:
    if args.measure:
        # Compiles kernels: only where it was asked for.
        from dovetail.join.cost.measure import measure  # noqa: PLC0415

        return measure(time.perf_counter)
    if args.factors is None:
        return TYPICAL
    try:
        read = json.loads(args.factors.read_text())
        return Factors.of(read)
    except (OSError, ValueError, KeyError, TypeError) as problem:
        raise ConfigError(
            f"{args.factors} does not hold cost factors ({problem!r}): it is one JSON object with "
            f"{', '.join(NAMES)}, as bench/cost_factors.py prints last"
        ) from problem


def _size(text: str) -> int:
    try:
        return parse_size(text)
    except ValueError as problem:
        raise argparse.ArgumentTypeError(str(problem)) from problem
