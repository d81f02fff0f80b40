"""What events by HTTP cost: `python -m bench.http_events [--events 1000] [--senders 1 4]`.

Requests of NDJSON, each with a key of its own, go over loopback to a real ingest service in front
of a real broker, from senders that wait for each answer. The body is events like the demo's. Beside
it, what splitting and checking a body costs without any of that. The last line is JSON. Bounded: a
few seconds for each number of senders.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import statistics
import subprocess
import sys
import threading
import time
import uuid
from urllib.parse import urlsplit

import yaml

from deploy.local.home import CHECKOUT, Home
from deploy.local.ports import Ports
from deploy.local.services import is_ready
from deploy.local.stack import Stack
from dovetail.stream.events.splitting import split

SECONDS = 5.0


def body_of(events: int) -> bytes:
    return b"".join(
        b'{"sale_id":%d,"product_id":%d,"customer_id":%d,"quantity":1,"amount":19.90,'
        b'"channel":"web","sold_at":"2026-01-31T09:00:00.000Z"}\n' % (n, n * 7919, n)
        for n in range(events)
    )


def split_alone(body: bytes, events: int) -> float:
    """Nanoseconds an event, the median of some rounds."""
    rounds = []
    for _ in range(30):
        text = bytearray(body)
        started = time.perf_counter_ns()
        split(text, lines=True, most=events)
        rounds.append(time.perf_counter_ns() - started)
    return statistics.median(rounds) / events


class Sender(threading.Thread):
    def __init__(self, url: str, body: bytes, until: float) -> None:
        super().__init__()
        self._address = urlsplit(url)
        self._body = body
        self._until = until
        self.took: list[float] = []

    def run(self) -> None:
        connection = http.client.HTTPConnection(self._address.hostname or "", self._address.port)
        while time.monotonic() < self._until:
            started = time.monotonic()
            headers = {"Content-Type": "application/x-ndjson", "Idempotency-Key": str(uuid.uuid4())}
            connection.request("POST", "/v1/events", self._body, headers)
            answer = connection.getresponse()
            text = answer.read()
            if answer.status != 202:
                raise RuntimeError(f"{answer.status}: {text.decode()}")
            self.took.append(time.monotonic() - started)
        connection.close()


def measure(url: str, body: bytes, events: int, senders: int) -> dict[str, float]:
    started = time.monotonic()
    threads = [Sender(url, body, started + SECONDS) for _ in range(senders)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    took = [one for thread in threads for one in thread.took]
    return {
        "senders": senders,
        "events_per_s": round(len(took) * events / (time.monotonic() - started)),
        "p50_ms": round(statistics.median(took) * 1000, 1),
        "worst_ms": round(max(took) * 1000, 1),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--events", type=int, default=1_000, help="in a request")
    parser.add_argument("--senders", type=int, nargs="+", default=[1, 4])
    arguments = parser.parse_args()
    body = body_of(arguments.events)
    nanoseconds = split_alone(body, arguments.events)
    print(
        f"splitting alone: {nanoseconds:.0f} ns an event of {len(body) // arguments.events} bytes"
    )

    home = Home(CHECKOUT / ".dovetail" / "bench-http", CHECKOUT / ".dovetail")
    stack = Stack(home, environ={**os.environ, "KAFKA_HEAP": "384m"}, usual_ports={})
    stack.wipe()
    with stack:
        file = home.run / "pipeline.yaml"
        spec = yaml.safe_load((CHECKOUT / "pipeline.yaml").read_text())
        file.write_text(yaml.safe_dump({**spec, "name": "bench-http", "sink": {}}))
        port = Ports(home, {}, {}).choose("ingest")
        process = subprocess.Popen(
            [sys.executable, "-m", "services.ingest.main"],
            cwd=CHECKOUT,
            env={
                **os.environ,
                "KAFKA_BOOTSTRAP": stack.bootstrap,
                "DATABASE_URL": stack.database_url,
                "DOVETAIL_PIPELINE": str(file),
                "DOVETAIL_PORT": str(port),
            },
        )
        try:
            url = f"http://127.0.0.1:{port}"
            while not is_ready(url):
                if process.poll() is not None:
                    raise SystemExit("ingest did not start: its words are above")
                time.sleep(0.2)
            measure(url, body, arguments.events, 1)  # warm
            found = [measure(url, body, arguments.events, n) for n in arguments.senders]
        finally:
            process.terminate()
            process.wait()
    for row in found:
        print(row)
    print(json.dumps({"split_ns": round(nanoseconds), "events": arguments.events, "runs": found}))


if __name__ == "__main__":
    main()
