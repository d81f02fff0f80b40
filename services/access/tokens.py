"""Tokens in the control database: 256 random bits each, of which only the SHA-256 is kept.

So many bits cannot be guessed or tried, and a slow hash, as passwords need it, would only slow down
every request. A token that was found good is believed for two seconds without asking again: so
long a revoked one may still be used.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa

from dovetail.roles import SCHEMA
from services.access.roles import Role, Who
from services.problem import Blame, Kind, ProblemError, conflict, not_found
from services.spark.runs import as_unavailable

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime

BELIEVED_S = 2.0
ENVIRONMENT = "environment"
PASS, PASS_S = "pass", 60.0
_RESERVED = (ENVIRONMENT, PASS)
"""Who makes a token is known by name: no token may have one of these."""
_PREFIX = "dvt_"
_MOST_KEPT = 10_000

TOKENS = sa.Table(
    "tokens",
    sa.MetaData(schema=SCHEMA),
    sa.Column("id", sa.BigInteger, sa.Identity(always=True), primary_key=True),
    sa.Column("name", sa.Text, nullable=False),
    sa.Column("role", sa.Text, nullable=False),
    sa.Column("digest", sa.LargeBinary, nullable=False),
    sa.Column("old_digest", sa.LargeBinary),
    sa.Column("old_until", sa.DateTime(timezone=True)),
    sa.Column("created_at", sa.DateTime(timezone=True), server_default=sa.func.now()),
    sa.Column("created_by", sa.Text, nullable=False),
    sa.Column("expires_at", sa.DateTime(timezone=True)),
    sa.Column("last_used_at", sa.DateTime(timezone=True)),
    sa.Column("revoked_at", sa.DateTime(timezone=True)),
)
_SHOWN = [
    TOKENS.c[name]
    for name in (
        *("id", "name", "role", "created_at", "created_by"),
        *("expires_at", "last_used_at", "revoked_at"),
    )
]
_HOLDS = TOKENS.c.revoked_at.is_(None) & (
    TOKENS.c.expires_at.is_(None) | (TOKENS.c.expires_at > sa.func.now())
)


@dataclass(frozen=True, slots=True)
class TokenRow:
    id: int
    name: str
    role: Role
    created_at: datetime
    created_by: str
    expires_at: datetime | None
    last_used_at: datetime | None
    revoked_at: datetime | None


def new_token() -> str:
    return f"{_PREFIX}{secrets.token_urlsafe(32)}"


def digest_of(token: str) -> bytes:
    return hashlib.sha256(token.encode()).digest()


class Tokens:
    def __init__(self, engine: sa.Engine, clock: Callable[[], float] = time.monotonic) -> None:
        self._engine = engine
        self._clock = clock
        self._known: dict[bytes, tuple[float, Who]] = {}
        self._guard = threading.Lock()

    def known(self, token: str) -> Who | None:
        """Who was found to have it a moment ago; asks nobody."""
        found = self._known.get(digest_of(token))
        return found[1] if found and self._clock() - found[0] < BELIEVED_S else None

    def find(self, token: str) -> Who | None:
        """Who has this token; None if nobody has, or no longer."""
        digest = digest_of(token)
        old = (TOKENS.c.old_digest == digest) & (TOKENS.c.old_until > sa.func.now())
        wanted = sa.select(
            TOKENS.c.id, TOKENS.c.name, TOKENS.c.role, TOKENS.c.digest, TOKENS.c.old_digest
        ).where(_HOLDS, (TOKENS.c.digest == digest) | old)
        with as_unavailable(), self._engine.begin() as connection:
            row = connection.execute(wanted).first()
            if row is None:
                return None
            connection.execute(
                sa.update(TOKENS).where(TOKENS.c.id == row.id).values(last_used_at=sa.func.now())
            )
        kept = (row.digest, row.old_digest or b"")
        if not any(hmac.compare_digest(digest, bytes(one)) for one in kept):
            return None
        who = Who(row.name, Role(row.role), row.id)
        with self._guard:
            if len(self._known) >= _MOST_KEPT:
                self._known.clear()
            self._known[digest] = (self._clock(), who)
        return who

    def all(self) -> list[TokenRow]:
        wanted = (
            sa.select(*_SHOWN)
            .where(TOKENS.c.created_by != PASS, TOKENS.c.role != Role.PASS)
            .order_by(TOKENS.c.id.desc())
            .limit(1000)
        )
        with as_unavailable(), self._engine.connect() as connection:
            return [_row(row) for row in connection.execute(wanted)]

    def create(
        self, name: str, role: Role, by: str, expires_in_s: float | None = None
    ) -> tuple[TokenRow, str]:
        """Make a token; it is given out here, and never again."""
        if name in _RESERVED:
            text = f"{name!r} is not for a token: by it we know those that we make ourselves"
            raise ProblemError(Kind.REQUEST_INVALID, text, blames=[Blame("body.name", text)])
        token = new_token()
        return self._insert(name, role, by, digest_of(token), expires_in_s), token

    def pass_for(self, service: str) -> str:
        """A token for a minute, by which control may look at stages; those before it end."""
        old = (TOKENS.c.created_by == PASS) & (TOKENS.c.expires_at < sa.func.now())
        token = new_token()
        with as_unavailable(), self._engine.begin() as connection:
            connection.execute(sa.delete(TOKENS).where(old))
        self._insert(service, Role.PASS, PASS, digest_of(token), PASS_S)
        return token

    def rotate(self, number: int, keep_old_for_s: float) -> tuple[TokenRow, str]:
        """Give a token another value; the one before holds for so long."""
        token = new_token()
        held = sa.select(TOKENS.c.digest, TOKENS.c.old_digest, TOKENS.c.created_by).where(
            TOKENS.c.id == number, _HOLDS
        )
        changed = (
            sa.update(TOKENS)
            .where(TOKENS.c.id == number)
            .values(
                old_digest=TOKENS.c.digest,
                old_until=sa.func.now() + sa.func.make_interval(0, 0, 0, 0, 0, 0, keep_old_for_s),
                digest=digest_of(token),
            )
            .returning(*_SHOWN)
        )
        with as_unavailable(), self._engine.begin() as connection:
            before = connection.execute(held.with_for_update()).first()
            if before is None:
                raise not_found(f"there is no token {number} that holds; GET /v1/tokens lists them")
            row = connection.execute(changed).one()
            if before.created_by == ENVIRONMENT and before.old_digest is None:
                # What the environment gave stays known, and ended: see `set_first`.
                connection.execute(_of_environment(before.digest, revoked_at=sa.func.now()))
        self._forget()
        return _row(row), token

    def revoke(self, number: int) -> None:
        others = sa.select(sa.func.count()).where(
            TOKENS.c.role == Role.ADMIN, TOKENS.c.id != number, _HOLDS
        )
        with as_unavailable(), self._engine.begin() as connection:
            connection.execute(sa.text(f"LOCK TABLE {SCHEMA}.tokens IN SHARE ROW EXCLUSIVE MODE"))
            one = sa.select(TOKENS.c.role).where(TOKENS.c.id == number, _HOLDS)
            role = connection.scalar(one)
            if role is None:
                raise not_found(f"there is no token {number} that holds; GET /v1/tokens lists them")
            if role == Role.ADMIN and not connection.scalar(others):
                raise conflict(
                    "it is the last admin token, and nobody could make another one: make one first"
                )
            connection.execute(
                sa.update(TOKENS).where(TOKENS.c.id == number).values(revoked_at=sa.func.now())
            )
        self._forget()

    def set_first(self, token: str) -> None:
        """Let the admin token be this one that the environment gives; the one before ends.

        One that was taken already stays as it is now: revoked, perhaps, or rotated.
        """
        digest = digest_of(token)
        mine = TOKENS.c.created_by == ENVIRONMENT
        taken = sa.select(TOKENS.c.digest).where(mine, TOKENS.c.old_digest.is_(None))
        with as_unavailable(), self._engine.begin() as connection:
            connection.execute(sa.text(f"LOCK TABLE {SCHEMA}.tokens IN SHARE ROW EXCLUSIVE MODE"))
            last = connection.scalar(taken.order_by(TOKENS.c.id.desc()).limit(1))
            if last is not None and hmac.compare_digest(digest, bytes(last)):
                return
            # It may be one from before the last.
            connection.execute(sa.delete(TOKENS).where(mine, TOKENS.c.digest == digest))
            ended = sa.update(TOKENS).where(mine, TOKENS.c.revoked_at.is_(None))
            connection.execute(ended.values(revoked_at=sa.func.now()))
            connection.execute(_of_environment(digest))
        self._forget()

    def _insert(
        self, name: str, role: Role, by: str, digest: bytes, expires_in_s: float | None
    ) -> TokenRow:
        until: Any = None
        if expires_in_s is not None:
            until = sa.func.now() + sa.func.make_interval(0, 0, 0, 0, 0, 0, expires_in_s)
        made = (
            sa.insert(TOKENS)
            .values(name=name, role=role, digest=digest, created_by=by, expires_at=until)
            .returning(*_SHOWN)
        )
        with as_unavailable(), self._engine.begin() as connection:
            return _row(connection.execute(made).one())

    def _forget(self) -> None:
        with self._guard:
            self._known.clear()


def _of_environment(digest: bytes, **more: Any) -> sa.Insert:
    return sa.insert(TOKENS).values(
        name="root", role=Role.ADMIN, digest=digest, created_by=ENVIRONMENT, **more
    )


def _row(row: sa.Row[Any]) -> TokenRow:
    columns = row._asdict()
    return TokenRow(**{**columns, "role": Role(columns["role"])})
