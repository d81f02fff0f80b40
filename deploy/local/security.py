"""What makes a local stack a secured one: certificates, users with passwords, and who may what.

    <home>/secrets/passwords/<user>    a user's password, of Kafka or of PostgreSQL
    <home>/secrets/admin.token         the API's first token

The broker takes TLS and SCRAM alone and denies whatever no ACL allows; its controller takes the
stack's own certificate. Only `stack` is a super user, and only the supervisor is `stack`.
Passwords reach servers by files and by their protocols, never by a command line.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import quote

from deploy.local.certificates import COMMON_NAME, ensure_certificates
from deploy.local.files import write_atomically

if TYPE_CHECKING:
    from pathlib import Path

    from deploy.local.certificates import Certificates
    from deploy.local.home import Home

SUPER_USER = "stack"
MECHANISM = "SCRAM-SHA-512"
_SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"


@dataclass(frozen=True)
class Security:
    folder: Path
    certificates: Certificates

    @classmethod
    def of_home(cls, home: Home) -> Security:
        return cls(home.secrets, ensure_certificates(home.secrets))

    def password_file(self, user: str) -> Path:
        """The file with a user's password, which is made on first use."""
        folder = self.folder / "passwords"
        folder.mkdir(mode=0o700, exist_ok=True)
        return _secret(folder / user)

    def password(self, user: str) -> str:
        return self.password_file(user).read_text()

    def token_file(self) -> Path:
        return _secret(self.folder / "admin.token")

    # --- the broker

    def broker_settings(self, bootstrap: str, controller: str) -> dict[str, object]:
        """The broker's own settings; they hold the super user's password."""
        login = f'username="{SUPER_USER}" password="{self.password(SUPER_USER)}"'
        return {
            "listeners": f"CLIENTS://{bootstrap},CONTROLLER://{controller}",
            "listener.security.protocol.map": "CLIENTS:SASL_SSL,CONTROLLER:SSL",
            "inter.broker.listener.name": "CLIENTS",
            "sasl.enabled.mechanisms": MECHANISM,
            "sasl.mechanism.inter.broker.protocol": MECHANISM,
            "listener.name.clients.scram-sha-512.sasl.jaas.config": f"{_SCRAM} required {login};",
            "listener.name.controller.ssl.client.auth": "required",
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": self.certificates.bundle,
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": self.certificates.authority,
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "allow.everyone.if.no.acl.found": "false",
            "super.users": f"User:{SUPER_USER};User:CN={COMMON_NAME}",
        }

    def format_words(self) -> list[str]:
        """Words for Kafka's format tool that make the super user: read from a file, not seen."""
        words = self.folder / "format.words"
        user = f"{MECHANISM}=[name={SUPER_USER},password={self.password(SUPER_USER)}]"
        write_atomically(words, f"--add-scram\n{user}\n", mode=0o600)
        return [f"@{words}"]

    # --- its clients

    def kafka_environment(self, user: str) -> dict[str, str]:
        """What a process needs in its environment to be this user."""
        return {
            "KAFKA_SECURITY_PROTOCOL": "SASL_SSL",
            "KAFKA_SASL_MECHANISM": MECHANISM,
            "KAFKA_SASL_USERNAME": user,
            "KAFKA_SASL_PASSWORD_FILE": str(self.password_file(user)),
            "KAFKA_SSL_CA_LOCATION": str(self.certificates.authority),
        }

    # --- PostgreSQL's

    def database_query(self) -> str:
        """The end of a URL that has the server prove who it is."""
        authority = quote(str(self.certificates.authority))
        return f"?sslmode=verify-full&sslrootcert={authority}"


def _secret(file: Path) -> Path:
    if not file.exists():
        write_atomically(file, secrets.token_urlsafe(32), mode=0o600)
    return file
