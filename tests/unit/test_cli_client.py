"""The client: what it sends, and what it makes of every answer, on a real connection."""

from __future__ import annotations

import argparse
import json
import socket
import threading
from typing import TYPE_CHECKING

import pytest

from deploy.local.home import Home
from deploy.local.ports import Ports, last_ports
from dovetail.cli.client import Client, connect
from dovetail.cli.exits import exit_code
from dovetail.errors import ConfigError, RefusedError, Unavailable
from tests.unit.cli_kit import Answer, problem, served

if TYPE_CHECKING:
    from pathlib import Path

SECRET = "dvt_" + "s3cr3t" * 8


def arguments(url: str | None = None) -> argparse.Namespace:
    return argparse.Namespace(url=url)


def test_a_request_carries_token_query_and_body():
    with served({"GET /v1/jobs": Answer([]), "POST /v1/tokens": Answer({"id": 1}, 201)}) as script:
        client = Client(script.url, SECRET)
        assert client.get("/v1/jobs", most=5, kind=None, figure=["in", "a b"]) == []
        assert client.post("/v1/tokens", {"name": "x"}) == {"id": 1}
    first, second = script.asked
    assert first.path == "/v1/jobs?most=5&figure=in&figure=a+b"
    assert first.headers["authorization"] == f"Bearer {SECRET}"
    assert (second.method, second.body) == ("POST", {"name": "x"})
    assert second.headers["content-type"] == "application/json"


def test_no_content_is_none():
    with served({"DELETE /v1/tokens/3": Answer(b"", 204)}) as script:
        assert Client(script.url).delete("/v1/tokens/3") is None


@pytest.mark.parametrize(
    ("status", "code"),
    {400: 2, 401: 4, 403: 4, 404: 1, 405: 2, 409: 1, 413: 2, 422: 2, 500: 1, 503: 3}.items(),
)
def test_a_refusal_keeps_the_problem_and_has_its_exit_code(status, code):
    said = problem(status, "some-kind", "do this first")
    with served({"GET /v1/me": said}) as script, pytest.raises(RefusedError) as caught:
        Client(script.url, SECRET).get("/v1/me")
    assert caught.value.status == status
    assert caught.value.problem == said.body
    assert str(caught.value).startswith("the title of some-kind: do this first")
    assert exit_code(caught.value) == code
    assert SECRET not in str(caught.value)


def test_every_field_to_blame_is_told_with_its_line():
    problems = [
        {"line": 9, "field": "algorithm", "text": "'ssjb' is not known; did you mean 'ssbj'?"},
        {"line": None, "field": "query.most", "text": "at most 1000"},
        {"field": "", "text": "it is no YAML"},
    ]
    said = problem(422, "pipeline-invalid", "3 problems", problems=problems)
    with served({"PUT /v1/x": said}) as script, pytest.raises(RefusedError) as caught:
        Client(script.url).put("/v1/x", {})
    assert str(caught.value).splitlines()[1:] == [
        "  line 9, algorithm: 'ssjb' is not known; did you mean 'ssbj'?",
        "  query.most: at most 1000",
        "  it is no YAML",
    ]


def test_a_missing_token_is_told_with_the_variables():
    said = problem(401, "unauthenticated", "no token")
    with served({"GET /v1/me": said}) as script, pytest.raises(RefusedError) as caught:
        Client(script.url).get("/v1/me")
    assert "DOVETAIL_TOKEN or DOVETAIL_TOKEN_FILE" in str(caught.value)


def test_an_error_that_is_no_problem_document_is_told_by_its_status():
    with (
        served({"GET /v1/me": Answer(b"<html>", 502)}) as script,
        pytest.raises(RefusedError, match="502 Bad Gateway"),
    ):
        Client(script.url).get("/v1/me")


def test_too_many_requests_are_sent_again_after_the_pause():
    full = problem(429, "too-many-requests", "slower")
    later = Answer(full.body, 429, {"Retry-After": "0"})
    with served({"GET /v1/me": [later, later, Answer({"name": "ops"})]}) as script:
        assert Client(script.url).get("/v1/me") == {"name": "ops"}
        assert len(script.asked) == 3


def test_a_long_pause_is_left_to_the_user():
    full = Answer(problem(429, "too-many-requests", "slower").body, 429, {"Retry-After": "3600"})
    with served({"GET /v1/me": full}) as script, pytest.raises(RefusedError) as caught:
        Client(script.url).get("/v1/me")
    assert len(script.asked) == 1
    assert exit_code(caught.value) == 3


def test_a_redirect_does_not_take_the_token_elsewhere():
    with served({"GET /v1/me": Answer({"name": "thief"})}) as thief:
        away = Answer(b"", 302, {"Location": f"{thief.url}/v1/me"})
        with served({"GET /v1/me": away}) as script, pytest.raises(RefusedError, match="302"):
            Client(script.url, SECRET).get("/v1/me")
        assert thief.asked == []


