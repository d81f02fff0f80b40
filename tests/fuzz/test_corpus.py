"""Every input that a fuzzer found worth keeping, again; `make fuzz` looks for more."""

import random

import pytest

from tests.fuzz.__main__ import CORPUS
from tests.fuzz.mutate import Mutator
from tests.fuzz.targets import TARGETS, WORDS, seeds

_TRIES = 300


@pytest.mark.parametrize("name", TARGETS)
def test_nothing_in_the_corpus_breaks_anything(name):
    kept = [file.read_bytes() for file in sorted((CORPUS / name).iterdir())]
    assert kept
    outcomes = {TARGETS[name](value) for value in [*seeds(name), *kept]}
    assert len(outcomes) > 1, "a target that says the same of all is none"
    mutator = Mutator(random.Random(7), WORDS[name])
    for nth in range(_TRIES):
        TARGETS[name](mutator.mutated(kept[nth % len(kept)], kept[-1 - nth % len(kept)]))
