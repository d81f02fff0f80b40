"""A secured stack for tests, and pipelines in it."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import uuid
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import psycopg
import yaml
from psycopg import sql

from deploy.local.admission import Admission
from deploy.local.certificates import Certificates, ensure_certificates, issue
from deploy.local.home import CHECKOUT, Home
from deploy.local.kernels import compiling
from deploy.local.security import MECHANISM, SUPER_USER, Security
from deploy.local.stack import Stack
from dovetail.settings import Settings
from dovetail.stream.topics import admin_of
from dovetail.testing.pipeline import RunningPipeline
from tests.e2e.identity import AUDIENCE, ISSUER, IdentityProvider

if TYPE_CHECKING:
    from pathlib import Path

DOVETAIL = CHECKOUT / ".dovetail"
_OAUTH = "org.apache.kafka.common.security.oauthbearer"
_ALLOWED = "-Dorg.apache.kafka.sasl.oauthbearer.allowed"
TOKENS_LAST_S = 20
"""Short enough that every client needs another one while a test runs."""


@dataclass(frozen=True)
class WiderSecurity(Security):
    """A broker that takes tokens as well, and has a listener whose certificate has expired."""

    expired_port: int

    @classmethod
    def of_home(cls, home):
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        security = cls(home.secrets, ensure_certificates(home.secrets), port)
        expired = security.expired
        shutil.rmtree(expired.folder, ignore_errors=True)
        expired.folder.mkdir()
        shutil.copy(security.certificates.authority, expired.authority)
        issue(expired, home.secrets / "ca.key", days=-1)
        return security

    @property
    def key_set(self) -> Path:
        """The keys by which tokens are believed."""
        return self.folder / "jwks.json"

    @property
    def expired(self):
        """A certificate by the stack's authority for a day that is over."""
        return Certificates(self.folder / "expired")

    def broker_settings(self, bootstrap, controller):
        settings = super().broker_settings(bootstrap, controller)
        oauth, expired = "listener.name.clients.oauthbearer", "listener.name.expired"
        protocols = settings["listener.security.protocol.map"]
        return settings | {
            "sasl.enabled.mechanisms": f"{MECHANISM},OAUTHBEARER",
            f"{oauth}.sasl.jaas.config": f"{_OAUTH}.OAuthBearerLoginModule required;",
            f"{oauth}.sasl.server.callback.handler.class": (
                f"{_OAUTH}.OAuthBearerValidatorCallbackHandler"
            ),
            f"{oauth}.sasl.oauthbearer.jwks.endpoint.url": self.key_set.as_uri(),
            f"{oauth}.sasl.oauthbearer.expected.issuer": ISSUER,
            f"{oauth}.sasl.oauthbearer.expected.audience": AUDIENCE,
            # A connection ends with its token, unless its client shows another one before.
            f"{oauth}.connections.max.reauth.ms": 3_600_000,
            "listeners": f"{settings['listeners']},EXPIRED://127.0.0.1:{self.expired_port}",
            "listener.security.protocol.map": f"{protocols},EXPIRED:SSL",
            f"{expired}.ssl.keystore.location": self.expired.bundle,
        }

    def java_options(self):
        """A broker reads keys from places alone that it was told of by its start."""
        return f"{_ALLOWED}.urls={self.key_set.as_uri()} {_ALLOWED}.files={self.key_set}"


@dataclass(frozen=True)
class Secured:
    stack: Stack
    provider: IdentityProvider

    @property
    def security(self):
        return self.stack.security


@contextmanager
def secured_stack(environ):
    """A broker and a PostgreSQL of its own, empty, and whoever gives out tokens for the broker."""
    home = Home(DOVETAIL / "test-secure", DOVETAIL)
    security = WiderSecurity.of_home(home)
    with IdentityProvider(security, TOKENS_LAST_S) as provider:
        security.key_set.write_text(provider.key_set())
        told = {"JAVA_TOOL_OPTIONS": security.java_options()}
        stack = Stack(home, environ={**environ, **told}, usual_ports={}, security=security)
        stack.wipe()
        with stack:
            yield Secured(stack, provider)


def settings_of(secured, **changed):
    """Of the stack's own user, with something changed."""
    environment = {
        "KAFKA_BOOTSTRAP": secured.stack.bootstrap,
        **secured.security.kafka_environment(SUPER_USER),
        **changed,
    }
    return Settings.of_kafka(environment)


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
def secured_pipeline(stack, database, spec, folder, as_user=None):
    """The services of a pipeline, each a user of its own; `as_user` is Admission's."""
    home = Home(stack.home.folder / "pipelines" / folder, DOVETAIL)
    named = {"name": f"test-{uuid.uuid4().hex[:12]}", **spec}
    pipeline = RunningPipeline(
        home,
        stack.bootstrap,
        "",
        named,
        environment={"DATABASE_URL": ""},
        admit=lambda topology: Admission(stack, topology, database, as_user),
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


def what_a_refused_mapper_says(secured, environment):
    """Start one that the broker will not let in; return what it printed before it ended."""
    ended = subprocess.run(
        [sys.executable, "-m", "services.mapper.main"],
        cwd=CHECKOUT,
        env={
            **os.environ,
            "KAFKA_BOOTSTRAP": secured.stack.bootstrap,
            "DATABASE_URL": "postgresql://nobody@nowhere/none",
            **environment,
        },
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        timeout=120,
    )
    assert ended.returncode == 2
    assert "mapper: the Kafka broker at" in ended.stdout
    return ended.stdout
