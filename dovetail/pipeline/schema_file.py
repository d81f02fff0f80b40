"""A pipeline's schema file: the Avro schema or the Protobuf message that its events follow.

It is named from the pipeline file's folder on. Whatever would make every event a dead letter (a
field that the schema does not have, a type that it cannot give) is a problem of the pipeline.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from dovetail.errors import ConfigError
from dovetail.pipeline.problem import Problem
from dovetail.pipeline.shape import MOST_LINKS, Format, Framing
from dovetail.stream.events.rendering import misfits

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from google.protobuf.descriptor import Descriptor

    from dovetail.pipeline.shape import Draft, Source
    from dovetail.stream.events.avro.schema import Type
    from dovetail.stream.events.rendering import Rendering

_FILES = {"source": ("schema_file", "registry"), "master": ("snapshot",)}
"""The settings that name a file or a folder, by their sections."""


def located(data: dict[str, object], folder: Path) -> dict[str, object]:
    """Name the files of a pipeline by whole paths, as its own file no longer is at hand later."""
    found = _located_table(data, folder)
    further = data.get("then")
    if isinstance(further, list) and len(further) < MOST_LINKS:  # more are refused
        found["then"] = [
            _located_table(link, folder) if isinstance(link, dict) else link for link in further
        ]
    return found


def _located_table(data: dict[str, object], folder: Path) -> dict[str, object]:
    """The same for one table of a chain: those behind it are none of its settings."""
    found = {
        section: _whole(data[section], settings, folder)
        for section, settings in _FILES.items()
        if section in data
    }
    return {**data, **found}


def _whole(section: object, settings: Sequence[str], folder: Path) -> object:
    if not isinstance(section, dict):
        return section
    named = {setting: section[setting] for setting in settings if setting in section}
    paths = {
        setting: str(folder / name)
        for setting, name in named.items()
        # A URL is a registry's alone; a file may be called as it likes.
        if isinstance(name, str) and not (setting == "registry" and "://" in name)
    }
    return {**section, **paths}


def avro_schema(source: Source) -> Type:
    from dovetail.stream.events.avro.schema import parse  # noqa: PLC0415 - only a few need it

    return parse(_read(source))


def protobuf_message(source: Source) -> Descriptor:
    from dovetail.stream.events.protobuf.schema import message_of  # noqa: PLC0415 - as above

    return message_of(_read(source), source.message or "")


def schema_problems(draft: Draft) -> Iterator[Problem]:
    """Find what in the schema file, or between it and the fields, is wrong."""
    source = draft.source
    if source.format is Format.JSON:
        return
    try:
        rendering = _rendering(source)
    except ConfigError as error:
        yield Problem(("source", "schema_file"), f"{_name(source)}: {error}")
        return
    fields = {path: str(field.type) for path, field in source.fields.items()}
    for path, text in misfits(fields, rendering, _name(source)):
        yield Problem(("source", "fields"), text, path)
    if source.registry and "://" not in source.registry and source.framing is Framing.REGISTRY:
        folder = Path(source.registry)
        if not folder.is_dir():
            yield Problem(
                ("source", "registry"), f"there is no folder '{folder.name}'; create it there"
            )


def _rendering(source: Source) -> Mapping[str, Rendering]:
    # What is compiled is supported: the program itself is made again where it is run.
    if source.format is Format.AVRO:
        from dovetail.stream.events.avro import compile as avro  # noqa: PLC0415 - as above
        from dovetail.stream.events.program import Writer  # noqa: PLC0415 - as above

        record = avro_schema(source)
        avro.compile_avro(record, record, Writer())
        return avro.rendering(record)
    from dovetail.stream.events.protobuf import compile as protobuf  # noqa: PLC0415 - as above

    message = protobuf_message(source)
    protobuf.compile_protobuf(message)
    return protobuf.rendering(message)


def _read(source: Source) -> bytes:
    path = Path(source.schema_file or "")
    try:
        return path.read_bytes()
    except FileNotFoundError:
        raise ConfigError(f"there is no such file in {path.parent}") from None
    except OSError as error:
        raise ConfigError(f"it cannot be read: {error.strerror}") from error


def _name(source: Source) -> str:
    return Path(source.schema_file or "").name
