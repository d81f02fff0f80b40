"""The demo's pipeline in containers, as docker-compose.yml starts them, compared with SQL."""

from __future__ import annotations

import contextlib
import time
import uuid
from pathlib import Path
from urllib.parse import urlsplit

import psycopg
import pytest
import yaml
from psycopg import sql

from deploy.local.home import CHECKOUT
from dovetail.audit import Auditor
from dovetail.pipeline.load import load_pipeline
from dovetail.settings import Settings
from dovetail.topology import Topology
from dovetail.verify import verify
from tests.image.composed import Composed, composed
from tests.image.conftest import IMAGES, TAG

_WITHIN_S = 600
"""A busy machine takes minutes to start seven containers."""
_PIPELINE = "/etc/dovetail/pipeline.yaml"
_LIST = """
import pathlib, sys
for file in pathlib.Path(sys.argv[1]).rglob("*.nbc"):
    print(file.name, file.stat().st_mtime_ns)
"""


class Containers:
    """Services of Compose's file, started from the images; each with a port of its own."""

    def __init__(self, engine, compose, project):
        self._engine = engine
        self.compose = compose
        self._project = project
        self._ports = {}
        self.names = []

    def start(self, service, **told):
        """Start a service in the background, and wait until its health check is content."""
        self._ports.setdefault(service, 28_080 + len(self._ports))
        name = f"{self._project}-{service}"
        told["DOVETAIL_PORT"] = self._ports[service]
        words = self.compose.of(service, **told)
        self.names.append(service)
        self._engine.run("--detach", "--name", name, *words)
        if not self.compose.file["services"][service]["healthcheck"].get("disable"):
            self._wait(service)

    def _wait(self, service):
        deadline = time.monotonic() + _WITHIN_S
        while self("exec", service, *self.compose.health(service), check=False).returncode:
            assert self.runs(service), f"{service} ended:\n{self.log(service)}"
            assert time.monotonic() < deadline, f"{service} is not ready:\n{self.log(service)}"
            time.sleep(1)

    def job(self, service, *further, **told):
        """Run a service to its end; give what it printed."""
        name = f"{self._project}-{service}-job"
        words = self.compose.of(service, **told)
        done = self._engine.run("--rm", "--name", name, *words, *further, check=False)
        assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
        return done.stdout + done.stderr

    def __call__(self, verb, service, *words, check=True):
        return self._engine(verb, f"{self._project}-{service}", *words, check=check)

    def runs(self, service):
        state = self("inspect", service)
        return yaml.safe_load(state.stdout)[0]["State"]["Running"]

    def log(self, service):
        said = self("logs", service, check=False)
        return (said.stdout + said.stderr)[-4000:]

    def stop(self, service):
        """End a service in order; give its exit code."""
        self("stop", service)
        code = yaml.safe_load(self("inspect", service).stdout)[0]["State"]["ExitCode"]
        self("rm", service)
        self.names.remove(service)
        return code

    def remove(self):
        for service in reversed(self.names):
            self("rm", service, "-f", check=False)
        listed = self._engine("volume", "ls", "-q").stdout.split()
        for volume in listed:
            if volume.startswith(f"{self._project}_"):
                self._engine("volume", "rm", "-f", volume, check=False)


class Shop:
    """The demo's pipeline: its containers, and what is asked of it from outside."""

    def __init__(self, containers, settings, spec):
        self.containers = containers
        self.settings = settings
        self.spec = spec
        self.topology = Topology(spec)
        self._auditor = Auditor(settings, self.topology)

    def until(self, satisfied):
        """Wait until the audit is as wanted."""
        deadline = time.monotonic() + _WITHIN_S
        while not satisfied(seen := self._auditor.audit()):
            assert not seen.off, seen.equation()
            assert time.monotonic() < deadline, seen.equation()
            time.sleep(1)
        return seen

    def answers_as_sql_does(self):
        seen = self.until(lambda seen: seen.drained)
        assert seen.problems == []
        verdict = verify(self.settings, self.spec, self.topology)
        assert verdict.differences == []
        assert verdict.outputs == verdict.expected > 0
        return seen, verdict


@pytest.fixture(scope="module")
def database(stack):
    """An empty database, as the URL of its administrator."""
    name = f"image_{uuid.uuid4().hex[:12]}"
    with psycopg.connect(stack.database_url, autocommit=True) as connection:
        connection.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
        yield f"{stack.database_url.rpartition('/')[0]}/{name}"
        connection.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(sql.Identifier(name)))


@pytest.fixture(scope="module")
def variables(stack, database, tmp_path_factory):
    """As a user's .env and secrets would have them."""
    folder = tmp_path_factory.mktemp("secrets")
    for name in composed({})["secrets"]:
        # The stack's administrator is called as Compose's is, and has a password already.
        own = urlsplit(database).password if name == "postgres" else uuid.uuid4().hex
        (folder / name).write_text(own)
        (folder / name).chmod(0o444)
    (folder / "tls").mkdir()
    # Those above are the owner's alone.
    for above in (folder, *folder.parents[:2]):
        above.chmod(0o755)
    return {
        "DOVETAIL_TAG": TAG,
        "KAFKA_BOOTSTRAP": stack.bootstrap,
        "DATABASE": database.rpartition("@")[2],
        "DOVETAIL_SECRETS": str(folder),
        "DOVETAIL_TLS": str(folder / "tls"),
        "RATE": "2000",
    }


