"""The packages that a distribution needs, each as it is installed in this environment."""

from __future__ import annotations

import re
from dataclasses import dataclass
from importlib import metadata
from typing import TYPE_CHECKING

from packaging.requirements import Requirement

from deploy.sbom.licences import field, licence_of
from dovetail.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

ROOT = "dovetail"
_HOMEPAGES = ("homepage", "home", "source", "source code", "repository")
"""What packages call the link to where they come from, the best first."""


@dataclass(frozen=True, slots=True)
class Package:
    name: str
    version: str
    licence: str
    """An SPDX expression where `is_expression`, else words; empty if it says nothing."""
    is_expression: bool
    homepage: str
    needs: tuple[str, ...]
    """Names, as they are normalised."""


def packages(root: str = ROOT, extras: Collection[str] = ()) -> dict[str, Package]:
    """`root` and all it needs, by normalised name, in their order."""
    found: dict[str, Package] = {}
    wanted: dict[str, set[str]] = {}
    waiting = [(root, frozenset(extras))]
    while waiting:
        name, with_extras = waiting.pop()
        key = normalised(name)
        known = wanted.get(key)
        if known is not None and with_extras <= known:
            continue
        wanted[key] = set(with_extras) | (known or set())
        needed = list(_needed(name, wanted[key]))
        found[key] = _package(name, [need.name for need in needed])
        waiting.extend((need.name, frozenset(need.extras)) for need in needed)
    return {key: found[key] for key in sorted(found)}


def normalised(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def _needed(name: str, extras: Collection[str]) -> Iterator[Requirement]:
    for text in _installed(name).requires or ():
        requirement = Requirement(text)
        marker = requirement.marker
        # Without any extra the marker is asked with an empty one.
        if marker is None or any(marker.evaluate({"extra": extra}) for extra in ("", *extras)):
            yield requirement


def _package(name: str, needs: list[str]) -> Package:
    installed = _installed(name)
    fields = installed.metadata
    licence, is_expression = licence_of(fields)
    return Package(
        fields["Name"],
        installed.version,
        licence,
        is_expression,
        _homepage(fields),
        tuple(sorted({normalised(need) for need in needs})),
    )


def _homepage(fields: metadata.PackageMetadata) -> str:
    links = {}
    for link in fields.get_all("Project-URL") or ():
        label, _, url = link.partition(", ")
        links[label.lower()] = url
    named = (links[label] for label in _HOMEPAGES if label in links)
    return field(fields, "Home-page") or next(named, next(iter(links.values()), ""))


def _installed(name: str) -> metadata.Distribution:
    try:
        return metadata.distribution(name)
    except metadata.PackageNotFoundError:
        raise ConfigError(f"{name} is needed and not installed here: nothing is listed") from None
