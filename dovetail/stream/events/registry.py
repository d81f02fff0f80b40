"""Schemas by the id that stands before an event's bytes.

    0x00 | id: 4 bytes, the highest first | the event

That is how the serialisers of a schema registry frame a message. The id is looked up in a folder
of files, `<id>.avsc`, or over the registry's REST interface, `GET /schemas/ids/{id}`. An id that
nobody knows is None, and its events are dead letters: any bytes that begin with 0x00 would name
one. A registry that does not answer, or not as one does, is Unavailable: the step is tried again.
"""

from __future__ import annotations

import json
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from dovetail.errors import ConfigError, Unavailable
from dovetail.kernels import kernel
from dovetail.web import Asker, NoAnswerError

if TYPE_CHECKING:
    from numpy.typing import NDArray

URL = ("http://", "https://")
"""How the place of a registry begins; any other is a folder."""
HEADER_BYTES = 5
NO_HEADER = -1
_UNKNOWN_ID = 40403
"""The registry's own code for "Schema not found"."""
_TIMEOUT_S = 10.0
_MOST_BYTES = 16 << 20


class Schemas(Protocol):
    def schema(self, number: int) -> str | None:
        """Give the Avro schema of an id; None if there is none, ConfigError if it is no Avro."""


class SchemaFiles:
    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def schema(self, number: int) -> str | None:
        path = self._folder / f"{number}.avsc"
        try:
            return path.read_text()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise Unavailable(f"{path} cannot be read: {error.strerror}") from error


class SchemaRegistry:
    def __init__(self, url: str) -> None:
        self._url = url.rstrip("/")
        self._asker = Asker(
            self._url,
            {"Accept": "application/vnd.schemaregistry.v1+json"},
            within_s=_TIMEOUT_S,
            most_bytes=_MOST_BYTES,
        )

    def schema(self, number: int) -> str | None:
        found = self._get(f"/schemas/ids/{number}")
        if found is None:
            return None
        if found.get("schemaType", "AVRO") != "AVRO":
            raise ConfigError(f"it is {found['schemaType']}, not Avro")
        if found.get("references"):
            raise ConfigError("it refers to other schemas, which is not supported")
        if not isinstance(found.get("schema"), str):
            raise Unavailable(f"{self._url} does not answer as a schema registry does")
        return str(found["schema"])

    def _get(self, path: str) -> dict[str, Any] | None:
        try:
            answer = self._asker.ask(path)
        except NoAnswerError as error:
            raise Unavailable(
                f"the schema registry at {self._url} cannot be reached: {error}; check that it"
                " runs there"
            ) from None
        if answer.is_good:
            return _object(answer.body, self._url)
        if answer.status == HTTPStatus.NOT_FOUND:
            told = _object(answer.body, self._url)
            if told.get("error_code") == _UNKNOWN_ID:
                return None
        raise Unavailable(
            f"the schema registry at {self._url} answers {answer.status} {answer.reason}; check"
            " source.registry and what it allows"
        )


def schemas_at(place: str) -> Schemas:
    """Take a URL for a registry and anything else for a folder."""
    return SchemaRegistry(place) if place.startswith(URL) else SchemaFiles(Path(place))


def _object(body: bytes, url: str) -> dict[str, Any]:
    try:
        found = json.loads(body)
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise Unavailable(f"{url} does not answer as a schema registry does; check source.registry")
    return found


@kernel
def schema_ids(
    data: NDArray[np.uint8], bounds: NDArray[np.int64], wanted: NDArray[np.bool_]
) -> NDArray[np.int64]:
    """Give the id before each wanted event; NO_HEADER where there is none."""
    ids = np.full(wanted.size, NO_HEADER, np.int64)
    for row in range(wanted.size):
        at = bounds[row]
        if wanted[row] and bounds[row + 1] - at >= HEADER_BYTES and data[at] == 0:
            number = 0
            for nth in range(1, HEADER_BYTES):
                number = number << 8 | data[at + nth]
            ids[row] = number
    return ids
