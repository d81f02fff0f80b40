"""What a broker refuses for want of a permission, told apart from what may work in a while."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from confluent_kafka import KafkaError, KafkaException

from dovetail.certificates import UNVERIFIED, of_brokers
from dovetail.errors import ConfigError, NotAllowedError, Unavailable, hidden
from dovetail.permissions import Resource, not_allowed
from dovetail.settings import variable_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from dovetail.errors import DovetailError
    from dovetail.permissions import Permission
    from dovetail.settings import Settings

_REFUSED = {
    KafkaError.TOPIC_AUTHORIZATION_FAILED: Resource.TOPIC,
    KafkaError.GROUP_AUTHORIZATION_FAILED: Resource.GROUP,
    KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: Resource.TRANSACTIONAL_ID,
}
_NOBODY = frozenset(
    {
        KafkaError._AUTHENTICATION,  # noqa: SLF001 - its public name
        KafkaError._SSL,  # noqa: SLF001 - its public name
        KafkaError.SASL_AUTHENTICATION_FAILED,
        KafkaError.UNSUPPORTED_SASL_MECHANISM,
    }
)
_Client = TypeVar("_Client")
_FOR_SCRAM = "KAFKA_SASL_USERNAME, KAFKA_SASL_PASSWORD_FILE"
_FOR_OAUTH = ", ".join(
    (
        *(f"KAFKA_SASL_OAUTHBEARER_{name}" for name in ("TOKEN_ENDPOINT_URL", "CLIENT_ID")),
        *("KAFKA_SASL_OAUTHBEARER_CLIENT_SECRET_FILE", "KAFKA_HTTPS_CA_LOCATION"),
    )
)


def client_of(kind: Callable[[dict[str, Any]], _Client], config: Mapping[str, Any]) -> _Client:
    """Make a client; of settings that it does not take, the variables are named."""
    try:
        return kind(dict(config))
    except KafkaException as error:
        values = {name: value for name, value in config.items() if isinstance(value, str)}
        text = error.args[0].str()
        named = " and ".join(variable_of(name) for name in values if name in text)
        raise ConfigError(
            f"the Kafka client does not take {named or 'its settings'}: "
            f"{hidden(text, *values.values())}"
        ) from None


def is_refused(code: int) -> bool:
    return code in _REFUSED or code == KafkaError.CLUSTER_AUTHORIZATION_FAILED


def failure(
    settings: Settings,
    error: KafkaError | KafkaException,
    text: str,
    needed: Iterable[Permission],
) -> DovetailError:
    """Name the permission, of those that are needed here, if that is what is missing."""
    told: KafkaError = error.args[0] if isinstance(error, KafkaException) else error
    resource = _REFUSED.get(told.code())
    missing = [permission for permission in needed if permission.resource is resource]
    if missing:
        return not_allowed(settings.user, missing)
    if is_refused(told.code()):
        return NotAllowedError(f"{text}: user {settings.user} is not allowed to: {told.str()}")
    return Unavailable(f"{text}: {told.str()}")


class Strangers:
    """Hears, as a client's `error_cb`, that the broker and it do not believe each other.

    librdkafka goes on trying in silence, and a call that waits knows of its time-out only.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._lasting = ""
        self.reason = ""
        """The first thing that was heard, whatever it was."""

    def __call__(self, error: KafkaError) -> None:
        self.reason = self.reason or error.str()
        if error.code() in _NOBODY:
            self._lasting = self._lasting or error.str()

    def check(self) -> None:
        """Raise what no waiting mends: a wrong password, or a certificate that does not hold."""
        if self._lasting:
            seen = of_brokers(self._settings) if UNVERIFIED in self._lasting else ""
            by_token = self._settings.kafka.get("sasl.mechanism", "").upper() == "OAUTHBEARER"
            raise NotAllowedError(
                f"the Kafka broker at {self._settings.bootstrap} and user "
                f"{self._settings.user or '(none)'} do not trust each other: {self._lasting}. "
                f"{seen + '. ' if seen else ''}Check {_FOR_OAUTH if by_token else _FOR_SCRAM}, "
                "KAFKA_SASL_MECHANISM and KAFKA_SSL_CA_LOCATION, and the dates and host names in "
                "the broker's certificate"
            )
