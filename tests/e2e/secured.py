"""A secured stack for tests, and pipelines in it."""

from __future__ import annotations

import uuid
from contextlib import contextmanager

import psycopg
import yaml
from psycopg import sql

from deploy.local.admission import Admission
from deploy.local.home import CHECKOUT, Home
from deploy.local.kernels import compiling
from deploy.local.security import Security
from deploy.local.stack import Stack
from dovetail.stream.topics import admin_of
from dovetail.testing.pipeline import RunningPipeline

DOVETAIL = CHECKOUT / ".dovetail"


def secured_stack(environ, folder="test-secure"):
    """A broker and a PostgreSQL of its own, empty; the broker takes OAUTHBEARER as well."""
    home = Home(DOVETAIL / folder, DOVETAIL)
    stack = Stack(
        home, environ=environ, usual_ports={}, security=Security.of_home(home, oauth=True)
    )
    stack.wipe()
    return stack


def compile_kernels(stack, spec):
    """Compile what the services run, before seven processes at once would."""
    home = Home(stack.home.folder / "pipelines" / "kernels", DOVETAIL)
    file = home.run / "pipeline.yaml"
    file.write_text(yaml.safe_dump({"name": "kernels", **spec}))
    with compiling(home, file, print) as wait:
        wait()


@contextmanager
def database_of(stack):
    """The name of an empty database, dropped afterwards."""
    name = f"test_{uuid.uuid4().hex[:12]}"
    with psycopg.connect(stack.database_url, autocommit=True) as connection:
        connection.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
        yield name
        connection.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(sql.Identifier(name)))


@contextmanager
def secured_pipeline(stack, database, spec, folder):
    """The services of a pipeline, each a user of its own."""
    home = Home(stack.home.folder / "pipelines" / folder, DOVETAIL)
    named = {"name": f"test-{uuid.uuid4().hex[:12]}", **spec}
    pipeline = RunningPipeline(
        home,
        stack.bootstrap,
        "",
        named,
        environment={"DATABASE_URL": ""},
        admit=lambda topology: Admission(stack, topology, database),
    )
    try:
        yield pipeline
    finally:
        pipeline.stop()
        admin = admin_of(pipeline.settings)
        own = [topic.name for topic in pipeline.topology.topics()]
        own = [name for name in own if name.startswith(named["name"])]
        for deletion in admin.delete_topics(own).values():
            deletion.result(30)
