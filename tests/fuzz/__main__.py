"""`make fuzz`: all random search, for SECONDS a target, with a seed that is printed.

Mutated inputs go into everything that takes bytes from outside. Those with a new outcome join the
corpus in tests/fuzz/corpus, which `make test` plays. One that breaks something is kept there as
well, and printed; the exit code is then 1.

The property tests and the requests to the API draw new cases (`search`): `make test` draws the same
ones every time.
"""

from __future__ import annotations

import argparse
import faulthandler
import hashlib
import logging
import os
import random
import subprocess
import sys
import time
import traceback
from pathlib import Path
from typing import TYPE_CHECKING

from tests.fuzz.mutate import Mutator
from tests.fuzz.search import SEARCHES
from tests.fuzz.targets import TARGETS, WORDS, seeds

if TYPE_CHECKING:
    from collections.abc import Callable

CORPUS = Path(__file__).with_name("corpus")
_MOST_KEPT = 60
"""Inputs of a target that are kept in the repository."""
LAST = Path(".dovetail/fuzz/last")
"""What was tried last: a crash of the whole process leaves it there."""


def main() -> int:
    parser = argparse.ArgumentParser(prog="make fuzz", description=__doc__)
    parser.add_argument("--seconds", type=float, default=30.0, help="a target (%(default)s)")
    parser.add_argument("--seed", type=int, help="of all that is drawn (a random one)")
    parser.add_argument("--target", choices=[*TARGETS, *SEARCHES], action="append")
    asked = parser.parse_args()
    faulthandler.enable()
    logging.disable(logging.CRITICAL)
    LAST.parent.mkdir(parents=True, exist_ok=True)
    seed = random.randrange(1_000_000) if asked.seed is None else asked.seed
    print(f"seed {seed}", flush=True)
    found = [
        search(name, asked.seconds, seed)
        if name in SEARCHES
        else fuzz(name, TARGETS[name], asked.seconds, seed)
        for name in asked.target or (*TARGETS, *SEARCHES)
    ]
    return 1 if any(found) else 0


def search(name: str, seconds: float, seed: int) -> bool:
    """Search with the tests of one name; tell whether one broke."""
    environment = {**os.environ, "PYTHONHASHSEED": str(seed % 2**32)}
    command = [sys.executable, "-m", "tests.fuzz.search", name, str(seconds), str(seed)]
    return subprocess.run(command, env=environment, check=False).returncode != 0


def fuzz(name: str, target: Callable[[bytes], str], seconds: float, seed: int) -> bool:
    """Fuzz one target; tell whether it broke."""
    chance = random.Random(f"{name} {seed}")
    mutator = Mutator(chance, WORDS[name])
    folder = CORPUS / name
    folder.mkdir(parents=True, exist_ok=True)
    known = [*seeds(name), *(file.read_bytes() for file in sorted(folder.iterdir()))]
    outcomes = {target(value) for value in known}
    end = time.monotonic() + seconds
    tries = 0
    while time.monotonic() < end:
        value = mutator.mutated(chance.choice(known), chance.choice(known))
        LAST.write_bytes(value)
        tries += 1
        try:
            outcome = target(value)
        except Exception:  # noqa: BLE001 - that is what is looked for
            traceback.print_exc()
            print(f"{name} broke; the input is {_keep(folder, value, 'broke')}")
            return True
        if outcome not in outcomes:
            outcomes.add(outcome)
            known.append(value)
            if len(value) <= 4096 and sum(1 for _ in folder.iterdir()) < _MOST_KEPT:
                _keep(folder, value, "new")
    print(f"{name:16} {tries:9,} inputs, {len(outcomes):4} outcomes, nothing broke", flush=True)
    return False


def _keep(folder: Path, value: bytes, why: str) -> Path:
    file = folder / f"{why}-{hashlib.sha256(value).hexdigest()[:12]}"
    file.write_bytes(value)
    return file


if __name__ == "__main__":
    sys.exit(main())
