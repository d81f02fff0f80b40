"""A job on Spark started, followed and cancelled through the API."""

from __future__ import annotations

import os
import time

import psutil
import pytest

from services.access.roles import Role
from tests.integration.control_kit import running_control

pytestmark = pytest.mark.skipif(
    not os.environ.get("DOVETAIL_SPARK"), reason="`make test-spark` starts Spark for it"
)


@pytest.fixture(scope="module")
def control(stack, tmp_path_factory):
    folder = tmp_path_factory.mktemp("control")
    environment = {"KAFKA_BOOTSTRAP": stack.bootstrap, "DOVETAIL_ADMIN_TOKEN": "s3cret" * 8}
    with pytest.MonkeyPatch.context() as patch:
        for name, value in environment.items():
            patch.setenv(name, value)
        with running_control(stack, folder, master={"snapshot": "snapshots"}) as running:
            patch.setenv("DATABASE_URL", running.database)
            yield running


def ended(client, job):
    deadline = time.monotonic() + 240
    while job["state"] == "running":
        assert time.monotonic() < deadline, job
        job = client.get(f"/v1/jobs/{job['id']}", params={"wait": 5}).json()
    return job


def test_a_snapshot_is_made_and_its_run_followed(control):
    with control.client(Role.OPERATE) as client:
        started = client.post("/v1/spark/jobs/snapshot/start", json={"why": "a test"})
        assert started.status_code == 202, started.text
        job = ended(client, started.json())
        assert job["state"] == "done", job
        run = client.get(f"/v1/spark/runs/{job['result']['run']}").json()
        assert (run["job"], run["state"]) == ("snapshot", "done")
        assert run["figures"]["rows"] > 0
        jobs = {one["job"]: one for one in client.get("/v1/spark/jobs").json()}
        assert jobs["snapshot"]["last"]["id"] == run["id"]
        wrong = client.post("/v1/spark/jobs/snapshot/start", json={"arguments": ["--to", "/tmp"]})
        assert wrong.status_code == 422


def test_a_backfill_is_made_over_a_snapshot_and_its_run_followed(control):
    with control.client(Role.OPERATE) as client:
        made = client.post("/v1/spark/jobs/snapshot/start", json={}).json()
        assert ended(client, made)["state"] == "done"
        order = {"arguments": ["--portion=1000"], "why": "a test"}
        started = client.post("/v1/spark/jobs/backfill/start", json=order)
        assert started.status_code == 202, started.text
        job = ended(client, started.json())
        assert job["state"] == "done", job["error"]
        assert job["result"]["figures"]["messages"] == 0


def test_a_job_that_is_cancelled_leaves_no_process(control):
    with control.client(Role.OPERATE) as client:
        job = client.post("/v1/spark/jobs/snapshot/start", json={}).json()
        deadline = time.monotonic() + 60
        while not (children := spark_processes()):
            assert time.monotonic() < deadline
            time.sleep(0.2)
        assert "s3cret" not in str(children[0].environ())
        client.post(f"/v1/jobs/{job['id']}/cancel")
        assert ended(client, job)["state"] == "cancelled"
        assert spark_processes() == []


def spark_processes():
    found = []
    for child in psutil.Process().children(recursive=True):
        try:
            if "services.spark" in child.cmdline():
                found.append(child)
        except psutil.NoSuchProcess:
            continue
    return found
