import argparse
import json
from dataclasses import asdict

import pytest

from dovetail.errors import ConfigError
from dovetail.join.cost.command import add_arguments, run
from dovetail.join.cost.factors import TYPICAL
from dovetail.join.cost.popularity import ZipfPopularity
from dovetail.join.cost.sizing import enough_for, memory_for, models, rate_for
from dovetail.join.cost.workload import Workload

LOAD = Workload(ZipfPopularity(1e6, 1.0), 120, 130)
ALL = list(models())


def size(*words):
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    return run(parser.parse_args([str(word) for word in words]))


def test_memory_is_answered_least_first_and_the_impossible_last():
    answers = memory_for(LOAD, TYPICAL, 50_000, ALL)
    plans = [answer.plan for answer in answers if answer.plan]
    assert [plan.memory for plan in plans] == sorted(plan.memory for plan in plans)
    assert answers[-1].algorithm == "inlj"
    assert answers[-1].plan is None
    assert "more nodes" in answers[-1].reason


def test_rate_is_answered_highest_first():
    rates = [answer.plan.rate for answer in rate_for(LOAD, TYPICAL, 16 << 20, ALL)]
    assert rates == sorted(rates, reverse=True)


def test_parts_add_up_to_the_budget_of_those_that_can_use_it():
    for answer in rate_for(LOAD, TYPICAL, 16 << 20, ALL):
        assert answer.plan.memory == pytest.approx(sum(answer.plan.parts.values()))
        if answer.algorithm != "inlj":
            assert answer.plan.memory == pytest.approx(16 << 20, rel=1e-6)


def test_every_answer_has_a_reason():
    assert all(answer.reason for answer in memory_for(LOAD, TYPICAL, 50_000, ALL))


def test_enough_are_those_that_reach_the_rate():
    answers = rate_for(LOAD, TYPICAL, 16 << 20, ALL)
    fast = enough_for(answers, answers[1].plan.rate)
    assert [answer.algorithm for answer in fast] == ["pcsrj", "cachejoin", "ssbj-index"]


def test_the_command_computes_the_memory(capsys):
    assert size("--rate", 20_000, "--rows", 1e6, "--skew", 1.0) == 0
    printed = capsys.readouterr().out
    assert "least memory:" in printed
    assert "R passes every" in printed


def test_the_command_computes_the_rate_without_an_index(capsys):
    assert size("--memory", "64MiB", "--rows", 5e6, "--no-index") == 0
    printed = capsys.readouterr().out
    assert "highest rate: ssbj" in printed
    assert "hybridjoin" not in printed


def test_the_command_says_whether_a_rate_fits_a_memory(capsys):
    mesh = ("--algorithm", "meshjoin", "--memory", "1MiB", "--rate")
    assert size(*mesh, 1000) == 0
    assert "1,000 events/s in 1.00 MiB: meshjoin" in capsys.readouterr().out
    assert size(*mesh, 5e6) == 1
    assert "none of them" in capsys.readouterr().out


def test_the_command_takes_counted_frequencies(tmp_path, capsys):
    counts = tmp_path / "keys.csv"
    counts.write_text("".join(f"{1000 // i},{1 + i % 3}\n" for i in range(1, 900)))
    assert size("--rate", 100_000, "--frequencies", counts, "--algorithm", "ssbj") == 0
    assert "ssbj" in capsys.readouterr().out


def test_the_command_takes_measured_factors(tmp_path, capsys):
    slow = {name: 10 * value for name, value in asdict(TYPICAL).items()}
    factors = tmp_path / "factors.json"
    factors.write_text(json.dumps(slow))
    asked = ("--memory", "16MiB", "--algorithm", "meshjoin")
    assert size(*asked) == 0
    fast = capsys.readouterr().out
    assert size(*asked, "--factors", factors) == 0
    assert capsys.readouterr().out != fast


@pytest.mark.parametrize(
    "words",
    [
        [],
        ["--rate", 1000, "--nodes", 0],
        ["--rate", 1000, "--skew", -1],
        ["--rate", 1000, "--rows", 0.5],
        ["--rate", 1000, "--row-bytes", 0],
        ["--rate", 1000, "--frequencies", "no-such-file"],
        ["--rate", 1000, "--factors", "no-such-file"],
    ],
)
def test_the_command_refuses_what_cannot_be(words):
    with pytest.raises(ConfigError):
        size(*words)


@pytest.mark.parametrize("words", [("--rate", 1e9), ("--rate", 0), ("--memory", "1KiB")])
def test_the_command_fails_where_no_algorithm_has_an_answer(words, capsys):
    assert size(*words, "--algorithm", "ssbj") == 1
    assert "–" in capsys.readouterr().out
