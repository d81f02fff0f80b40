"""What a package says of its licence, in the field that says most."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from importlib.metadata import PackageMetadata

_CLASSIFIER = "License :: "
_LONGEST = 100
"""Some have the licence's whole text where its name should be."""


def licence_of(fields: PackageMetadata) -> tuple[str, bool]:
    """The licence, and whether it is an SPDX expression; empty if the package does not say."""
    expression = field(fields, "License-Expression")
    if expression:
        return expression, True
    classifiers = fields.get_all("Classifier") or ()
    named = [
        text.rpartition(" :: ")[2]
        for text in classifiers
        if text.startswith(_CLASSIFIER) and not text.endswith("OSI Approved")
    ]
    if named:
        return " and ".join(sorted(set(named))), False
    first = field(fields, "License").partition("\n")[0].strip()
    return (first, False) if len(first) <= _LONGEST and first != "UNKNOWN" else ("", False)


def field(fields: PackageMetadata, name: str) -> str:
    """The first of that name; empty if there is none."""
    return next(iter(fields.get_all(name) or ()), "").strip()
