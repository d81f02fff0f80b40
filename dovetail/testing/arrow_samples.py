"""What Arrow writes for each set of columns of a batch, to be kept in arrow_samples.py."""

from __future__ import annotations

import struct
import zlib
from base64 import b85encode
from typing import TYPE_CHECKING

import pyarrow as pa

from dovetail.stream.arrow_samples import sets_of
from dovetail.stream.arrow_stream import PREFIX
from dovetail.stream.arrow_template import BINARY, Template
from dovetail.stream.batch import OPTIONAL, TYPES

if TYPE_CHECKING:
    from collections.abc import Sequence

_LINE = 90


def sample(columns: Sequence[tuple[str, str]]) -> tuple[bytes, bytes]:
    """A schema as Arrow writes it, and the metadata of a batch of one row."""
    schema = pa.schema([(name, pa.type_for_alias(kind)) for name, kind in columns])
    values = [
        pa.array([b"_" if kind == BINARY else 1], pa.type_for_alias(kind)) for _, kind in columns
    ]
    batch = bytes(pa.record_batch(values, schema=schema).serialize())
    return bytes(schema.serialize()), batch[: PREFIX + struct.unpack_from("<i", batch, 4)[0]]


def template(columns: Sequence[tuple[str, str]]) -> Template:
    return Template(columns, *sample(columns))


def samples() -> list[tuple[bytes, bytes]]:
    return [
        sample([(name, TYPES[name]) for name in names]) for names in sets_of(list(TYPES), OPTIONAL)
    ]


if __name__ == "__main__":
    text = b"".join(message for pair in samples() for message in pair)
    packed = b85encode(zlib.compress(text, 9)).decode()
    for start in range(0, len(packed), _LINE):
        print(f'    "{packed[start : start + _LINE]}"')
