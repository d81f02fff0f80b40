"""Latency alone, of a layout and of what it is compared with, in one run.

    python -m bench.latency --layout fused --rate 1000 --rate 20000 --seconds 20

Starts a stack of its own as `make bench-e2e` does, runs `auto` in each layout that is named, sends
at each rate, and gives the same rates to the script with its LRU and to the bare transactional
copy. Rates on a busy machine mean little, ratios within a run do; and so do the steps a second
that each process makes: a step is a transaction.
"""

from __future__ import annotations

import argparse
import contextlib
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from prometheus_client.parser import text_string_to_metric_families

from bench.baselines import Baselines
from bench.end_to_end import OF_R, bench_stack, encoded_bytes, interrupt, say
from bench.layouts import LAYOUTS
from bench.measure import Deadline
from bench.trial import Size, metrics_of, trial, variant
from deploy.local.home import CHECKOUT
from dovetail.errors import DovetailError
from dovetail.pipeline.load import load_pipeline
from dovetail.service import declared

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bench.layouts import Layout
    from bench.sustained import Sustained
    from bench.trial import Trial
    from deploy.local.stack import Stack

_LIMIT_S = 1_800.0
_WARM_UP, _ROUNDS = 250_000, 2


class Steps:
    """How many steps each process of a trial has made, and how long they took together."""

    def __init__(self, running: Trial) -> None:
        self._running = running
        self._before = self._now()

    def _now(self) -> dict[str, tuple[float, float]]:
        found = {}
        for name, text in metrics_of(self._running.services):
            samples = {
                sample.name: sample.value
                for family in text_string_to_metric_families(text)
                if family.name == declared.STEP.name
                for sample in family.samples
            }
            if samples:
                made = samples[f"{declared.STEP.name}_count"]
                found[name] = (made, samples[f"{declared.STEP.name}_sum"])
        return found

    def told(self, seconds: float) -> Iterator[str]:
        for name, (made, took) in self._now().items():
            before, took_before = self._before[name]
            steps = max(1.0, made - before)
            each_ms = (took - took_before) / steps * 1000
            yield f"{name} {steps / seconds:.0f} steps/s of {each_ms:.0f} ms"


def measure(
    stack: Stack,
    pipeline_file: Path,
    layouts: list[Layout],
    rates: list[float],
    seconds: float,
    *,
    alone: bool,
) -> dict[str, list[Sustained]]:
    """At each rate, by contender."""
    deadline = Deadline(_LIMIT_S)
    memory = int(OF_R * encoded_bytes(stack.database_url, load_pipeline(pipeline_file)))
    size = Size(0, _WARM_UP, _ROUNDS, 60.0, 0.0, seconds)
    found: dict[str, list[Sustained]] = {}
    for layout in layouts:
        changes = {"algorithm": "auto", "memory": memory, "nodes": 1, **layout.settings}
        file = variant(pipeline_file, stack.home.folder, layout.name, changes)
        with trial(stack, file, size, deadline, say) as running:
            running.warm_up()
            for rate in rates:
                steps = Steps(running)
                running.sustain(rate)
                say("; ".join(steps.told(seconds)))
            running.check()
        found[layout.name] = running.sustained
    if alone:
        return found
    baselines = Baselines(stack, running, deadline, say)
    found["lru"] = [baselines.lru_at(rate, seconds) for rate in rates]
    found["copy"] = [baselines.copy_at(rate, seconds) for rate in rates]
    return found


def table(found: dict[str, list[Sustained]]) -> Iterator[str]:
    yield (
        f"{'':<8}{'events/s':>10}{'p50 ms':>9}{'p99':>8}{'max':>8}{'/lru':>7}{'/copy':>7}"
        f"{'CPU s/M':>9}{'broker':>8}"
    )
    for who, sustained in found.items():
        for number, each in enumerate(sustained):
            ours, p50 = each.latency, each.latency.p50_ms
            over = (
                f"{p50 / found[other][number].latency.p50_ms:.2f}" if other in found else ""
                for other in ("lru", "copy")
            )
            broker = each.cpu_s.get("kafka", 0.0) / each.sent.events * 1e6
            yield (
                f"{who:<8}{each.sent.rate:>10,.0f}{p50:>9,.0f}{ours.p99_ms:>8,.0f}"
                f"{ours.max_ms:>8,.0f}{next(over):>7}{next(over):>7}"
                f"{each.cpu_s_per_million:>9.2f}{broker:>8.2f}"
                f"   others {each.others:.0%} of the machine"
            )


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    known = {layout.name: layout for layout in LAYOUTS}
    parser.add_argument("--layout", action="append", choices=known, help="default: all")
    parser.add_argument("--rate", action="append", type=float, help="default: 1000 and 20000")
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--alone", action="store_true", help="without script and copy")
    parser.add_argument("--pipeline", type=Path, default=CHECKOUT / "pipeline.yaml")
    asked = parser.parse_args()
    layouts = [known[name] for name in asked.layout or known]
    signal.signal(signal.SIGTERM, interrupt)
    try:
        with bench_stack(asked.pipeline) as stack, contextlib.suppress(KeyboardInterrupt):
            rates = asked.rate or [1_000.0, 20_000.0]
            found = measure(stack, asked.pipeline, layouts, rates, asked.seconds, alone=asked.alone)
            print("\n".join(table(found)), flush=True)
    except DovetailError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
