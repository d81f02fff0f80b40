from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from deploy.local.java import find_java
from dovetail.errors import StackError

if TYPE_CHECKING:
    from pathlib import Path


def fake_java(folder: Path, version: str) -> Path:
    folder.mkdir(parents=True)
    java = folder / "java"
    java.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\" 2025-01-01' >&2\n")
    java.chmod(0o755)
    return java


def test_no_java_on_the_path_is_an_error_with_a_cure() -> None:
    with pytest.raises(StackError, match="install Java 17"):
        find_java({"PATH": ""})


@pytest.mark.parametrize("version", ["1.8.0_392", "11.0.21"])
def test_a_java_too_old_for_kafka_is_refused(tmp_path: Path, version: str) -> None:
    fake_java(tmp_path / "bin", version)
    with pytest.raises(StackError, match="too old"):
        find_java({"PATH": str(tmp_path / "bin")})


@pytest.mark.parametrize("version", ["17.0.15", "21", "25-ea"])
def test_a_new_enough_java_is_found(tmp_path: Path, version: str) -> None:
    java = fake_java(tmp_path / "bin", version)
    assert find_java({"PATH": str(tmp_path / "bin")}) == java


def test_java_home_goes_before_the_path(tmp_path: Path) -> None:
    fake_java(tmp_path / "bin", "11")
    java = fake_java(tmp_path / "jdk" / "bin", "21")
    assert find_java({"PATH": str(tmp_path / "bin"), "JAVA_HOME": str(tmp_path / "jdk")}) == java


def test_a_wrong_java_home_is_named(tmp_path: Path) -> None:
    with pytest.raises(StackError, match="JAVA_HOME"):
        find_java({"PATH": "", "JAVA_HOME": str(tmp_path)})
