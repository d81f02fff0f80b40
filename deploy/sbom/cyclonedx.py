"""A bill of materials as CycloneDX 1.6 has it; the same packages give the same bytes."""

from __future__ import annotations

import json
import uuid
from typing import TYPE_CHECKING, Any

from deploy.sbom.installed import ROOT, normalised

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from deploy.local.jars import Jar
    from deploy.sbom.installed import Package


def bill(packages: Mapping[str, Package], jars: Sequence[Jar] = ()) -> dict[str, Any]:
    """`packages` has the root among them; jars are Spark's connectors."""
    root = packages[ROOT]
    libraries = [one for key, one in packages.items() if key != ROOT]
    components = [_library(one) for one in libraries] + [_jar(jar) for jar in jars]
    needs = {key: [_purl(packages[need]) for need in one.needs] for key, one in packages.items()}
    needs[ROOT] += [_jar_purl(jar) for jar in jars]
    dependencies = [{"ref": _purl(one), "dependsOn": needs[key]} for key, one in packages.items()]
    contents = {
        "metadata": {"component": {**_library(root), "type": "application"}},
        "components": components,
        "dependencies": dependencies,
    }
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": uuid.uuid5(uuid.NAMESPACE_OID, json.dumps(contents)).urn,
        "version": 1,
        **contents,
    }


def _library(one: Package) -> dict[str, Any]:
    component: dict[str, Any] = {
        "type": "library",
        "bom-ref": _purl(one),
        "name": one.name,
        "version": one.version,
        "purl": _purl(one),
    }
    if one.licence and one.is_expression:
        component["licenses"] = [{"expression": one.licence}]
    elif one.licence:
        component["licenses"] = [{"license": {"name": one.licence}}]
    if one.homepage:
        component["externalReferences"] = [{"type": "website", "url": one.homepage}]
    return component


def _jar(jar: Jar) -> dict[str, Any]:
    group, artifact, version = jar.coordinate.split(":")
    return {
        "type": "library",
        "bom-ref": _jar_purl(jar),
        "group": group,
        "name": artifact,
        "version": version,
        "hashes": [{"alg": "SHA-256", "content": jar.sha256}],
        "purl": _jar_purl(jar),
    }


def _purl(one: Package) -> str:
    return f"pkg:pypi/{normalised(one.name)}@{one.version}"


def _jar_purl(jar: Jar) -> str:
    group, artifact, version = jar.coordinate.split(":")
    return f"pkg:maven/{group}/{artifact}@{version}"
