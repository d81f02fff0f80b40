"""How Spark's connector reaches Kafka: the settings of librdkafka in the words of Java's client."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dovetail.settings import Settings

_JAAS = {
    "PLAIN": "org.apache.kafka.common.security.plain.PlainLoginModule",
    "SCRAM-SHA-256": "org.apache.kafka.common.security.scram.ScramLoginModule",
    "SCRAM-SHA-512": "org.apache.kafka.common.security.scram.ScramLoginModule",
}
_OAUTH = "org.apache.kafka.common.security.oauthbearer"
_BEARER = "OAUTHBEARER"
_ENDPOINT = "sasl.oauthbearer.token.endpoint.url"
_ALLOWED_URLS = "org.apache.kafka.sasl.oauthbearer.allowed.urls"
_ALIKE = ("security.protocol", "ssl.endpoint.identification.algorithm")


def kafka_options(settings: Settings) -> dict[str, str]:
    """Options for `spark.read.format("kafka")`: where, and as whom."""
    given = settings.kafka
    options = {"kafka.bootstrap.servers": settings.bootstrap}
    options |= {f"kafka.{name}": given[name] for name in _ALIKE if name in given}
    if "ssl.ca.location" in given:
        options["kafka.ssl.truststore.type"] = "PEM"
        options["kafka.ssl.truststore.location"] = given["ssl.ca.location"]
    mechanism = given.get("sasl.mechanism") or given.get("sasl.mechanisms")
    if mechanism:
        options["kafka.sasl.mechanism"] = mechanism
    if mechanism in _JAAS and "sasl.username" in given:
        named = {name: given.get(f"sasl.{name}", "") for name in ("username", "password")}
        options["kafka.sasl.jaas.config"] = _jaas(_JAAS[mechanism], named)
    elif mechanism == _BEARER and _ENDPOINT in given:
        options |= _token_options(given)
    return options


def java_options(settings: Settings) -> str:
    """What a JVM has to be told when it starts: Java's client asks no other place for tokens."""
    endpoint = settings.kafka.get(_ENDPOINT)
    return f"-D{_ALLOWED_URLS}={endpoint}" if endpoint else ""


def _token_options(given: Mapping[str, str]) -> dict[str, str]:
    names = {"clientId": "client.id", "clientSecret": "client.secret", "scope": "scope"}
    words = {word: given.get(f"sasl.oauthbearer.{name}", "") for word, name in names.items()}
    if authority := given.get("https.ca.location"):
        words |= {"ssl.truststore.type": "PEM", "ssl.truststore.location": authority}
    return {
        f"kafka.{_ENDPOINT}": given[_ENDPOINT],
        "kafka.sasl.login.callback.handler.class": f"{_OAUTH}.OAuthBearerLoginCallbackHandler",
        "kafka.sasl.jaas.config": _jaas(f"{_OAUTH}.OAuthBearerLoginModule", words),
    }


def _jaas(module: str, words: Mapping[str, str]) -> str:
    written = " ".join(f"{name}={_quoted(text)}" for name, text in words.items() if text)
    return f"{module} required {written};"


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
