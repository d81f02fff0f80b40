"""A message's descriptor out of a descriptor set (`protoc --descriptor_set_out`)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from google.protobuf import descriptor_pb2, descriptor_pool, timestamp_pb2, wrappers_pb2
from google.protobuf.message import DecodeError

from dovetail.errors import ConfigError
from dovetail.pipeline.hints import did_you_mean

if TYPE_CHECKING:
    from collections.abc import Mapping

    from google.protobuf.descriptor import Descriptor
    from google.protobuf.descriptor_pb2 import DescriptorProto, FileDescriptorProto


def message_of(raw: bytes, name: str) -> Descriptor:
    """Find a message by its full name; a ConfigError says what is wrong with the set."""
    try:
        files = {file.name: file for file in descriptor_pb2.FileDescriptorSet.FromString(raw).file}
    except DecodeError as error:
        raise ConfigError(
            "it is not a descriptor set; make one with protoc --include_imports"
            " --descriptor_set_out=FILE"
        ) from error
    pool = descriptor_pool.DescriptorPool()
    added: set[str] = set()
    for file in files:
        _add(file, files, pool, added)
    known = [found for file in files.values() for found in _names(file)]
    if name not in known:
        raise ConfigError(
            f"it has no message '{name}'{did_you_mean(name, known) or _listed(known)}"
        )
    return pool.FindMessageTypeByName(name)


def _listed(names: list[str]) -> str:
    return f"; it has {', '.join(names[:10])}" if names else "; it has none at all"


def _add(
    name: str,
    files: Mapping[str, FileDescriptorProto],
    pool: descriptor_pool.DescriptorPool,
    added: set[str],
) -> None:
    """Add a file behind those that it imports."""
    if name in added:
        return
    added.add(name)
    file = files.get(name) or _well_known(name)
    for imported in file.dependency:
        _add(imported, files, pool, added)
    try:
        pool.Add(file)
    except TypeError as error:
        raise ConfigError(f"{name} cannot be used: {error}") from error


def _well_known(name: str) -> FileDescriptorProto:
    """Give a file that protoc brings along, and a descriptor set may leave out."""
    for known in (timestamp_pb2.DESCRIPTOR, wrappers_pb2.DESCRIPTOR):
        if known.name == name:
            return descriptor_pb2.FileDescriptorProto.FromString(known.serialized_pb)
    raise ConfigError(f"it lacks {name}; make it with protoc --include_imports")


def _names(file: FileDescriptorProto) -> list[str]:
    prefix = f"{file.package}." if file.package else ""
    return [found for message in file.message_type for found in _nested(message, prefix)]


def _nested(message: DescriptorProto, prefix: str) -> list[str]:
    own = prefix + message.name
    return [own, *(found for inner in message.nested_type for found in _nested(inner, f"{own}."))]
