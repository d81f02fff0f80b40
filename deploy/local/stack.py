"""The local stack: a real Kafka broker and a real PostgreSQL, for as long as a `with` lasts.

    with Stack(Home.of_checkout()) as stack:
        run(stack.bootstrap, stack.database_url)

What the environment already names (`KAFKA_BOOTSTRAP`, `DATABASE_URL`) is used, not started.
A secured one (security.py) starts both, and in a home of its own: data that were written without
users and certificates stay apart.
Enter it from the main thread (see `processes.guarded`).
"""

from __future__ import annotations

import contextlib
import os
import shutil
from typing import TYPE_CHECKING, Any, Self

from deploy.local import jars, ports
from deploy.local.home import Home
from deploy.local.java import find_java
from deploy.local.kafka import Broker, check_kafka
from deploy.local.postgres import Database, check_database
from deploy.local.processes import reap_leftovers, sole_supervisor
from dovetail.errors import ConfigError, StackError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from types import TracebackType

    from deploy.local.security import Security


class Stack:
    def __init__(
        self,
        home: Home | None = None,
        *,
        environ: Mapping[str, str] = os.environ,
        usual_ports: Mapping[str, int] = ports.USUAL,
        kafka_config: Mapping[str, Any] | None = None,
        security: Security | None = None,
        report: Callable[[str], None] = print,
    ) -> None:
        """`kafka_config` adds client settings (TLS, SASL) for a broker that is not started here."""
        self.home = home or Home.of_checkout(environ)
        self.security = security
        self.bootstrap = ""
        self.database_url = ""
        self._environ = environ
        self._usual_ports = usual_ports
        self._kafka_config = kafka_config
        self._report = report
        self._broker: Broker | None = None
        self._database: Database | None = None
        self._exits = contextlib.ExitStack()

    def __enter__(self) -> Self:
        with contextlib.ExitStack() as exits:
            self._start(exits)
            # Reached only if all of it is up: whatever fails above, `exits` stops the rest.
            self._exits = exits.pop_all()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._exits.close()
        self._broker = self._database = None

    @property
    def client(self) -> dict[str, str]:
        """Further settings of a Kafka client of the stack's own, who may do everything."""
        return self.broker.client if self.security else {}

    def environment(self) -> dict[str, str]:
        """Return what a service needs in its environment to find the stack."""
        return {"KAFKA_BOOTSTRAP": self.bootstrap, "DATABASE_URL": self.database_url}

    @property
    def broker(self) -> Broker:
        if self._broker is None:
            raise StackError("the broker is not this stack's: unset KAFKA_BOOTSTRAP to have one")
        return self._broker

    @property
    def database(self) -> Database:
        if self._database is None:
            raise StackError("the database is not this stack's: unset DATABASE_URL to have one")
        return self._database

    def check(self) -> None:
        """Raise if the broker or the database has ended by itself."""
        for part in self._parts():
            part.check()

    def wipe(self) -> None:
        """Delete all data; refused while the stack runs."""
        with sole_supervisor(self.home):
            reap_leftovers(self.home)
            shutil.rmtree(self.home.data)

    def _start(self, exits: contextlib.ExitStack) -> None:
        """Start both before waiting for either: they come up side by side, without threads.

        1. Be the only supervisor, and end what a killed one left.
        2. Find all that is needed (ports, Java, jars, binaries) before anything starts.
        3. Make ready and start PostgreSQL, then Kafka; `exits` stops them in reverse order.
        4. Wait for both.
        """
        # Step 1
        exits.enter_context(sole_supervisor(self.home))
        for name in reap_leftovers(self.home):
            self._report(f"ended {name}, left by a stack that was killed")
        # Step 2
        chosen = ports.Ports(self.home, self._environ, self._usual_ports)
        self._database, self._broker = self._own_database(chosen), self._own_broker(chosen)
        # Step 3
        for part in self._parts():
            part.prepare()
            # Before the start: a Ctrl-C in the midst of it must stop what has just come to life.
            exits.callback(part.stop)
            part.start()
        # Step 4
        for part in self._parts():
            part.wait_until_healthy()
        database, broker = self._database, self._broker
        self.database_url = database.url if database else self._environ["DATABASE_URL"]
        self.bootstrap = broker.bootstrap if broker else self._environ["KAFKA_BOOTSTRAP"]
        self._report(f"Kafka at {self.bootstrap}, PostgreSQL at {_place(self.database_url)}")

    def _parts(self) -> list[Broker | Database]:
        return [part for part in (self._database, self._broker) if part]

    def _own_database(self, chosen: ports.Ports) -> Database | None:
        """Return the server to start; None if the environment names one, and it answers."""
        given = self._given("DATABASE_URL")
        if given:
            check_database(given)
            return None
        return Database(self.home, chosen.choose(ports.POSTGRES), self._environ, self.security)

    def _own_broker(self, chosen: ports.Ports) -> Broker | None:
        """Return the broker to start; None if the environment names one, and it answers."""
        given = self._given("KAFKA_BOOTSTRAP")
        if given:
            check_kafka(given, self._kafka_config)
            return None
        port, controller_port = chosen.choose(ports.KAFKA), chosen.choose(ports.KAFKA_CONTROLLER)
        java = find_java(self._environ)
        fetched = jars.fetch(jars.KAFKA, self.home, self._report, self._environ)
        return Broker(
            self.home,
            java=java,
            jars=fetched,
            port=port,
            controller_port=controller_port,
            environ=self._environ,
            security=self.security,
        )

    def _given(self, variable: str) -> str | None:
        given = self._environ.get(variable)
        if given and self.security:
            raise ConfigError(
                f"a secured stack starts a broker and a database of its own: unset {variable}, or "
                "run against what it names without SECURE"
            )
        return given


def _place(url: str) -> str:
    """Return host, port and name without user, password and options."""
    return url.rpartition("@")[2].partition("?")[0]