@contextlib.contextmanager
def shop_of(engine, stack, database, variables, file):
    project = f"dovetail-{uuid.uuid4().hex[:8]}"
    compose = Composed(variables, project, engine)
    containers = Containers(engine, compose, project)
    spec = load_pipeline(file, {})
    try:
        yield Shop(containers, Settings(stack.bootstrap, database, file), spec)
    finally:
        containers.remove()


@pytest.fixture(scope="module")
def shop(engine, stack, database, variables):
    """The services that `docker compose up` starts, in the order of its file."""
    file = CHECKOUT / "pipeline.yaml"
    with shop_of(engine, stack, database, variables, file) as shop:
        ours = {
            name: one
            for name, one in shop.containers.compose.file["services"].items()
            if one["image"] == IMAGES["services"] and "profiles" not in one
        }
        for name, one in ours.items():
            (shop.containers.job if one["restart"] == "no" else shop.containers.start)(name)
        yield shop


def test_it_answers_as_sql_does(shop):
    containers = shop.containers
    assert len(containers.names) == len(shop.topology.processes)
    containers.start("generate")
    shop.until(lambda seen: seen.taken > 20_000)
    assert containers.stop("generate") == 0
    seen, verdict = shop.answers_as_sql_does()
    assert seen.dead_lettered > 0
    assert verdict.events > 20_000


def test_no_service_may_write_the_master_data(variables, shop):
    """Each is a role that may do what it needs; only who makes tables and roles is more."""
    users = {
        urlsplit(one["environment"][name]).username
        for service, one in shop.containers.compose.file["services"].items()
        if service in shop.containers.names
        for name in ("DATABASE_URL", "CONTROL_DATABASE_URL")
    }
    assert users == {"dovetail_reader", "dovetail_control", "dovetail_gate"}
    for user in users:
        password = Path(variables["DOVETAIL_SECRETS"], user).read_text()
        url = f"postgresql://{user}:{password}@{variables['DATABASE']}"
        with psycopg.connect(url) as connection, pytest.raises(psycopg.Error, match="denied"):
            connection.execute("DELETE FROM products")


def test_kernels_came_with_the_image(shop):
    """None was compiled anew, which would take a minute or more at every first start.

    One that was stale has its old name and a time of its own; those that are copied keep theirs.
    """

    def kernels_in(folder):
        words = ("python", "-c", _LIST, folder)
        return set(shop.containers("exec", "disk-phase-0", *words).stdout.splitlines())

    there = kernels_in("/opt/dovetail/kernels")
    assert len(there) > 50
    assert kernels_in("/var/cache/dovetail/kernels") - there == set()


def test_the_command_line_is_in_the_image(shop):
    asked = shop.containers("exec", "control", "dovetail", "permissions", _PIPELINE)
    assert "dovetail.sales.mapper" in asked.stdout


@pytest.mark.parametrize("job", ["frequency", "backfill"])
def test_a_job_on_spark_runs_beside_it(shop, job):
    shop.containers.job(job)
    shop.answers_as_sql_does()


def test_each_service_ends_in_order_when_told(shop):
    for service in list(shop.containers.names):
        assert shop.containers.stop(service) == 0, service


def test_one_that_is_still_starting_ends_when_told(engine):
    """As the first process of a container it would not get the signal at all."""
    started = engine.run(
        "--detach", "--network", "none", IMAGES["services"], "mapper"
    ).stdout.strip()
    try:
        engine("stop", "--time", "60", started)
        assert yaml.safe_load(engine("inspect", started).stdout)[0]["State"]["ExitCode"] != 137
    finally:
        engine("rm", "-f", started)


def test_enrich_on_spark_answers_as_sql_does(engine, stack, database, variables, tmp_path):
    """`docker compose --profile enrich up control enrich`, for a pipeline of its own."""
    spec = yaml.safe_load((CHECKOUT / "pipeline.yaml").read_text())
    spec |= {"name": "sparks", "engine": "spark", "source": {**spec["source"], "topic": "sparks"}}
    spec["sink"] = {"topic": "sparks.enriched"}
    (tmp_path / "pipeline.yaml").write_text(yaml.safe_dump(spec))
    told = {**variables, "DOVETAIL_PIPELINE_FILE": str(tmp_path / "pipeline.yaml")}
    with shop_of(engine, stack, database, told, tmp_path / "pipeline.yaml") as shop:
        for service in ("control", "enrich"):
            shop.containers.start(service)
        shop.containers.job("generate", "--topic", "sparks", "--count", "20000")
        shop.answers_as_sql_does()
        assert shop.containers.stop("enrich") == 0
