"""From the words on the command line to the exit code; what asks the API is in tests/e2e."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from dovetail.cli import main
from dovetail.cli.parsing import duration
from dovetail.cli.parsing import moment as time_given
from tests.unit.cli_kit import INTERRUPTIBLE, Answer, problem, served

if TYPE_CHECKING:
    from tests.unit.cli_kit import Script

PIPELINE = Path(__file__).parents[2] / "pipeline.yaml"
HERE = {"GET /v1/pipelines": Answer([{"name": "sales", "here": True}])}
JOB = {
    "id": 17,
    "kind": "pause",
    "pipeline": "sales",
    "state": "running",
    "by": "ops",
    "why": "",
    "started_at": "2026-01-31T09:00:00Z",
    "ended_at": None,
    "progress": 0.5,
    "text": "waiting for disk_phase-1",
    "result": None,
    "error": None,
}
DONE = {**JOB, "state": "done", "progress": 1.0, "ended_at": "2026-01-31T09:00:01Z"}


@pytest.fixture(autouse=True)
def _alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """No variable of the developer's shell counts."""
    for name in ("URL", "TOKEN", "TOKEN_FILE", "MEMORY", "NODES", "SLOTS", "ALGORITHM", "ENGINE"):
        monkeypatch.delenv(f"DOVETAIL_{name}", raising=False)
    for name in ("KAFKA_BOOTSTRAP", "DATABASE_URL"):
        monkeypatch.delenv(name, raising=False)


def run(script: Script, *words: str) -> int:
    return main([*words, "--url", script.url])


# --- usage


@pytest.mark.parametrize(
    "words",
    [
        [],
        ["no-such-command"],
        ["status", "--no-such-option"],
        ["status", "--onc"],
        ["jobs", "show"],
        ["jobs", "show", "x"],
        ["restart"],
        ["restart", "--beginning", "--time", "1h"],
        ["restart", "--time", "yesterday"],
        ["restart", "--offset", "0:5"],
        ["set"],
        ["set", "memory"],
        ["set", "nodes=3"],
        ["set", "order={within"],
        ["tokens", "create", "x", "root"],
        ["completion", "tcsh"],
    ],
)
def test_wrong_usage_is_2(words, capsys):
    with pytest.raises(SystemExit) as caught:
        main(words)
    assert caught.value.code == 2
    assert capsys.readouterr().err


def test_a_token_cannot_be_an_argument(capsys):
    with pytest.raises(SystemExit):
        main(["status", "--token", "dvt_x"])
    capsys.readouterr()


def test_times_are_moments_or_so_long_ago():
    assert time_given("2026-01-31T08:00") == "2026-01-31T08:00:00Z"
    assert time_given("2026-01-31T08:00:00+02:00") == "2026-01-31T06:00:00Z"
    assert time_given("1000d") < time_given("10m") < time_given("1s")
    assert duration("1.5h") == 5400


# --- without a control service


def test_check_tells_a_script_everything(tmp_path, capsys):
    assert main(["check", str(PIPELINE), "--json"]) == 0
    fine = json.loads(capsys.readouterr().out)
    assert fine["valid"]
    assert fine["summary"].startswith("pipeline sales")
    wrong = tmp_path / "wrong.yaml"
    wrong.write_text(PIPELINE.read_text().replace("algorithm: auto", "algorithm: ssjb"))
    assert main(["check", str(wrong), "--json"]) == 1
    (blamed,) = json.loads(capsys.readouterr().out)["problems"]
    assert blamed["field"] == "algorithm"
    assert "ssbj" in blamed["text"]
    assert wrong.read_text().splitlines()[blamed["line"] - 1].startswith("algorithm")


def test_check_in_words(tmp_path, capsys):
    assert main(["check", str(PIPELINE)]) == 0
    assert "pipeline sales" in capsys.readouterr().out
    assert main(["check", str(tmp_path / "none.yaml")]) == 1
    assert "there is no such file" in capsys.readouterr().out