def test_another_programs_answer_is_not_taken_for_a_control_services():
    with (
        served({"GET /v1/me": Answer(b"<html>hello</html>")}) as script,
        pytest.raises(Unavailable, match="is not a control service"),
    ):
        Client(script.url).get("/v1/me")


def test_nobody_there_names_address_variable_and_cure():
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))  # bound, and not listening: nobody else gets the port
        url = f"http://127.0.0.1:{bound.getsockname()[1]}"
        with pytest.raises(Unavailable) as caught:
            Client(url).get("/v1/me")
    told = str(caught.value)
    assert all(word in told for word in (url, "DOVETAIL_URL", "--url", "make run"))
    assert exit_code(caught.value) == 3


def test_something_that_hangs_up_is_not_reachable():
    with socket.create_server(("127.0.0.1", 0)) as server:

        def hang_up() -> None:
            connection, _ = server.accept()
            connection.close()

        thread = threading.Thread(target=hang_up)
        thread.start()
        with pytest.raises(Unavailable, match="no control service answers"):
            Client(f"http://127.0.0.1:{server.getsockname()[1]}").get("/v1/me")
        thread.join()


def test_this_machine_is_asked_without_the_proxy(monkeypatch):
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    with served({"GET /v1/me": Answer({"name": "ops"})}) as script:
        assert Client(script.url).get("/v1/me") == {"name": "ops"}


def test_the_pipeline_that_runs_there_is_meant_unless_one_is_named():
    listed = [{"name": "other", "here": False}, {"name": "sales", "here": True}]
    with served({"GET /v1/pipelines": Answer(listed)}) as script:
        client = Client(script.url)
        assert client.pipeline(None) == "/v1/pipelines/sales"
        assert client.pipeline("a/../b?") == "/v1/pipelines/a%2F..%2Fb%3F"
    with (
        served({"GET /v1/pipelines": Answer(listed[:1])}) as script,
        pytest.raises(ConfigError, match="--pipeline"),
    ):
        Client(script.url).pipeline(None)


def test_the_address_is_the_options_then_the_variables_then_the_local_stacks(tmp_path: Path):
    run = tmp_path / "run"
    environ = {"DOVETAIL_HOME": str(tmp_path)}
    assert connect(arguments(), environ).url == "http://127.0.0.1:18080"
    assert not run.exists(), "looking makes nothing"
    run.mkdir()
    (run / "ports.json").write_text(json.dumps({"control": 23456, "ingest": 1}))
    assert connect(arguments(), environ).url == "http://127.0.0.1:23456"
    environ["DOVETAIL_URL"] = "https://control.example/"
    assert connect(arguments(), environ).url == "https://control.example"
    assert connect(arguments("http://[::1]:80"), environ).url == "http://[::1]:80"


def test_the_local_stacks_record_is_where_its_ports_are_written(tmp_path: Path):
    home = Home(tmp_path)
    chosen = Ports(home, {}, {}).choose_services(["control"])
    assert last_ports(home) == chosen


@pytest.mark.parametrize("url", ["s3cret:80", "ftp://s3cret", "http://", "file:///s3cret"])
def test_what_is_no_address_is_refused(url):
    with pytest.raises(ConfigError, match="is no address") as refused:
        connect(arguments(url), {})
    assert "s3cret" not in str(refused.value)


def test_a_secret_in_the_address_is_refused_and_not_told():
    with pytest.raises(ConfigError, match="DOVETAIL_TOKEN_FILE") as caught:
        connect(arguments(f"http://ops:{SECRET}@control"), {})
    assert SECRET not in str(caught.value)


def test_a_token_is_read_from_a_file(tmp_path: Path):
    file = tmp_path / "token"
    file.write_text(f"{SECRET}\n")
    with served({"GET /v1/me": Answer({})}) as script:
        environ = {"DOVETAIL_TOKEN_FILE": str(file), "DOVETAIL_URL": script.url}
        connect(arguments(), environ).get("/v1/me")
        connect(arguments(), {**environ, "DOVETAIL_TOKEN": "another"}).get("/v1/me")
    sent = [asked.headers["authorization"] for asked in script.asked]
    assert sent == [f"Bearer {SECRET}", "Bearer another"]


@pytest.mark.parametrize(
    "content", [None, b"", b"two words", b"\xff\xfe", "zwölf".encode(), b"a\nb"]
)
def test_a_file_without_a_token_is_told_without_its_content(tmp_path: Path, content):
    file = tmp_path / "token"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(ConfigError) as caught:
        connect(arguments(), {"DOVETAIL_TOKEN_FILE": str(file)})
    assert "the file that DOVETAIL_TOKEN_FILE names" in str(caught.value)
    assert str(file) not in str(caught.value)
    assert not content or content.decode(errors="replace") not in str(caught.value)
