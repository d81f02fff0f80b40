"""Makes the database's roles and sets their passwords: `roles`, as who administers the database.

DATABASE_URL is the administrator's, or DATABASE_URL_FILE, DATABASE_PASSWORD_FILE. Each role's
password is in a file of its name below /run/secrets, or below DOVETAIL_ROLES. It can be run again
at any time: after a change of the pipeline's tables, or of a password.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import psycopg
from psycopg import sql

from dovetail import roles
from dovetail.errors import ConfigError, DovetailError
from dovetail.pipeline.load import load_pipeline
from dovetail.settings import database_url

if TYPE_CHECKING:
    from collections.abc import Mapping


def main(environment: Mapping[str, str] = os.environ) -> int:
    try:
        admit(environment)
    except (DovetailError, psycopg.Error) as error:
        print(f"roles: {error}", file=sys.stderr)
        return 1
    print(f"roles: {', '.join(roles.ROLES)}")
    return 0


def admit(environment: Mapping[str, str]) -> None:
    pipeline = load_pipeline(Path(environment.get("DOVETAIL_PIPELINE", "pipeline.yaml")))
    folder = Path(environment.get("DOVETAIL_ROLES", "/run/secrets"))
    passwords = {role: _password(folder / role) for role in roles.ROLES}
    with psycopg.connect(database_url(environment)) as connection:
        connection.execute(roles.script(pipeline))
        for role, password in passwords.items():
            connection.execute(
                sql.SQL("ALTER ROLE {} PASSWORD {}").format(
                    sql.Identifier(role), sql.Literal(password)
                )
            )


def _password(file: Path) -> str:
    try:
        password = file.read_text(encoding="utf-8").strip()
    except OSError as error:
        raise ConfigError(f"a role's password cannot be read: {file}: {error.strerror}") from None
    if not password:
        raise ConfigError(f"a role's password is empty: {file}")
    return password


if __name__ == "__main__":
    sys.exit(main())
