"""TLS for what a service serves itself, and for control, which asks the others.

    DOVETAIL_TLS_CERTIFICATE, DOVETAIL_TLS_KEY    files (PEM) that it shows who it is by
    DOVETAIL_TLS_AUTHORITY                        whose signature the services' certificates bear

Without a certificate a service speaks plain HTTP.
"""

from __future__ import annotations

import os
import ssl
from typing import TYPE_CHECKING, Any

from dovetail.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping

CERTIFICATE = "DOVETAIL_TLS_CERTIFICATE"
KEY = "DOVETAIL_TLS_KEY"
AUTHORITY = "DOVETAIL_TLS_AUTHORITY"


def scheme(environment: Mapping[str, str] = os.environ) -> str:
    return "https" if environment.get(CERTIFICATE, "").strip() else "http"


def served(environment: Mapping[str, str] = os.environ) -> dict[str, Any]:
    """What uvicorn is told, for a server with a certificate; nothing without one."""
    certificate, key = (environment.get(name, "").strip() for name in (CERTIFICATE, KEY))
    if not certificate and not key:
        return {}
    if not certificate or not key:
        lacking = KEY if certificate else CERTIFICATE
        raise ConfigError(f"{lacking} is not set: a certificate and its key are given together")
    try:
        ssl.create_default_context(ssl.Purpose.CLIENT_AUTH).load_cert_chain(certificate, key)
    except OSError as error:  # an SSLError is one, too
        # The values are not shown: somebody may have put the key itself there.
        raise ConfigError(
            f"{CERTIFICATE} and {KEY} name no certificate and its key: {error.strerror}"
        ) from None
    return {"ssl_certfile": certificate, "ssl_keyfile": key}


def asked(
    environment: Mapping[str, str] = os.environ, *, by_name: bool = False
) -> ssl.SSLContext | None:
    """How control asks the other services; None by what the machine trusts.

    Who answers has to be one of the authority's, and `by_name` the one that the name is of. Else
    it is an address of this machine, as a service says of itself, which no certificate need have.
    """
    authority = environment.get(AUTHORITY, "").strip()
    if not authority:
        return None
    try:
        context = ssl.create_default_context(cafile=authority)
    except OSError as error:
        raise ConfigError(
            f"{AUTHORITY} names no authority's certificate: {error.strerror}"
        ) from None
    context.check_hostname = by_name
    return context
