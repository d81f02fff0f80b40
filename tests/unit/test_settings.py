from __future__ import annotations

from pathlib import Path

import pytest
from psycopg.conninfo import conninfo_to_dict

from dovetail.errors import ConfigError
from dovetail.settings import Settings
from dovetail.stream.rdkafka.client import new_conf
from dovetail.stream.topics import admin_of

LEAST = {"KAFKA_BOOTSTRAP": "broker:9092", "DATABASE_URL": "postgresql://host/base"}


def test_two_addresses_are_enough():
    settings = Settings.from_environment(LEAST)
    assert settings.bootstrap == "broker:9092"
    assert settings.database_url == "postgresql://host/base"
    assert settings.pipeline == Path("pipeline.yaml")
    assert (settings.node, settings.host, settings.port) == (0, "127.0.0.1", 0)


@pytest.mark.parametrize("name", LEAST)
@pytest.mark.parametrize("value", [None, "", "  "])
def test_a_missing_address_is_named_with_an_example(name, value):
    environment = {key: text for key, text in LEAST.items() if key != name}
    if value is not None:
        environment[name] = value
    with pytest.raises(ConfigError, match=f"{name} is not set; give it as .+:.+"):
        Settings.from_environment(environment)


@pytest.mark.parametrize("name", ["DOVETAIL_NODE", "DOVETAIL_PORT"])
def test_what_is_no_number_is_refused_by_name(name):
    with pytest.raises(ConfigError, match=f"^{name} is not a whole number$"):
        Settings.from_environment({**LEAST, name: "s3cret"})


def test_security_settings_reach_the_kafka_client_and_other_variables_do_not():
    settings = Settings.from_environment(
        {
            **LEAST,
            "KAFKA_SECURITY_PROTOCOL": "SASL_SSL",
            "KAFKA_SASL_USERNAME": "shop",
            "KAFKA_SSL_CA_LOCATION": "/ca.pem",
            "KAFKA_HEAP": "1g",
            "KAFKA_PORT": "9092",
            "SASL_PASSWORD": "elsewhere",
        }
    )
    assert settings.client() == {
        "bootstrap.servers": "broker:9092",
        "security.protocol": "SASL_SSL",
        "sasl.username": "shop",
        "ssl.ca.location": "/ca.pem",
    }


def test_who_has_a_token_is_named_by_its_client_id():
    by_token = {
        "KAFKA_SECURITY_PROTOCOL": "SASL_SSL",
        "KAFKA_SASL_MECHANISM": "OAUTHBEARER",
        "KAFKA_SASL_OAUTHBEARER_METHOD": "oidc",
        "KAFKA_SASL_OAUTHBEARER_CLIENT_ID": "shop",
        "KAFKA_HTTPS_CA_LOCATION": "/ca.pem",
    }
    settings = Settings.from_environment({**LEAST, **by_token})
    assert settings.user == "shop"
    assert settings.client()["https.ca.location"] == "/ca.pem"


def test_what_the_code_asks_of_the_client_cannot_be_overridden():
    settings = Settings.from_environment({**LEAST, "KAFKA_CLIENT_ID": "mine"})
    assert settings.client({"client.id": "ours"})["client.id"] == "ours"


def test_no_secret_is_shown():
    settings = Settings.from_environment(
        {
            "KAFKA_BOOTSTRAP": "broker:9092",
            "DATABASE_URL": "postgresql://me:hidden@db/shop",
            "KAFKA_SASL_PASSWORD": "hidden too",
        }
    )
    assert "hidden" not in repr(settings)
    assert "hidden" not in str(settings)


# --- secrets from files


def secret(tmp_path, text):
    file = tmp_path / "secret"
    file.write_text(f"{text}\n")
    return str(file)


def test_a_password_of_kafka_is_read_from_the_file_that_is_named(tmp_path):
    file = secret(tmp_path, "s3cret")
    settings = Settings.from_environment({**LEAST, "KAFKA_SASL_PASSWORD_FILE": file})
    assert settings.kafka == {"sasl.password": "s3cret"}
    assert "s3cret" not in repr(settings)


def test_a_password_of_the_database_is_put_into_its_url(tmp_path):
    file = secret(tmp_path, "p@ss/w:rd%")
    url = "postgresql://ann@host:5432/base?sslmode=verify-full&sslrootcert=/ca.pem"
    environment = {**LEAST, "DATABASE_URL": url, "DATABASE_PASSWORD_FILE": file}
    read = conninfo_to_dict(Settings.from_environment(environment).database_url)
    assert (read["user"], read["password"]) == ("ann", "p@ss/w:rd%")
    assert (read["host"], read["dbname"], read["sslmode"]) == ("host", "base", "verify-full")


def test_a_whole_url_is_read_from_a_file(tmp_path):
    file = secret(tmp_path, "postgresql://ann:s3cret@host/base")
    environment = {"KAFKA_BOOTSTRAP": "broker:9092", "DATABASE_URL_FILE": file}
    settings = Settings.from_environment(environment)
    assert settings.database_url == "postgresql://ann:s3cret@host/base"
    assert settings.control_database == settings.database_url
    assert "s3cret" not in repr(settings)


