"""Permissions on a real broker: given, taken, and looked at by whoever needs them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from confluent_kafka import KafkaError, KafkaException, TopicCollection
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from dovetail.errors import NotAllowedError, Unavailable
from dovetail.permissions import (
    Operation,
    Permission,
    Resource,
    describes_settings,
    not_allowed,
    permissions_of,
)
from dovetail.stream.topic_settings import require_settings
from dovetail.stream.topics import connected, ensure_topics, keep_up

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from concurrent.futures import Future

    from dovetail.errors import DovetailError
    from dovetail.settings import Settings
    from dovetail.stream.rdkafka import KafkaFailure
    from dovetail.topology import Topology

Place = tuple[Resource, str]

_TIMEOUT_S = 30
_ITERATIONS = 8192
_TYPES = {
    Resource.TOPIC: ResourceType.TOPIC,
    Resource.GROUP: ResourceType.GROUP,
    Resource.TRANSACTIONAL_ID: ResourceType.TRANSACTIONAL_ID,
}
_RESOURCES = {kind: resource for resource, kind in _TYPES.items()}
_REFUSED = {29: Resource.TOPIC, 30: Resource.GROUP, 53: Resource.TRANSACTIONAL_ID}
_UNTOLD = frozenset(
    {
        KafkaError.UNKNOWN_TOPIC_OR_PART,
        KafkaError.GROUP_ID_NOT_FOUND,
        KafkaError.COORDINATOR_NOT_AVAILABLE,
        KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
        KafkaError.NOT_COORDINATOR,
    }
)
"""A topic that is not there, a group that nobody has used, a coordinator about to start: what may
be done with them is seen later."""


def apply(
    admin: AdminClient, wanted: Mapping[str, Iterable[Permission]]
) -> dict[str, tuple[set[Permission], set[Permission]]]:
    """Give each user exactly these: those that were added, and those that were taken.

    What an operator has given a user by hand in another form (another host, a denial, the cluster)
    is left alone.
    """
    changed = {}
    for user, permissions in wanted.items():
        needed, present = set(permissions), granted(admin, user)
        give(admin, user, needed - present)
        take(admin, user, present - needed)
        changed[user] = (needed - present, present - needed)
    return changed


def granted(admin: AdminClient, user: str) -> set[Permission]:
    """What a user was given, of the kinds that services need."""
    everything = AclBindingFilter(
        ResourceType.ANY,
        None,  # type: ignore[arg-type]
        ResourcePatternType.ANY,
        f"User:{user}",
        "*",
        AclOperation.ANY,
        AclPermissionType.ALLOW,
    )
    listing = admin.describe_acls(everything, request_timeout=_TIMEOUT_S)
    bindings: list[Any] = _done(listing, "the ACLs cannot be listed") or []
    return {
        Permission(
            _RESOURCES[binding.restype],
            binding.name,
            Operation(binding.operation.name),
            binding.resource_pattern_type is ResourcePatternType.PREFIXED,
        )
        for binding in bindings
        if binding.restype in _RESOURCES and binding.operation.name in Operation.__members__
    }


def give(admin: AdminClient, user: str, permissions: Iterable[Permission]) -> None:
    bindings = [_written(AclBinding, user, permission) for permission in permissions]
    if not bindings:
        return
    for future in admin.create_acls(bindings, request_timeout=_TIMEOUT_S).values():
        _done(future, f"{user} cannot be given permissions")


def take(admin: AdminClient, user: str, permissions: Iterable[Permission]) -> None:
    filters = [_written(AclBindingFilter, user, permission) for permission in permissions]
    if not filters:
        return
    for future in admin.delete_acls(filters, request_timeout=_TIMEOUT_S).values():
        _done(future, f"permissions of {user} cannot be taken")


def set_password(admin: AdminClient, user: str, password: str) -> None:
    """Make a user who proves by SCRAM-SHA-512 who it is, or give it another password."""
    credential = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, _ITERATIONS)
    change = UserScramCredentialUpsertion(user, credential, password.encode())
    told = admin.alter_user_scram_credentials([change], request_timeout=_TIMEOUT_S)
    for future in told.values():
        _done(future, f"the password of {user} cannot be set")


def settle_topics(settings: Settings, topology: Topology, service: str) -> None:
    """See to the topics: who is somebody to the broker sees its own alone, and needs no others."""
    if not settings.is_known:
        ensure_topics(settings, topology.topics())
        require_settings(settings, topology.topics())
        keep_up(settings, topology.source, topology.clean)
        return
    needed = permissions_of(topology, service)
    # First, as a topic that is hidden looks like one that is missing; and of new ones afterwards.
    require(settings, needed)
    names = {one.name for one in needed if one.resource is Resource.TOPIC}
    ensure_topics(settings, [topic for topic in topology.topics() if topic.name in names])
    require(settings, needed)
    seen = [topic for topic in topology.topics() if describes_settings(topic.name) in needed]
    require_settings(settings, seen)
    if Permission(Resource.TOPIC, topology.clean.name, Operation.ALTER) in needed:
        keep_up(settings, topology.source, topology.clean)


def require(settings: Settings, permissions: Iterable[Permission]) -> None:
    """Raise a NotAllowedError that names all of these that are missing on topics and groups.

    A broker tells what its client may do with them, and nothing of the kind for transactional ids:
    those fail where they are first used.
    """
    (admin, _), needed = connected(settings), list(permissions)
    topics = {one.name for one in needed if one.resource is Resource.TOPIC}
    groups = {_probe(one) for one in needed if one.resource is Resource.GROUP}
    allowed = {**_of_topics(admin, topics), **_of_groups(admin, groups)}
    missing = [
        permission
        for permission in needed
        if (may := allowed.get((permission.resource, _probe(permission)))) is not None
        and permission.operation not in may
    ]
    if missing:
        raise not_allowed(settings.user, missing)


def refusal(
    settings: Settings, failed: KafkaFailure, needed: Iterable[Permission]
) -> DovetailError:
    """Name what is missing, of all that is needed, after a call was refused.

    A call that concerns several topics does not say which one it was: the broker is asked.
    """
    of_its_kind = [one for one in needed if one.resource is _REFUSED.get(failed.code)]
    if of_its_kind and of_its_kind[0].resource is Resource.TOPIC:
        try:
            require(settings, of_its_kind)
        except NotAllowedError as found:
            return found
    elif of_its_kind:
        return not_allowed(settings.user, of_its_kind)
    return NotAllowedError(f"user {settings.user} is not allowed to: {failed}")


def _probe(permission: Permission) -> str:
    """A name that the permission is for."""
    return f"{permission.name}probe" if permission.prefixed else permission.name


def _of_topics(admin: AdminClient, names: set[str]) -> dict[Place, set[str] | None]:
    if not names:
        return {}
    told = admin.describe_topics(
        TopicCollection(sorted(names)),
        include_authorized_operations=True,
        request_timeout=_TIMEOUT_S,
    )
    return {(Resource.TOPIC, name): _operations(name, future) for name, future in told.items()}


def _of_groups(admin: AdminClient, names: set[str]) -> dict[Place, set[str] | None]:
    if not names:
        return {}
    told = admin.describe_consumer_groups(
        sorted(names), include_authorized_operations=True, request_timeout=_TIMEOUT_S
    )
    return {(Resource.GROUP, name): _operations(name, future) for name, future in told.items()}


def _operations(name: str, future: Future[Any]) -> set[str] | None:
    """The names of what may be done with it; None where the broker does not tell."""
    try:
        told = future.result().authorized_operations
    except KafkaException as error:
        code = error.args[0].code()
        if code in _REFUSED:
            return set()
        if code in _UNTOLD:
            return None
        raise Unavailable(f"{name} cannot be looked at: {error.args[0].str()}") from error
    return None if told is None else {operation.name for operation in told}


def _written(kind: Callable[..., Any], user: str, permission: Permission) -> Any:
    pattern = ResourcePatternType.PREFIXED if permission.prefixed else ResourcePatternType.LITERAL
    return kind(
        _TYPES[permission.resource],
        permission.name,
        pattern,
        f"User:{user}",
        "*",
        AclOperation[permission.operation],
        AclPermissionType.ALLOW,
    )


def _done(future: Future[Any], text: str) -> Any:
    try:
        return future.result()
    except KafkaException as error:
        raise Unavailable(f"{text}: {error.args[0].str()}") from error
