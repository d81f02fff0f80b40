"""PostgreSQL is lost with its data under load, and restored from a backup."""

from __future__ import annotations

import shutil
import signal
import subprocess

import pytest

from deploy.local.postgres_binaries import find_binaries
from tests.recovery.kit import Dovetail, assert_exact, goes_on, sales, under_load

pytestmark = pytest.mark.timeout(900)


def test_a_lost_database_is_restored_from_a_backup(
    make_pipeline, stack, stack_environ, database, tmp_path
):
    programs = find_binaries(stack_environ).folder
    name, backup = database.rpartition("/")[2], tmp_path / "shop.dump"
    server = stack.database.url_of("postgres")

    def run(program, *words):
        subprocess.run([programs / program, *map(str, words)], check=True)

    with make_pipeline(sales(nodes=2)) as pipeline, under_load(pipeline) as load:
        dovetail = Dovetail(pipeline)
        goes_on(pipeline)
        dovetail("set memory=24MiB --why 'a revision that is in no file'")
        run("pg_dump", "--format=custom", f"--file={backup}", database)

        before = pipeline.pids()
        stack.database.send(signal.SIGKILL)
        stack.database.stop()
        shutil.rmtree(stack.home.data / "postgres")
        for number in (0, 1):
            pipeline.wait_until(
                lambda _, node=f"disk_phase-{number}": (
                    "PostgreSQL cannot be read" in pipeline.not_ready_because(node)
                ),
                "the disk phase says why it is not ready",
            )
        stuck = pipeline.wait_until(lambda seen: seen.backlogs["disk_phase"] > 500, "misses wait")
        pipeline.wait_until(lambda seen: seen.hits > stuck.hits, "the cache phase goes on")
        nodes = {f"{one['service']}-{one['node']}": one for one in dovetail.json("nodes")}
        assert "PostgreSQL cannot be read" in nodes["disk_phase-0"]["reason"]
        assert dovetail.json("status --once")["state"] == "starting"
        assert "PostgreSQL" in dovetail.json("status --once")["reason"]

        # A new server, in which there is no database of that name until it is whole.
        stack.database.prepare()
        stack.database.start()
        stack.database.wait_until_healthy()
        run("createdb", f"--maintenance-db={server}", f"{name}_restored")
        restored = stack.database.url_of(f"{name}_restored")
        run("pg_restore", "--exit-on-error", f"--dbname={restored}", backup)
        run("psql", "--command=ANALYZE", restored)
        assert pipeline.audit().stages["disk_phase"] == stuck.stages["disk_phase"]
        run("psql", f'--command=ALTER DATABASE "{name}_restored" RENAME TO "{name}"', server)

        dovetail("check pipeline.yaml")
        pipeline.wait_until_ready()
        goes_on(pipeline)
        # Nobody had to be started again, and what was ordered before the backup holds.
        assert pipeline.pids() == before
        shown = dovetail.json("pipelines show")
        assert (shown["revision"], shown["pipeline"]["memory"]) == (2, 24 << 20)
        dovetail("pause --why 'see whether orders are obeyed'")
        dovetail("resume")
        load.stop()
        assert_exact(pipeline, dovetail, load.sent)