def test_the_control_services_tables_may_be_another_users(tmp_path):
    file = secret(tmp_path, "s3cret")
    control = {
        "CONTROL_DATABASE_URL": "postgresql://control@host/base",
        "CONTROL_DATABASE_PASSWORD_FILE": file,
    }
    settings = Settings.from_environment({**LEAST, **control})
    assert settings.control_database == "postgresql://control:s3cret@host/base"
    assert settings.database_url == LEAST["DATABASE_URL"]
    assert "s3cret" not in repr(settings)


def test_a_file_that_cannot_be_read_is_told_by_its_variable(tmp_path):
    for value in (str(tmp_path / "s3cret"), "s3cret", str(tmp_path)):
        environment = {**LEAST, "KAFKA_SASL_PASSWORD_FILE": value}
        with pytest.raises(
            ConfigError, match=r"file that KAFKA_SASL_PASSWORD_FILE names cannot be read: \w+"
        ) as refused:
            Settings.from_environment(environment)
        assert value not in str(refused.value)


def test_a_secret_that_is_given_twice_is_refused_and_not_shown(tmp_path):
    file = secret(tmp_path, "s3cret")
    environment = {**LEAST, "KAFKA_SASL_PASSWORD": "other", "KAFKA_SASL_PASSWORD_FILE": file}
    with pytest.raises(ConfigError, match="both set") as refused:
        Settings.from_environment(environment)
    assert "s3cret" not in str(refused.value)
    assert "other" not in str(refused.value)


@pytest.mark.parametrize("url", ["postgresql://host/base", "postgresql://ann:one@host/base"])
def test_a_password_beside_a_url_that_has_no_place_for_it_is_refused(url, tmp_path):
    file = secret(tmp_path, "s3cret")
    environment = {**LEAST, "DATABASE_URL": url, "DATABASE_PASSWORD_FILE": file}
    with pytest.raises(ConfigError, match="DATABASE_PASSWORD") as refused:
        Settings.from_environment(environment)
    assert "s3cret" not in str(refused.value)
    assert "one@" not in str(refused.value)


def test_who_needs_no_database_is_not_asked_for_one(tmp_path):
    file = secret(tmp_path, "s3cret")
    environment = {"KAFKA_BOOTSTRAP": "broker:9092", "DATABASE_PASSWORD_FILE": file}
    assert Settings.of_kafka(environment).bootstrap == "broker:9092"


@pytest.mark.parametrize("protocol", ["SASL_SSL", "SSL", "SASL_PLAINTEXT"])
def test_who_says_who_it_is_is_known(protocol):
    assert Settings.from_environment({**LEAST, "KAFKA_SECURITY_PROTOCOL": protocol}).is_known
    assert not Settings.from_environment(LEAST).is_known


# --- what is refused is not shown


@pytest.mark.parametrize("name", ["DATABASE_URL", "CONTROL_DATABASE_URL"])
@pytest.mark.parametrize(
    "url",
    [
        "postgres//ann:s3cret@host/base",
        "ann:s3cret@host",
        "s3cret",
        "postgresql://ann:s3/cret@host/base",
        "postgresql://ann:12/s3cret@host/base",
        "postgresql://ann:s3cret@host:x/base",
        "postgresql://ann:s3%zzcret@host/base",
        "postgresql://ann@host/base?s3cret=1",
        "postgresql://[s3cret/base",
        "postgresql://ann:one@s3cret@host:1/base",
    ],
)
def test_a_url_that_cannot_be_read_is_refused_by_name(name, url):
    with pytest.raises(ConfigError, match=f"^{name} cannot be read: write postgresql:") as refused:
        Settings.from_environment({**LEAST, name: url})
    assert "s3" not in str(refused.value)
    assert refused.value.__cause__ is None
    assert refused.value.__suppress_context__ or refused.value.__context__ is None


@pytest.mark.parametrize(
    "url",
    [
        "postgresql:///base",
        "postgresql://one:5432,two:5433/base",
        "host=db dbname=base user=ann",
        "postgresql://ann:p%40ss%2Fword@host/base",
        "postgresql://%2Fvar%2Frun/base",
    ],
)
def test_a_url_that_libpq_can_read_is_taken(url):
    assert Settings.from_environment({**LEAST, "DATABASE_URL": url}).database_url == url


@pytest.mark.parametrize(
    "options",
    [
        {"KAFKA_SECURITY_PROTOCOL": "s3cret"},
        {"KAFKA_SASL_OAUTHBEARER_METHOD": "s3c"},
        {"KAFKA_SECURITY_PROTOCOL": "SSL", "KAFKA_SSL_KEY_PEM": "s3cret"},
        {"KAFKA_SECURITY_PROTOCOL": "SSL", "KAFKA_SSL_KEYSTORE_LOCATION": "s3cret"},
    ],
)
def test_what_the_kafka_client_does_not_take_is_named_and_not_shown(options):
    settings = Settings.from_environment({**LEAST, **options})
    name = list(options)[-1]
    with pytest.raises(ConfigError, match=f"does not take .*{name}: ") as refused:
        admin_of(settings)
    assert "s3c" not in str(refused.value)


def test_nor_by_the_client_of_our_own():
    with pytest.raises(ConfigError, match="does not take KAFKA_SECURITY_PROTOCOL") as refused:
        new_conf({"security.protocol": "s3cret"})
    assert "s3cret" not in str(refused.value)
