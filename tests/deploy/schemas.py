"""Validators of Kubernetes' objects, stricter than its API: a field it would drop is an error."""

from __future__ import annotations

import json
import re
from functools import cache

import jsonschema_rs
import yaml

from tests.deploy import tools

_INT_OR_STRING = "io.k8s.apimachinery.pkg.util.intstr.IntOrString"
_PARTS = {"items", "additionalProperties", "not"}
"""Of a schema, those that are schemas themselves."""
_QUANTITY = "io.k8s.apimachinery.pkg.api.resource.Quantity"


def problems(one: dict, version: str) -> list[str]:
    """What a version of Kubernetes, or the kind's own definition, finds wrong with an object."""
    kind = (one["apiVersion"], one["kind"])
    validator = _builtin(version).get(kind) or _custom().get(kind)
    if validator is None:
        return [f"{kind} is not known to {version}"]
    name = f"{one['kind']}/{one['metadata']['name']}"
    return [
        f"{name} {'/'.join(map(str, error.instance_path))}: {error.message}"
        for error in validator.iter_errors(one)
    ]


@cache
def _builtin(version: str) -> dict[tuple[str, str], jsonschema_rs.Draft4Validator]:
    definitions = {
        name: _strict(one) for name, one in tools.swagger(version)["definitions"].items()
    }
    definitions[_INT_OR_STRING] = {"type": ["integer", "string"]}
    definitions[_QUANTITY] = {"type": ["number", "string"]}
    return Validators(
        {
            (f"{kind['group']}/{kind['version']}".lstrip("/"), kind["kind"]): (name, definitions)
            for name, one in definitions.items()
            for kind in one.get("x-kubernetes-group-version-kind", ())
        }
    )


@cache
def _custom() -> dict[tuple[str, str], jsonschema_rs.Draft4Validator]:
    found = {}
    for file in tools.crd_files():
        for crd in filter(None, yaml.safe_load_all(file.read_text())):
            spec = crd["spec"]
            for version in spec["versions"]:
                schema = _strict(version["schema"]["openAPIV3Schema"])
                schema["properties"]["metadata"] = {"type": "object"}
                found[f"{spec['group']}/{version['name']}", spec["names"]["kind"]] = schema
    return Validators(found)


def _reached(name, definitions):
    """A definition and those that it needs: all of them would take long to compile."""
    found, waiting = {}, [name]
    while waiting:
        one = waiting.pop()
        if one not in found:
            found[one] = definitions[one]
            waiting += re.findall(r"#/definitions/([\w.-]+)", json.dumps(definitions[one]))
    return found


class Validators(dict):
    """Made when they are first asked for."""

    def get(self, kind):
        found = super().get(kind)
        if isinstance(found, tuple):
            name, definitions = found
            found = {"$ref": f"#/definitions/{name}", "definitions": _reached(name, definitions)}
        if isinstance(found, dict):
            found = self[kind] = jsonschema_rs.Draft4Validator(found)
        return found


def _strict(schema):
    if not isinstance(schema, dict):
        return schema
    # Go's regular expressions know flags that others do not.
    foreign = {"format", "pattern"} if "(?" in schema.get("pattern", "") else {"format"}
    changed = {name: one for name, one in schema.items() if name not in foreign}
    for name in _PARTS & changed.keys():
        changed[name] = _strict(schema[name])
    if "properties" in schema:
        changed["properties"] = {name: _strict(one) for name, one in schema["properties"].items()}
        open_ended = schema.get("x-kubernetes-preserve-unknown-fields", False)
        changed.setdefault("additionalProperties", bool(open_ended))
    if schema.get("x-kubernetes-int-or-string"):
        changed["type"] = ["integer", "string"]
        changed.pop("anyOf", None)
    return changed
