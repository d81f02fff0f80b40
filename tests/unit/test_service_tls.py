"""A service with a certificate: who is answered, and what is refused."""

from __future__ import annotations

import socket
import ssl
import threading
import time
import urllib.error
import urllib.request

import pytest
import uvicorn

from deploy.image import health
from deploy.local.certificates import ensure_certificates
from dovetail.errors import ConfigError
from dovetail.service import tls


@pytest.fixture(scope="module")
def certificates(tmp_path_factory):
    return ensure_certificates(tmp_path_factory.mktemp("tls"))


@pytest.fixture
def told(certificates):
    return {
        tls.CERTIFICATE: str(certificates.server),
        tls.KEY: str(certificates.key),
        tls.AUTHORITY: str(certificates.authority),
    }


async def app(scope, receive, send):
    if scope["type"] == "http":
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"well"})


@pytest.fixture
def port(told):
    config = uvicorn.Config(
        app, "127.0.0.1", 0, log_config=None, lifespan="off", **tls.served(told)
    )
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    while not server.started:
        time.sleep(0.01)
    yield server.servers[0].sockets[0].getsockname()[1]
    server.should_exit = True
    thread.join()


def test_without_a_certificate_it_is_plain_http():
    assert tls.served({}) == {}
    assert tls.scheme({}) == "http"
    assert tls.asked({}) is None


def test_control_believes_the_authority_and_nobody_else(port, told):
    url = f"https://127.0.0.1:{port}/ready"
    with urllib.request.urlopen(url, timeout=10, context=tls.asked(told)) as answer:
        assert answer.read() == b"well"
    with pytest.raises(urllib.error.URLError, match="CERTIFICATE_VERIFY_FAILED"):
        urllib.request.urlopen(url, timeout=10, context=ssl.create_default_context())
    assert tls.scheme(told) == "https"


def test_whom_control_asks_by_name_has_to_have_it(port, told):
    def hello(name, **how):
        with (
            socket.create_connection(("127.0.0.1", port), 10) as plain,
            tls.asked(told, **how).wrap_socket(plain, server_hostname=name),
        ):
            pass

    hello("localhost", by_name=True)
    hello("sales-cache-phase-0.sales-cache-phase")
    with pytest.raises(ssl.SSLCertVerificationError, match="Hostname mismatch"):
        hello("sales-cache-phase-0.sales-cache-phase", by_name=True)


def test_the_images_health_check_asks_by_tls(port, told, monkeypatch, capsys):
    for name, value in {**told, "DOVETAIL_PORT": str(port)}.items():
        monkeypatch.setenv(name, value)
    assert health.main(["/ready"]) == 0
    assert "well" in capsys.readouterr().out


@pytest.mark.parametrize("missing", [tls.CERTIFICATE, tls.KEY])
def test_one_without_the_other_is_refused(told, missing):
    with pytest.raises(ConfigError, match=missing):
        tls.served({name: value for name, value in told.items() if name != missing})


def test_what_is_no_certificate_is_refused(told, tmp_path):
    (tmp_path / "none").write_text("nothing")
    for name in (tls.CERTIFICATE, tls.KEY):
        with pytest.raises(ConfigError, match="no certificate and its key"):
            tls.served({**told, name: str(tmp_path / "none")})
    for name in ("none", "gone"):
        with pytest.raises(ConfigError, match=f"{tls.AUTHORITY} names no authority"):
            tls.asked({tls.AUTHORITY: str(tmp_path / name)})


@pytest.mark.parametrize("value", ["-----BEGIN PRIVATE KEY-----", "s3cret" * 1000])
def test_what_was_given_in_place_of_a_file_is_not_shown(told, value):
    for look, name in (
        (tls.served, tls.CERTIFICATE),
        (tls.served, tls.KEY),
        (tls.asked, tls.AUTHORITY),
    ):
        with pytest.raises(ConfigError, match=name) as refused:
            look({**told, name: value})
        assert value not in str(refused.value)
        assert refused.value.__suppress_context__
