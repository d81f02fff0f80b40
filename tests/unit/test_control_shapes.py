"""What is sent to the API is taken as it is written: no text for a number, no true for a one."""

from __future__ import annotations

import json

import pytest
from fastapi import Depends, FastAPI
from fastapi.testclient import TestClient
from pydantic import TypeAdapter, ValidationError

from services.control import shapes
from services.control.problems import tell_problems
from services.control.query import require_once

EXAMPLES = {
    "boolean": [True, False],
    "integer": [1, 0, 1.0],
    "number": [1.5, 1e300],
    "string": ["1", "true", "1.5", "", "2026-01-31T09:00:00Z"],
    "array": [[], [1]],
    "object": [{}, {"0": 1}],
    "null": [None],
}


def all_shapes(of=shapes.Shape):
    for shape in of.__subclasses__():
        yield shape
        yield from all_shapes(shape)


def types_of(schema, root):
    """The types of JSON that a schema allows at its top."""
    if "$ref" in schema:
        return types_of(root["$defs"][schema["$ref"].rpartition("/")[2]], root)
    if "anyOf" in schema:
        return {kind for one in schema["anyOf"] for kind in types_of(one, root)}
    return {schema["type"]} if "type" in schema else {"boolean"}  # a constant


def lies(shape):
    schema = shape.model_json_schema()
    for name, field in schema["properties"].items():
        allowed = types_of(field, schema)
        for kind in EXAMPLES.keys() - allowed:
            for value in EXAMPLES[kind]:
                if not (kind == "integer" and "number" in allowed):
                    yield name, value


@pytest.mark.parametrize("shape", list(all_shapes()), ids=lambda shape: shape.__name__)
def test_nothing_is_taken_for_another_type(shape):
    for name, value in lies(shape):
        with pytest.raises(ValidationError) as refused:
            shape.model_validate({name: value})
        assert name in {one["loc"][0] for one in refused.value.errors()}, value


def test_what_a_random_request_once_found_stays_refused():
    """Seed 275493236653605801299925924920668908502 of test_control_schema.py, as it was then."""
    found = {"name": "0", "role": "read", "expires_in_s": True}
    with pytest.raises(ValidationError) as refused:
        shapes.NewToken.model_validate(found)
    assert [one["loc"] for one in refused.value.errors()] == [("expires_in_s",)]
    assert shapes.NewToken.model_validate(found | {"expires_in_s": 1}).expires_in_s == 1.0


def test_inside_of_a_field_too():
    for settings in ({"order": {"within": True}}, {"order": {"within": "5"}}, {"memory": True}):
        with pytest.raises(ValidationError):
            shapes.Settings.model_validate(settings)
    with pytest.raises(ValidationError):
        shapes.FromOffsets.model_validate({"offsets": {"0": True}})
    with pytest.raises(ValidationError):
        shapes.ReplayMany.model_validate({"ids": ["7"]})
    with pytest.raises(ValidationError):
        shapes.FromBeginning.model_validate({"beginning": 1})


@pytest.mark.parametrize("text", ["1.0", "+1", "1_0", " 1", "1 ", "", "1e1", "0x1"])
def test_a_number_in_a_path_or_a_query_is_digits(text):
    for kind in (shapes.Number, shapes.Most, shapes.LinkNumber, shapes.RevisionNumber):
        with pytest.raises(ValidationError):
            TypeAdapter(kind).validate_python(text)
    assert TypeAdapter(shapes.Number).validate_python("17") == 17


def test_a_field_that_is_given_twice_is_refused():
    app = FastAPI(dependencies=[Depends(require_once)])
    tell_problems(app)

    @app.post("/")
    def take(token: shapes.NewToken) -> str:
        return token.name

    client = TestClient(app)
    headers = {"Content-Type": "application/json"}
    told = json.dumps({"name": "a", "role": "read"})
    assert client.post("/", content=told, headers=headers).json() == "a"
    twice = client.post("/", content=f'{{"role": "admin", {told[1:]}', headers=headers)
    assert (twice.status_code, twice.json()["problems"][0]["field"]) == (422, "body.role")
    assert client.post("/", content="{", headers=headers).status_code == 422
