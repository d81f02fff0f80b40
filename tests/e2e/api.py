"""The control service of a pipeline under test, as whoever operates it calls it."""

from __future__ import annotations

import time

import httpx

WITHIN_S = 120.0


class Api:
    def __init__(self, pipeline, token=None):
        self.name = pipeline.spec.name
        self._pipeline = pipeline
        self.headers = {"Authorization": f"Bearer {token}"} if token else {}
        url = pipeline.url("control")
        self._client = httpx.Client(base_url=url, headers=self.headers, timeout=60)

    def __call__(self, method, path, status=200, **options):
        """The answer's body; `P` stands for the pipeline's own path."""
        path = path.replace("P", f"/v1/pipelines/{self.name}", 1) if path[0] == "P" else path
        answer = self._client.request(method, path, **options)
        assert answer.status_code == status, (method, path, answer.status_code, answer.text)
        return answer.json() if answer.content else None

    def done(self, job):
        """Wait for a job's end; it has to be done. Whatever ends meanwhile is started again."""
        deadline = time.monotonic() + WITHIN_S
        while job["state"] == "running":
            assert time.monotonic() < deadline, job
            self._pipeline.pause(0)
            job = self("GET", f"/v1/jobs/{job['id']}", params={"wait": 1})
        assert job["state"] == "done", job
        return job

    def until(self, look, what):
        """Wait until something is so, and return it."""
        deadline = time.monotonic() + WITHIN_S
        while not (found := look()):
            assert time.monotonic() < deadline, f"never {what}"
            self._pipeline.pause(0.2)
        return found
