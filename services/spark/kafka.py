"""How Spark's connector reaches Kafka: the settings of librdkafka in the words of Java's client."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dovetail.settings import Settings

_JAAS = {
    "PLAIN": "org.apache.kafka.common.security.plain.PlainLoginModule",
    "SCRAM-SHA-256": "org.apache.kafka.common.security.scram.ScramLoginModule",
    "SCRAM-SHA-512": "org.apache.kafka.common.security.scram.ScramLoginModule",
}
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
        user, password = (
            _quoted(given.get(f"sasl.{name}", "")) for name in ("username", "password")
        )
        module = _JAAS[mechanism]
        options["kafka.sasl.jaas.config"] = (
            f"{module} required username={user} password={password};"
        )
    return options


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
