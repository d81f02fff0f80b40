"""Who is not let into a secured stack, or not believed by its clients, and what they are told."""

from __future__ import annotations

import time
from contextlib import contextmanager

import psycopg
import pytest

from deploy.local.certificates import ensure_certificates
from deploy.local.home import CHECKOUT
from deploy.local.security import SUPER_USER
from dovetail.errors import NotAllowedError, Unavailable
from dovetail.pipeline.check import require_master
from dovetail.pipeline.load import load_pipeline
from dovetail.settings import Settings
from dovetail.stream.topics import ensure_topics
from services.access.tokens import Tokens
from services.spark.runs import control_engine
from tests.e2e.secured import settings_of, what_a_refused_mapper_says


def written(file, text):
    file.write_text(text)
    return str(file)


def test_a_wrong_password_is_told_at_once_and_not_shown(secured, tmp_path):
    wrong = written(tmp_path / "password", "not-the-password")
    settings = settings_of(secured, KAFKA_SASL_PASSWORD_FILE=wrong)
    with pytest.raises(NotAllowedError, match=r"(?i)authentication failed") as refused:
        ensure_topics(settings, [])
    assert f"user {SUPER_USER}" in str(refused.value)
    assert "KAFKA_SASL_PASSWORD_FILE" in str(refused.value)
    assert "not-the-password" not in str(refused.value)


def test_a_broker_by_another_authority_is_not_believed(secured, tmp_path):
    other = ensure_certificates(tmp_path).authority
    settings = settings_of(secured, KAFKA_SSL_CA_LOCATION=str(other))
    with pytest.raises(NotAllowedError, match="certificate verify failed") as refused:
        ensure_topics(settings, [])
    assert "KAFKA_SSL_CA_LOCATION" in str(refused.value)


def test_who_does_not_speak_tls_is_not_let_in(secured):
    with pytest.raises(Unavailable, match="no Kafka broker answers"):
        ensure_topics(Settings(secured.stack.bootstrap, "", None), [])


def test_a_database_by_another_authority_is_not_believed(secured, tmp_path):
    other = ensure_certificates(tmp_path).authority
    ours = str(secured.security.certificates.authority)
    url = secured.stack.database_url.replace(ours, str(other))
    assert url != secured.stack.database_url
    pipeline = load_pipeline(CHECKOUT / "pipeline.yaml", {})
    with pytest.raises(Unavailable, match="certificate verify failed") as refused:
        require_master(pipeline, url)
    assert (secured.stack.home.data / "postgres.password").read_text() not in str(refused.value)


def test_a_database_by_another_name_is_not_believed(secured, tmp_path):
    # The certificate is for 127.0.0.1 and localhost; this is the same machine.
    url = secured.stack.database_url.replace("@127.0.0.1", "@elsewhere.invalid")
    url += "&hostaddr=127.0.0.1"
    pipeline = load_pipeline(CHECKOUT / "pipeline.yaml", {})
    with pytest.raises(Unavailable, match=r"elsewhere\.invalid"):
        require_master(pipeline, url)


def test_a_broker_whose_certificate_has_expired_is_not_believed(secured):
    place = f"127.0.0.1:{secured.security.expired_port}"
    with pytest.raises(NotAllowedError, match="certificate has expired") as refused:
        ensure_topics(settings_of(secured, KAFKA_BOOTSTRAP=place), [])
    assert f"the certificate of {place}" in str(refused.value)


@contextmanager
def shown_by_the_database(secured, certificates):
    """Have PostgreSQL show another certificate."""
    files = {
        secured.stack.home.data / "postgres" / name: file
        for name, file in (("server.crt", certificates.server), ("server.key", certificates.key))
    }
    before = {file: file.read_text() for file in files}
    with psycopg.connect(secured.stack.database_url, autocommit=True) as connection:
        for file, other in files.items():
            file.write_text(other.read_text())
        connection.execute("SELECT pg_reload_conf()")
        try:
            yield
        finally:
            for file, text in before.items():
                file.write_text(text)
            connection.execute("SELECT pg_reload_conf()")
            secured.stack.database.wait_until_healthy()


def test_a_database_whose_certificate_has_expired_is_not_believed(secured):
    url = secured.stack.database_url
    place = url.partition("@")[2].partition("/")[0]
    pipeline = load_pipeline(CHECKOUT / "pipeline.yaml", {})
    with shown_by_the_database(secured, secured.security.expired):
        wait_until_refused(url)
        for ask in (
            lambda: require_master(pipeline, url),
            lambda: Tokens(control_engine(url)).all(),
        ):
            with pytest.raises(Unavailable, match="certificate has expired") as refused:
                ask()
            assert f"the certificate of {place}" in str(refused.value)


def wait_until_refused(url):
    """The server reads its certificate some time after it is told to."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        try:
            psycopg.connect(url).close()
        except psycopg.OperationalError:
            return
        time.sleep(0.05)
    pytest.fail("the certificate is still the old one")


def test_a_database_takes_nobody_without_tls(secured):
    url = secured.stack.database_url.partition("?")[0] + "?sslmode=disable"
    with pytest.raises(psycopg.OperationalError, match="no encryption"):
        psycopg.connect(url)


def test_a_service_with_a_wrong_password_ends_and_says_so(secured, tmp_path):
    wrong = written(tmp_path / "password", "not-the-password")
    environment = secured.security.kafka_environment(SUPER_USER)
    said = what_a_refused_mapper_says(secured, {**environment, "KAFKA_SASL_PASSWORD_FILE": wrong})
    assert "not-the-password" not in said
