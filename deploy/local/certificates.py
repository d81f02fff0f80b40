"""The certificates of a secured stack: an authority of its own, and one certificate by it.

    <home>/secrets/ca.pem        what clients verify servers by
    <home>/secrets/ca.key
    <home>/secrets/server.pem    of the broker and of PostgreSQL, for this machine's loopback
    <home>/secrets/server.key

Made at the first start and again when they are about to expire; keys are their owner's alone.
"""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from deploy.local.files import write_atomically

if TYPE_CHECKING:
    from pathlib import Path

COMMON_NAME = "dovetail-stack"
HOSTS = ("localhost", "127.0.0.1")
_AUTHORITY_DAYS = 3650
_SERVER_DAYS = 397
_RENEWED_BEFORE = timedelta(days=30)


@dataclass(frozen=True)
class Certificates:
    """Where they are."""

    folder: Path

    @property
    def authority(self) -> Path:
        return self.folder / "ca.pem"

    @property
    def server(self) -> Path:
        return self.folder / "server.pem"

    @property
    def key(self) -> Path:
        return self.folder / "server.key"

    @property
    def bundle(self) -> Path:
        """Key and certificate in one file, as the broker wants them."""
        return self.folder / "server.bundle.pem"


def ensure_certificates(folder: Path) -> Certificates:
    """Make what is missing or about to expire."""
    made = Certificates(folder)
    authority_key = folder / "ca.key"
    if not (_holds(made.authority) and authority_key.exists()):
        _make_authority(made.authority, authority_key)
        made.server.unlink(missing_ok=True)
    if not (_holds(made.server) and made.key.exists() and made.bundle.exists()):
        issue(made, authority_key)
    return made


def issue(
    at: Certificates,
    authority_key: Path,
    *,
    hosts: tuple[str, ...] = HOSTS,
    days: int = _SERVER_DAYS,
) -> None:
    """Issue the servers' certificate; one for fewer than 0 days has expired already."""
    key = ec.generate_private_key(ec.SECP256R1())
    authority = x509.load_pem_x509_certificate(at.authority.read_bytes())
    signer = serialization.load_pem_private_key(authority_key.read_bytes(), None)
    assert isinstance(signer, ec.EllipticCurvePrivateKey)
    now = datetime.now(UTC)
    usages = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
    certificate = (
        x509.CertificateBuilder()
        .subject_name(_name(COMMON_NAME))
        .issuer_name(authority.subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=max(1, 1 - days)))
        .not_valid_after(now + timedelta(days=days))
        .add_extension(x509.SubjectAlternativeName([_host(host) for host in hosts]), critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.ExtendedKeyUsage(usages), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key()), critical=False
        )
        .sign(signer, hashes.SHA256())
    )
    written = certificate.public_bytes(serialization.Encoding.PEM).decode()
    write_atomically(at.key, _private(key), mode=0o600)
    write_atomically(at.bundle, _private(key) + written, mode=0o600)
    # Last: it is what is looked for.
    write_atomically(at.server, written)


def _make_authority(place: Path, key_place: Path) -> None:
    key = ec.generate_private_key(ec.SECP256R1())
    name, now = _name("Dovetail local stack"), datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=_AUTHORITY_DAYS))
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(key, hashes.SHA256())
    )
    write_atomically(key_place, _private(key), mode=0o600)
    write_atomically(place, certificate.public_bytes(serialization.Encoding.PEM).decode())


def _holds(certificate: Path) -> bool:
    if not certificate.exists():
        return False
    read = x509.load_pem_x509_certificate(certificate.read_bytes())
    return read.not_valid_after_utc > datetime.now(UTC) + _RENEWED_BEFORE


def _private(key: ec.EllipticCurvePrivateKey) -> str:
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    ).decode()


def _name(common: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common)])


def _host(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)
