from __future__ import annotations

from pathlib import Path

import pytest

from dovetail.errors import ConfigError
from dovetail.settings import Settings

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
    with pytest.raises(ConfigError, match=f"{name}='one' is not a whole number"):
        Settings.from_environment({**LEAST, name: "one"})


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
