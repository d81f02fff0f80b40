"""The decoder for a pipeline's format, with its schema file read."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dovetail.pipeline.schema_file import avro_schema, protobuf_message
from dovetail.pipeline.spec import Format, Framing
from dovetail.stream.events.avro.transcoder import AvroTranscoder
from dovetail.stream.events.decode import JsonDecoder
from dovetail.stream.events.protobuf.transcoder import ProtobufTranscoder
from dovetail.stream.events.registry import schemas_at
from dovetail.stream.events.transcode import TranscodingDecoder

if TYPE_CHECKING:
    from dovetail.pipeline.spec import Source
    from dovetail.stream.events.decode import Decoder
    from dovetail.stream.events.schema import EventSchema
    from dovetail.stream.events.transcode import Transcoder


def decoder_of(source: Source, schema: EventSchema) -> Decoder:
    if source.format is Format.JSON:
        return JsonDecoder(schema)
    framed = source.framing is Framing.REGISTRY
    transcoder: Transcoder
    if source.format is Format.AVRO:
        schemas = schemas_at(source.registry or "") if framed else None
        transcoder = AvroTranscoder(avro_schema(source), schema.max_bytes, schemas)
    else:
        transcoder = ProtobufTranscoder(protobuf_message(source), schema.max_bytes, framed=framed)
    return TranscodingDecoder(schema, transcoder)
