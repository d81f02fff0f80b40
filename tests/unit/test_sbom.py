"""The bill of materials, over the packages that are installed here."""

from __future__ import annotations

import json
from dataclasses import replace
from email.message import Message
from importlib import metadata

import pytest

from deploy.local import jars
from deploy.sbom.__main__ import licence_list, main
from deploy.sbom.cyclonedx import bill
from deploy.sbom.installed import normalised, packages
from deploy.sbom.licences import licence_of
from dovetail.errors import ConfigError


@pytest.fixture(scope="module")
def services():
    return packages()


def test_it_has_what_the_services_need_and_nothing_of_tests_or_spark(services):
    direct = {"confluent-kafka", "numba", "pyarrow", "psycopg-binary", "llvmlite", "starlette"}
    assert direct <= services.keys()
    assert not {"pytest", "ruff", "pyspark", "pandas"} & services.keys()


def test_an_extra_adds_to_it(services):
    added = packages(extras=["spark"]).keys() - services.keys()
    assert {"pyspark", "py4j", "pandas"} <= added
    assert "pytest" not in added


def test_versions_are_those_that_are_pinned(services):
    lines = (jars.HERE.parents[1] / "constraints.txt").read_text().split()
    pinned = {normalised(line.split("==")[0]): line.split("==")[1] for line in lines}
    for name, package in services.items():
        if name != "dovetail":
            assert package.version == pinned[name], name


def test_every_package_says_its_licence(services):
    assert [name for name, package in services.items() if not package.licence] == []


def test_each_is_listed_once_and_every_dependency_is_among_them():
    document = bill(packages(extras=["spark"]), jars.SPARK.lock())
    references = [component["bom-ref"] for component in document["components"]]
    assert len(references) == len(set(references))
    root = document["metadata"]["component"]["bom-ref"]
    known = {*references, root}
    for dependency in document["dependencies"]:
        assert dependency["ref"] in known
        assert set(dependency["dependsOn"]) <= known
    assert sum(reference.startswith("pkg:maven/") for reference in references) == 5


def test_the_same_packages_give_the_same_bytes(services):
    assert json.dumps(bill(services)) == json.dumps(bill(packages()))


def test_the_files_are_written(tmp_path, capsys):
    assert main(["--into", str(tmp_path / "new")]) == 0
    document = json.loads((tmp_path / "new/bom.json").read_text())
    assert (document["bomFormat"], document["specVersion"]) == ("CycloneDX", "1.6")
    table = (tmp_path / "new/licences.md").read_text().splitlines()
    assert len(table) == 4 + len(document["components"]) + 1
    assert "packages" in capsys.readouterr().out


def test_what_is_not_installed_is_not_left_out_in_silence(monkeypatch):
    def missing(name):
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "distribution", missing)
    with pytest.raises(ConfigError, match="dovetail is needed"):
        packages()


@pytest.mark.parametrize(
    ("fields", "licence"),
    [
        (
            [("License-Expression", "MIT OR Apache-2.0"), ("License", "x")],
            ("MIT OR Apache-2.0", True),
        ),
        ([("Classifier", "License :: OSI Approved :: BSD License")], ("BSD License", False)),
        ([("Classifier", "License :: OSI Approved"), ("License", "BSD")], ("BSD", False)),
        ([("License", "MIT\n\nPermission is hereby granted")], ("MIT", False)),
        ([("License", "x" * 200)], ("", False)),
        ([("License", "UNKNOWN")], ("", False)),
    ],
)
def test_a_licence_is_taken_from_the_field_that_says_most(fields, licence):
    message = Message()
    for name, value in fields:
        message[name] = value
    assert licence_of(message) == licence


def test_a_package_without_a_licence_stands_in_the_list_as_unknown(services):
    assert "| unknown |" in licence_list([replace(services["numba"], licence="")])
