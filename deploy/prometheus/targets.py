"""What Prometheus scrapes: every process of a pipeline, with the labels that say what it is.

    python -m deploy.prometheus.targets pipeline.yaml                            # as in Compose
    python -m deploy.prometheus.targets pipeline.yaml --address '{process}.shop.svc:8080'

It prints a file for `file_sd_configs`. In an address `{process}` is the process's name as a host
has it, `cache-phase-0`, with `-2` before the node from a chain's second table on.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from dovetail.errors import DovetailError
from dovetail.pipeline.load import load_pipeline
from dovetail.topology import CONTROL, Topology

if TYPE_CHECKING:
    from collections.abc import Callable

    from dovetail.pipeline.spec import Pipeline
    from dovetail.topology import Process

ADDRESS = "{process}:8080"


@dataclass(frozen=True, slots=True)
class Target:
    address: str
    labels: dict[str, str] = field(default_factory=dict)

    @property
    def entry(self) -> dict[str, Any]:
        return {"targets": [self.address], "labels": self.labels}


def targets_of(pipeline: Pipeline, address: Callable[[Process], str]) -> list[Target]:
    """Every process with its address and labels, in the order in which the data flows.

    Control speaks of pipelines by itself, so that its target has no pipeline of its own.
    """
    return [Target(address(one), _labels(pipeline, one)) for one in Topology(pipeline).processes]


def host_of(one: Process) -> str:
    return one.name.replace("_", "-").replace(".", "-")


def _labels(pipeline: Pipeline, one: Process) -> dict[str, str]:
    if one.kind == CONTROL:
        return {"service": CONTROL}
    labels = {"pipeline": pipeline.name, "service": one.kind}
    if one.node is not None:
        link = one.service.partition(".")[2] or "1"
        labels |= {"node": str(one.node), "link": link}
    return labels


def main() -> int:
    parser = argparse.ArgumentParser(description="print the targets of a pipeline's processes")
    parser.add_argument("pipeline", type=Path)
    parser.add_argument("--address", default=ADDRESS)
    arguments = parser.parse_args()
    try:
        pipeline = load_pipeline(arguments.pipeline)
    except DovetailError as error:
        print(error, file=sys.stderr)
        return 2
    print(written(pipeline, arguments.address), end="")
    return 0


def written(pipeline: Pipeline, address: str = ADDRESS) -> str:
    """The file for `file_sd_configs`."""
    targets = targets_of(pipeline, lambda one: address.replace("{process}", host_of(one)))
    return yaml.safe_dump([target.entry for target in targets], sort_keys=False)


if __name__ == "__main__":
    sys.exit(main())
