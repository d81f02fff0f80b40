"""The verdict on what pip-audit reports, and the way to pip-audit."""

from __future__ import annotations

import json
import re
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import ClassVar

from deploy import advisories
from deploy.advisories import Found, judge
from deploy.sbom.installed import normalised

CLEAN = {"name": "anyio", "version": "4.0", "vulns": []}
FLAWED = {
    "name": "jinja2",
    "version": "2.4.1",
    "vulns": [
        {
            "id": "PYSEC-2014-8",
            "fix_versions": ["2.7.2", "2.8"],
            "aliases": ["CVE-2014-1402"],
            "description": "…",
        },
        {"id": "PYSEC-1", "fix_versions": [], "aliases": [], "description": "…"},
    ],
}
UNKNOWN = {"name": "left", "skip_reason": "Dependency not found on PyPI: left (1.0)"}


def found(*packages):
    return Found.of({"dependencies": list(packages), "fixes": []})


def test_what_is_clean_passes(capsys):
    assert judge(found(CLEAN), strict=True) == 0
    assert capsys.readouterr().out == "1 packages audited, 0 known vulnerabilities\n"


def test_a_vulnerability_is_named_with_what_mends_it_and_fails_where_asked_to(capsys):
    """A change that `make check` looks at has not made it."""
    assert judge(found(CLEAN, FLAWED), strict=True) == 1
    assert judge(found(CLEAN, FLAWED), strict=False) == 0
    said = capsys.readouterr().err
    assert "jinja2 2.4.1: PYSEC-2014-8, CVE-2014-1402; mended in 2.7.2 or 2.8" in said
    assert "PYSEC-1; there is no version without it" in said


def test_what_nothing_is_known_of_is_named_and_fails_where_asked_to(capsys):
    assert judge(found(CLEAN, UNKNOWN), strict=False) == 0
    said = capsys.readouterr()
    assert "not audited: 1 packages (left)" in said.err
    assert "not found" in said.err
    assert "1 packages audited" in said.out
    assert judge(found(CLEAN, UNKNOWN), strict=True) == 1


class Index(BaseHTTPRequestHandler):
    """Knows a flaw of one package, and nothing of the others'."""

    asked: ClassVar[list[str]] = []

    def do_POST(self):
        query = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        name = query["package"]["name"]
        self.asked.append(name)
        flaw = {"id": "PYSEC-1", "affected": [{"package": query["package"]}]}
        body = json.dumps({"vulns": [flaw]} if name == "anyio" else {}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        """Say nothing."""


def test_every_pin_is_asked_for(monkeypatch):
    """By the real pip-audit, of an index here: what the real one says changes by the day."""
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    pins = re.findall(r"^([^=\n]+)==", advisories.PINS.read_text(), re.MULTILINE)
    with ThreadingHTTPServer(("127.0.0.1", 0), Index) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            url = f"http://127.0.0.1:{server.server_port}"
            answer = advisories.asked("--vulnerability-service=osv", f"--osv-url={url}")
        finally:
            server.shutdown()
    assert sorted(Index.asked) == sorted(map(normalised, pins))
    assert answer.audited == len(pins)
    assert [flaw.partition(" ")[0] for flaw in answer.vulnerable] == ["anyio"]


def test_an_index_that_does_not_answer_audits_nothing(tmp_path, monkeypatch):
    pins = tmp_path / "constraints.txt"
    pins.write_text("anyio 4 is no pin==\n")
    monkeypatch.setattr(advisories, "PINS", pins)
    answer = advisories.asked()
    assert (answer.audited, len(answer.unknown)) == (0, 1)
    assert answer.why
    assert judge(answer, strict=True) == 1
