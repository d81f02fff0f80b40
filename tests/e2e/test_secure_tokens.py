"""OAUTHBEARER: tokens that an identity provider has signed, and the broker knows by its key."""

from __future__ import annotations

import time

import pytest

from deploy.local.certificates import ensure_certificates
from dovetail.errors import NotAllowedError
from dovetail.permissions import GENERATOR, Operation, Permission, Resource
from dovetail.stream import acls
from dovetail.stream.topics import admin_of, ensure_topics
from dovetail.topology import Topic
from tests.e2e import shop
from tests.e2e.identity import IdentityProvider
from tests.e2e.secured import (
    TOKENS_LAST_S,
    secured_pipeline,
    settings_of,
    what_a_refused_mapper_says,
)
from tests.e2e.test_secure import no_secret_is_seen

WITHIN_S = 240.0


def settings_for(secured, user, provider=None, **changed):
    """Of a user who has a token, and no password for the broker."""
    environment = {**(provider or secured.provider).environment(user), **changed}
    named = {"KAFKA_SASL_USERNAME": "", "KAFKA_SASL_PASSWORD_FILE": ""}
    return settings_of(secured, **named, **environment)


def test_a_pipeline_whose_services_have_tokens_gives_what_sql_gives(secured, database_name):
    shape, provider = shop.INT, secured.provider
    shape.fill(secured.stack.database.url_of(database_name))
    as_user = provider.environment
    with (
        secured_pipeline(
            secured.stack, database_name, shape.spec("inner"), "secure-tokens", as_user
        ) as pipeline,
        pipeline,
    ):
        pipeline.send(shape.good_events())
        assert not pipeline.drain().problems
        until_tokens_are_renewed(pipeline, provider)
        pipeline.send(shape.good_events())
        assert not pipeline.drain().problems
        verdict = pipeline.verdict()
        assert verdict.differences == []
        assert verdict.outputs == verdict.expected > 0
        assert [name for name in pipeline.names() if pipeline.starts(name)] == []
        no_secret_is_seen(secured, pipeline)


def until_tokens_are_renewed(pipeline, provider):
    """Let every service have shown its broker another token than the first."""
    of_services = [
        user for one, user in pipeline.admission.users.items() if one in running(pipeline)
    ]
    assert len(of_services) == 5
    before = {user: provider.given[user] for user in of_services}
    assert all(before.values())
    deadline = time.monotonic() + WITHIN_S
    while any(provider.given[user] < 2 * number for user, number in before.items()):
        assert time.monotonic() < deadline, (before, provider.given)
        pipeline.pause(0.5)


def running(pipeline):
    return {service.service for service in pipeline._services.all}


def test_a_bearer_of_a_token_is_who_it_says_and_may_do_no_more(secured):
    topics = [Topic(f"of-{name}", 1) for name in ("ann", "bob")]
    ensure_topics(settings_of(secured), topics)
    admin = admin_of(settings_of(secured))
    acls.give(admin, "ann", [Permission(Resource.TOPIC, "of-ann", Operation.WRITE)])
    settings = settings_for(secured, "ann")
    ensure_topics(settings, topics[:1])
    with pytest.raises(
        NotAllowedError, match="user ann lacks the Kafka ACL DESCRIBE on topic of-bob"
    ):
        ensure_topics(settings, topics)


def test_a_wrong_secret_is_told_at_once_and_not_shown(secured, tmp_path):
    wrong = tmp_path / "secret"
    wrong.write_text("not-the-secret")
    named = {"KAFKA_SASL_OAUTHBEARER_CLIENT_SECRET_FILE": str(wrong)}
    with pytest.raises(NotAllowedError, match="token") as refused:
        ensure_topics(settings_for(secured, "ann", **named), [])
    assert "user ann" in str(refused.value)
    assert "KAFKA_SASL_OAUTHBEARER_CLIENT_SECRET_FILE" in str(refused.value)
    assert "not-the-secret" not in str(refused.value)


def test_a_token_by_another_provider_is_not_believed(secured):
    with IdentityProvider(secured.security, TOKENS_LAST_S) as other:
        settings = settings_for(secured, "ann", other)
        with pytest.raises(NotAllowedError, match="invalid_token") as refused:
            ensure_topics(settings, [])
        assert other.given["ann"] > 0
    assert "KAFKA_SASL_OAUTHBEARER_TOKEN_ENDPOINT_URL" in str(refused.value)


def test_a_provider_by_another_authority_is_not_asked(secured, tmp_path):
    other = ensure_certificates(tmp_path).authority
    before = secured.provider.given["ann"]
    settings = settings_for(secured, "ann", KAFKA_HTTPS_CA_LOCATION=str(other))
    with pytest.raises(NotAllowedError, match="KAFKA_HTTPS_CA_LOCATION"):
        ensure_topics(settings, [])
    assert secured.provider.given["ann"] == before


def test_a_service_with_a_wrong_secret_ends_and_says_so(secured, tmp_path):
    wrong = tmp_path / "secret"
    wrong.write_text("not-the-secret")
    environment = secured.provider.environment(GENERATOR)
    said = what_a_refused_mapper_says(
        secured, {**environment, "KAFKA_SASL_OAUTHBEARER_CLIENT_SECRET_FILE": str(wrong)}
    )
    assert "not-the-secret" not in said
