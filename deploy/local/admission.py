"""Lets a pipeline into a secured stack: users and ACLs on the broker, roles in the database.

Each service is a user of its own with what it needs and no more (dovetail/permissions.py,
dovetail/roles.py), and finds its passwords in files.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import psycopg
from psycopg import sql

from dovetail import roles
from dovetail.permissions import FREQUENCY, permissions_of, users
from dovetail.settings import Settings
from dovetail.stream import acls
from dovetail.stream.topics import admin_of
from dovetail.topology import BACKFILL, CONTROL, ENRICH

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from deploy.local.stack import Stack
    from dovetail.topology import Topology


_CONTROLS = (CONTROL, ENRICH, FREQUENCY, BACKFILL)
"""Who writes the control service's tables: jobs on Spark write down their runs."""


class Admission:
    """Call it with a service's name for what the service has in its environment."""

    def __init__(
        self,
        stack: Stack,
        topology: Topology,
        database: str = "",
        as_user: Callable[[str], dict[str, str]] | None = None,
    ) -> None:
        """`database` is the name of one on the stack's server, its own unless given.

        `as_user` gives what proves to the broker who a process is; a password unless given.
        """
        assert stack.security is not None
        self._stack = stack
        self._security = stack.security
        self._topology = topology
        self._database = database
        self._as_user = as_user or stack.security.kafka_environment
        self.users = users(topology)

    def settings(self, pipeline: Path) -> Settings:
        """Of the stack itself, who may do everything."""
        url = self._stack.database.url_of(self._database)
        return Settings(self._stack.bootstrap, url, pipeline, kafka=self._stack.client)

    def grant(self, pipeline: Path) -> None:
        """Make the users and give them what they need; the master tables have to be there."""
        settings = self.settings(pipeline)
        admin = admin_of(settings)
        for user in self.users.values():
            acls.set_password(admin, user, self._security.password(user))
        needed = {
            user: permissions_of(self._topology, service) for service, user in self.users.items()
        }
        acls.apply(admin, needed)
        with psycopg.connect(settings.database_url, autocommit=True) as connection:
            connection.execute(roles.script(self._topology.pipeline))
            for role in roles.ROLES:
                password = self._security.password(role)
                connection.execute(
                    sql.SQL("ALTER ROLE {} PASSWORD {}").format(
                        sql.Identifier(role), sql.Literal(password)
                    )
                )

    def __call__(self, service: str) -> dict[str, str]:
        return {
            **self._as_user(self.users[service]),
            **self._role("DATABASE", roles.READER),
            **self._role("CONTROL_DATABASE", roles.CONTROL if service in _CONTROLS else roles.GATE),
            **self._token(service),
        }

    def _role(self, prefix: str, role: str) -> dict[str, str]:
        return {
            f"{prefix}_URL": self._stack.database.address_for(role, self._database),
            f"{prefix}_PASSWORD_FILE": str(self._security.password_file(role)),
        }

    def _token(self, service: str) -> dict[str, str]:
        if service != CONTROL:
            return {}
        return {"DOVETAIL_ADMIN_TOKEN_FILE": str(self._security.token_file())}
