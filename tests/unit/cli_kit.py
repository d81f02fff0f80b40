"""A server on loopback that answers what a test has written, and remembers what it was asked."""

from __future__ import annotations

import json
import threading
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

INTERRUPTIBLE = """
import signal
import sys
from dovetail.cli import main
signal.signal(signal.SIGINT, signal.default_int_handler)
sys.exit(main())
"""
"""The command line as `python -c` takes it. Whoever runs the tests in the background has interrupts
ignored, and so would their children."""


@dataclass(frozen=True)
class Answer:
    body: Any
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)

    @property
    def raw(self) -> bytes:
        return self.body if isinstance(self.body, bytes) else json.dumps(self.body).encode()


@dataclass(frozen=True)
class Asked:
    method: str
    path: str
    headers: dict[str, str]
    body: Any


class Script:
    """Answers by `METHOD path`, or the next of several."""

    def __init__(self, answers: dict[str, Answer | list[Answer]]) -> None:
        self.asked: list[Asked] = []
        self.url = ""
        self._answers = answers

    def answer(self, asked: Asked) -> Answer:
        self.asked.append(asked)
        path = asked.path.partition("?")[0]
        found = self._answers.get(f"{asked.method} {path}")
        if isinstance(found, list):
            return found.pop(0) if len(found) > 1 else found[0]
        return found or problem(404, "not-found", f"there is no {asked.path}")


def problem(status: int, kind: str, detail: str, **more: object) -> Answer:
    body = {
        "type": f"urn:dovetail:problem:{kind}",
        "title": f"the title of {kind}",
        "status": status,
        "detail": detail,
        **more,
    }
    return Answer(body, status, {"Content-Type": "application/problem+json"})


@contextmanager
def served(answers: dict[str, Answer | list[Answer]]) -> Iterator[Script]:
    script = Script(answers)

    class Handler(BaseHTTPRequestHandler):
        def handle_one(self) -> None:
            length = int(self.headers.get("Content-Length", 0))
            raw = self.rfile.read(length)
            headers = {name.lower(): value for name, value in self.headers.items()}
            body = json.loads(raw) if raw else None
            answer = script.answer(Asked(self.command, self.path, headers, body))
            self.send_response(answer.status)
            for name, value in answer.headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(answer.raw)))
            self.end_headers()
            self.wfile.write(answer.raw)

        do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = handle_one  # noqa: N815 - the library's

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    script.url = f"http://127.0.0.1:{server.server_port}"
    try:
        yield script
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