def test_a_database_that_cannot_be_asked_is_3(capsys):
    nowhere = "postgresql://shop:s3cret@127.0.0.1:1/master"
    assert main(["check", str(PIPELINE), "--database", nowhere]) == 3
    told = capsys.readouterr().err
    assert told.startswith("dovetail: PostgreSQL cannot be reached")
    assert "s3cret" not in told


def test_size_as_a_table_and_in_json(capsys):
    words = ["size", "--memory", "64MiB", "--rate", "10000", "--algorithm", "srj"]
    assert main(words) == 0
    assert "10,000 events/s in 64.00 MiB: srj" in capsys.readouterr().out
    assert main([*words, "--json"]) == 0
    (answer,) = json.loads(capsys.readouterr().out)["answers"]
    assert answer["algorithm"] == "srj"
    assert answer["enough"]
    assert sum(answer["parts"].values()) == pytest.approx(answer["memory"])
    assert main(["size", "--rate", "1e9", "--algorithm", "ssbj", "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["answers"][0]["rate"] is None


def test_a_wrong_setting_is_2(capsys):
    assert main(["size"]) == 2
    assert main(["verify"]) == 2
    assert "KAFKA_BOOTSTRAP is not set" in capsys.readouterr().err


@pytest.mark.parametrize("words", [[], ["--json"]])
def test_the_stack_is_not_started_for_a_wrong_pipeline(words, tmp_path):
    command = [sys.executable, "-m", "dovetail.cli", "up", "--pipeline", str(tmp_path / "none")]
    ran = subprocess.run([*command, *words], capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stdout) == (2, "")
    told = json.loads(ran.stderr)["detail"] if words else ran.stderr
    assert "there is no such file" in told


def test_the_version(capsys):
    with pytest.raises(SystemExit) as caught:
        main(["--version"])
    assert caught.value.code == 0
    assert capsys.readouterr().out.startswith("dovetail ")


def test_check_starts_without_kafka_numba_and_http():
    code = (
        "import sys; from dovetail.cli import main; main(['check', sys.argv[1]]);"
        "print(sorted({'confluent_kafka', 'numba', 'httpx', 'rich'} & set(sys.modules)))"
    )
    ran = subprocess.run(
        [sys.executable, "-c", code, str(PIPELINE)], capture_output=True, text=True, check=True
    )
    assert ran.stdout.splitlines()[-1] == "[]"


def test_what_asks_the_control_service_starts_without_kafka_and_numba():
    code = (
        "import sys; from dovetail.cli import main; main(['nodes', '--url', 'http://127.0.0.1:1']);"
        "print(sorted({'confluent_kafka', 'numba', 'pydantic', 'numpy'} & set(sys.modules)))"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout == "[]\n"


@pytest.mark.parametrize("words", [["check", str(PIPELINE)], ["size", "--rate", "1000", "--json"]])
def test_a_reader_who_has_seen_enough_is_no_error(words):
    reads, writes = os.pipe()
    os.close(reads)
    with os.fdopen(writes, "wb") as nobody:
        ran = subprocess.run(
            [sys.executable, "-m", "dovetail.cli", *words],
            stdout=nobody,
            stderr=subprocess.PIPE,
            check=False,
        )
    assert (ran.returncode, ran.stderr) == (141, b"")


# --- errors of the control service


def test_errors_go_to_stderr_and_stdout_stays_empty(capsys):
    with served({"GET /v1/me": problem(403, "forbidden", "it takes role admin")}) as script:
        assert run(script, "me") == 4
    out, err = capsys.readouterr()
    assert out == ""
    assert err == "dovetail: the title of forbidden: it takes role admin\n"


def test_errors_are_json_for_a_script(capsys):
    said = problem(409, "conflict", "drain it first")
    with served({"GET /v1/me": said}) as script:
        assert run(script, "me", "--json") == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert json.loads(err) == {**said.body, "exit_code": 1}


def test_nobody_there_is_3(capsys):
    assert main(["status", "--url", "http://127.0.0.1:1", "--json"]) == 3
    told = json.loads(capsys.readouterr().err)
    assert told["exit_code"] == 3
    assert "DOVETAIL_URL" in told["detail"]


# --- jobs


def test_a_job_is_followed_to_its_end(capsys):
    later = {**JOB, "text": "waiting for mapper-0"}
    steps = [Answer(JOB), Answer(later), Answer(DONE)]
    answers = {**HERE, "POST /v1/pipelines/sales/pause": Answer(JOB, 202)}
    with served({**answers, "GET /v1/jobs/17": steps}) as script:
        assert run(script, "pause", "--why", "moving", "--service", "mapper", "--json") == 0
    (posted,) = (asked for asked in script.asked if asked.method == "POST")
    assert posted.body == {"service": "mapper", "why": "moving"}
    waits = [asked.path for asked in script.asked if "jobs" in asked.path]
    assert waits == ["/v1/jobs/17?wait=10"] * 3
    out, err = capsys.readouterr()
    assert json.loads(out) == DONE
    assert err.splitlines() == ["pause: waiting for disk_phase-1", "pause: waiting for mapper-0"]


@pytest.mark.parametrize("ended", ["failed", "cancelled"])
def test_a_job_that_does_not_end_well_is_1(ended, capsys):
    over = Answer({**JOB, "state": ended, "error": "disk_phase-1 is gone"})
    answers = {**HERE, "POST /v1/pipelines/sales/drain": Answer(JOB, 202)}
    with served({**answers, "GET /v1/jobs/17": over}) as script:
        assert run(script, "drain") == 1
    assert "disk_phase-1 is gone" in capsys.readouterr().out


def test_a_job_need_not_be_followed(capsys):
    with served({**HERE, "POST /v1/pipelines/sales/resume": Answer(JOB, 202)}) as script:
        assert run(script, "resume", "--no-wait") == 0
        assert not any("jobs" in asked.path for asked in script.asked)
    assert "17: pause of sales" in capsys.readouterr().out


def test_a_control_service_that_restarts_meanwhile_is_asked_again(capsys, monkeypatch):
    monkeypatch.setattr("dovetail.cli.following._PAUSE_S", 0.01)
    broken = Answer(b"no JSON")
    with served({"GET /v1/jobs/17": [Answer(JOB), broken, broken, Answer(DONE)]}) as script:
        assert run(script, "jobs", "follow", "17") == 0
    assert "done" in capsys.readouterr().out


def test_an_interrupt_ends_the_following_and_tells_how_to_go_on():
    with served({"GET /v1/jobs/17": Answer(JOB)}) as script:
        words = [sys.executable, "-c", INTERRUPTIBLE, "jobs", "follow", "17", "--url", script.url]
        child = subprocess.Popen(words, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        while len(script.asked) < 3:
            assert child.poll() is None, child.communicate()
            time.sleep(0.02)
        child.send_signal(signal.SIGINT)
        out, err = child.communicate(timeout=60)
    assert child.returncode == 130
    assert out == ""
    assert "dovetail jobs follow 17" in err
    assert "Traceback" not in err


# --- what cannot be undone


@pytest.mark.parametrize(
    "words",
    [
        ["restart", "--beginning"],
        ["pipelines", "delete", "sales"],
        ["tokens", "revoke", "3"],
        ["dead-letters", "replay", "1", "2"],
        ["parked", "replay", "--all"],
    ],
)
def test_a_script_has_to_agree_to_what_cannot_be_undone(words, capsys):
    with served(HERE) as script:
        assert run(script, *words) == 2
        assert not any(asked.method != "GET" for asked in script.asked)
    assert "say --yes" in capsys.readouterr().err


def test_a_person_is_asked(capsys, monkeypatch):
    answered = iter(["no\n", "y\n"])
    monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
    monkeypatch.setattr("sys.stdin.readline", lambda: next(answered), raising=False)
    with served({"DELETE /v1/tokens/3": Answer(b"", 204)}) as script:
        assert run(script, "tokens", "revoke", "3") == 1
        assert script.asked == []
        assert "nothing was done" in capsys.readouterr().err
        assert run(script, "tokens", "revoke", "3") == 0
    assert "token 3 is revoked" in capsys.readouterr().out


@pytest.mark.parametrize(
    "words", [[], ["--force"], ["1", "2", "--reason", "x"], ["1", "2", "--force"]]
)
def test_which_letters_has_to_be_clear(words, capsys):
    with served(HERE) as script:
        assert run(script, "dead-letters", "replay", *words) == 2
        assert script.asked == []
    capsys.readouterr()


# --- what is sent


@pytest.mark.parametrize(
    ("words", "asked", "body"),
    [
        (
            ["restart", "--offset", "0=1200", "--offset", "1=0", "--yes"],
            "POST /v1/pipelines/sales/restart",
            {"from": {"offsets": {"0": 1200, "1": 0}}, "confirm": True},
        ),
        (
            ["restart", "--time", "2026-01-31T08:00Z", "--yes", "--why", "wrong prices"],
            "POST /v1/pipelines/sales/restart",
            {"from": {"time": "2026-01-31T08:00:00Z"}, "confirm": True, "why": "wrong prices"},
        ),
        (
            ["restart", "--beginning", "--yes", "--pipeline", "other"],
            "POST /v1/pipelines/other/restart",
            {"from": {"beginning": True}, "confirm": True},
        ),
        (
            ["dead-letters", "--reason", "wrong-type", "replay", "--yes"],
            "POST /v1/pipelines/sales/dead-letters/replay",
            {"reason": "wrong-type", "confirm": True},
        ),
        (
            ["parked", "replay", "1", "2", "--yes"],
            "POST /v1/pipelines/sales/parked/replay",
            {"ids": [1, 2], "confirm": True},
        ),
        (
            ["spark", "start", "--why", "a sale", "frequency", "--hour", "next"],
            "POST /v1/spark/jobs/frequency/start",
            {"arguments": ["--hour", "next"], "why": "a sale"},
        ),
    ],
)
def test_what_is_asked_for_is_what_is_sent(words, asked, body, capsys):
    with served({**HERE, asked: Answer(DONE, 202)}) as script:
        code = main([words[0], "--url", script.url, *words[1:]])
    capsys.readouterr()
    assert code == 0
    assert script.asked[-1].body == body


def test_settings_are_yaml(capsys):
    answered = Answer({"revision": 4, "changes": ["order: none → key"], "job": DONE}, 202)
    with served({**HERE, "PATCH /v1/pipelines/sales": answered}) as script:
        words = ("set", "memory=64MiB", "order={within: 100}", "overload=backpressure")
        assert run(script, *words, "--from-revision", "3", "--json") == 0
    assert script.asked[-1].body == {
        "settings": {"memory": "64MiB", "order": {"within": 100}, "overload": "backpressure"},
        "from_revision": 3,
    }
    assert json.loads(capsys.readouterr().out) == answered.body


def test_a_saved_token_is_its_owners_alone_and_not_shown(tmp_path, capsys):
    file = tmp_path / "token"
    told = {"id": 3, "name": "grafana", "role": "read", "created_by": "root"}
    times = dict.fromkeys(("created_at", "expires_at", "last_used_at", "revoked_at"))
    made = Answer({**told, **times, "token": "dvt_secret"}, 201)
    with served({"POST /v1/tokens": made}) as script:
        words = ("tokens", "create", "grafana", "read", "--expires-in", "30d", "--save", str(file))
        assert run(script, *words) == 0
        assert script.asked[-1].body == {
            "name": "grafana",
            "role": "read",
            "expires_in_s": 2_592_000,
        }
        assert run(script, *words) == 2, "a file is not written over"
        assert len(script.asked) == 1, "nor is a token made for it"
    assert file.read_text() == "dvt_secret\n"
    assert file.stat().st_mode & 0o777 == 0o600
    out, err = capsys.readouterr()
    assert "dvt_secret" not in out + err


def test_a_token_that_was_refused_leaves_no_file(tmp_path, capsys):
    file = tmp_path / "token"
    with served({"POST /v1/tokens": problem(403, "forbidden", "no")}) as script:
        assert run(script, "tokens", "create", "x", "read", "--save", str(file)) == 4
    assert not file.exists()
    capsys.readouterr()
