"""A control service over the real broker and PostgreSQL, without the services that it controls."""

from __future__ import annotations

import socket
import threading
import time
import uuid
from contextlib import contextmanager
from dataclasses import dataclass

import httpx
import psycopg
import sqlalchemy as sa
import uvicorn
import yaml
from psycopg import sql

from dovetail.settings import Settings
from dovetail.stream.topics import admin_of, ensure_topics
from services.access.roles import Role
from services.access.settings import AccessSettings
from services.control.app import create_app
from services.control.hub import Hub
from services.control.store.migrations import migrate
from services.spark.runs import control_engine
from tests.e2e import shop

BEYOND_GUESSING = 10**15
"""The number of the tokens that nobody is to revoke by chance."""


@dataclass
class Running:
    url: str
    hub: Hub
    app: object
    tokens: dict[Role, str]
    database: str

    def client(self, role=None, **options):
        headers = {"Authorization": f"Bearer {self.tokens[role]}"} if role else {}
        return httpx.Client(base_url=self.url, headers=headers, timeout=60, **options)


@contextmanager
def new_database(url):
    name = f"test_{uuid.uuid4().hex[:12]}"
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
        yield f"{url.rpartition('/')[0]}/{name}"
        connection.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(sql.Identifier(name)))


def write_pipeline(folder, master=None, **further):
    spec = {"name": f"test-{uuid.uuid4().hex[:12]}", **shop.INT.spec("inner"), **further}
    spec["master"] |= master or {}
    file = folder / "pipeline.yaml"
    file.write_text(yaml.safe_dump(spec, sort_keys=False))
    return file


@contextmanager
def running_control(stack, folder, *, local=False, master=None, **further):
    """`master` are further settings of the master table, and the others of the pipeline."""
    with new_database(stack.database_url) as database:
        shop.INT.fill(database)
        settings = Settings(stack.bootstrap, database, write_pipeline(folder, master, **further))
        engine = control_engine(database, pooled=True)
        migrate(engine)
        hub = Hub(settings, AccessSettings(local=local, rate=100_000), engine)
        ensure_topics(settings, hub.topology.topics())
        hub.begin()
        tokens = _tokens(hub, engine)
        app = create_app(hub)
        with _served(app) as url:
            yield Running(url, hub, app, tokens, database)
        engine.dispose()
        own = [topic.name for topic in hub.topology.topics() if topic.name.startswith(hub.name)]
        admin = admin_of(settings)
        for deletion in admin.delete_topics(own).values():
            deletion.result(30)


def named(role):
    return f"{role} of a test"


def _tokens(hub, engine):
    with engine.begin() as connection:
        restart = "ALTER TABLE dovetail.tokens ALTER COLUMN id RESTART WITH {}"
        connection.execute(sa.text(restart.format(BEYOND_GUESSING)))
    tokens = {role: hub.tokens.create(named(role), role, "a test")[1] for role in Role}
    with engine.begin() as connection:
        connection.execute(sa.text(restart.format(1)))
    return tokens


@contextmanager
def _served(app):
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        server = uvicorn.Server(
            uvicorn.Config(app, log_config=None, access_log=False, timeout_graceful_shutdown=2)
        )
        thread = threading.Thread(target=server.run, args=([listening],))
        thread.start()
        try:
            while not server.started:
                assert thread.is_alive()
                time.sleep(0.02)
            yield f"http://127.0.0.1:{listening.getsockname()[1]}"
        finally:
            server.should_exit = True
            thread.join(30)
