"""Why a server's certificate is not believed: expired, by another authority, of another host.

librdkafka and libpq tell only that it could not be verified. After such a failure the certificate
is looked at once more, by the same authority, with nothing said or sent but the greeting.
"""

from __future__ import annotations

import socket
import ssl
import struct
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import psycopg

    from dovetail.settings import Settings

UNVERIFIED = "certificate verify failed"
"""What both of them say, as OpenSSL does."""
_WITHIN_S = 5.0
_ASK_FOR_TLS = struct.pack("!ii", 8, 80877103)
"""PostgreSQL's greeting; its server answers with one letter."""
_YES = b"S"


def of_brokers(settings: Settings) -> str:
    """What is wrong with the certificate of a bootstrap server; empty if nothing is seen."""
    authority = settings.kafka.get("ssl.ca.location", "")
    for server in settings.bootstrap.split(","):
        host, _, port = server.strip().rpartition(":")
        if port.isdecimal() and (why := _why(host.strip("[]"), int(port), authority)):
            return why
    return ""


def of_database(error: psycopg.Error) -> str:
    """The same of the PostgreSQL server that could not be connected to."""
    connection = error.pgconn
    if UNVERIFIED not in str(error) or connection is None:
        return ""
    given = {one.keyword: one.val or b"" for one in connection.info}
    authority = given.get(b"sslrootcert", b"").decode()
    host = connection.host.decode()
    address = given.get(b"hostaddr", b"").decode() or host
    return _why(address, int(connection.port), authority, name=host, greeting=_ASK_FOR_TLS)


def told(error: psycopg.Error) -> str:
    """What PostgreSQL or libpq said, in one line, and of a certificate what is wrong with it."""
    text = " ".join(str(error).split())
    why = of_database(error)
    return f"{text}; {why}" if why else text


def _why(host: str, port: int, authority: str, *, name: str = "", greeting: bytes = b"") -> str:
    try:
        context = ssl.create_default_context(cafile=authority or None)
        with socket.create_connection((host, port), timeout=_WITHIN_S) as plain:
            if greeting:
                plain.sendall(greeting)
                if plain.recv(1) != _YES:
                    return ""
            with context.wrap_socket(plain, server_hostname=name or host):
                return ""
    except ssl.SSLCertVerificationError as error:
        return f"the certificate of {name or host}:{port} is refused: {error.verify_message}"
    except OSError:
        return ""  # it was worth a look; what the library said stands
