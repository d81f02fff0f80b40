"""Fetching without a network: a program of the test's own stands in for Maven."""

from __future__ import annotations

import hashlib
import os
import re
import shlex
import sys
from dataclasses import replace
from importlib.metadata import version
from typing import TYPE_CHECKING

import pytest

from deploy.local import jars
from deploy.local.home import Home
from deploy.local.jars import Bundle, Jar
from dovetail.errors import StackError

if TYPE_CHECKING:
    from pathlib import Path

CONTENT = b"the bytes of a jar"
LOCK = [
    Jar(hashlib.sha256(CONTENT).hexdigest(), len(CONTENT), f"group:artifact{n}:1") for n in range(3)
]


class Some(Bundle):
    def lock(self) -> list[Jar]:
        return LOCK


BUNDLE = Some("some", "Some Jars", "1", 1 << 20)


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path / "home")


def maven(tmp_path: Path, body: str) -> dict[str, str]:
    """Return an environment with a Maven that runs `body` and a PyPI that cannot be reached."""
    program, script = tmp_path / "mvn", tmp_path / "mvn.py"
    script.write_text(
        "import sys; from pathlib import Path\n"
        "out = [a for a in sys.argv if a.startswith('-DoutputDirectory=')][0].partition('=')[2]\n"
        f"{body}\n"
    )
    # By the shell: the first line of a script takes no interpreter whose path has a space.
    program.write_text(f'#!/bin/sh\nexec {shlex.join([sys.executable, str(script)])} "$@"\n')
    program.chmod(0o755)
    unreachable = {"PIP_INDEX_URL": "http://127.0.0.1:9/", "PIP_RETRIES": "0"}
    hidden = {"PIP_FIND_LINKS", "PIP_EXTRA_INDEX_URL"}
    kept = {name: value for name, value in os.environ.items() if name not in hidden}
    return {**kept, **unreachable, "PIP_CONFIG_FILE": os.devnull, "MVN": str(program)}


def write(names: list[str], content: bytes = CONTENT) -> str:
    return "\n".join(f"Path(out, {name!r}).write_bytes({content!r})" for name in names)


ALL = [jar.name for jar in LOCK]


def test_a_complete_fetch_is_kept_and_not_repeated(home: Home, tmp_path: Path) -> None:
    folder = jars.fetch(BUNDLE, home, print, maven(tmp_path, write(ALL)))
    assert sorted(path.name for path in folder.iterdir()) == ALL
    again = jars.fetch(BUNDLE, home, print, maven(tmp_path, "raise SystemExit('called again')"))
    assert again == folder


@pytest.mark.parametrize(
    "body",
    [
        write(ALL[:2]) + "\nraise SystemExit('connection lost')",
        write(ALL[:2]),
        write(ALL, b"not the bytes of it"),
        write([*ALL, "stranger-1.jar"]),
    ],
    ids=["broken off", "one jar lacking", "other bytes", "one jar too many"],
)
def test_a_fetch_that_is_not_what_the_lock_names_is_not_used(
    home: Home, tmp_path: Path, body: str
) -> None:
    said: list[str] = []
    with pytest.raises(StackError, match="is the network up"):
        jars.fetch(BUNDLE, home, said.append, maven(tmp_path, body))
    assert sorted(path.name for path in home.jars.iterdir()) == ["lock"]
    assert [line for line in said if "failed" in line]


def test_the_remains_of_a_killed_fetch_are_not_used(home: Home, tmp_path: Path) -> None:
    partial = home.jars / "some-1.partial"
    partial.mkdir()
    (partial / "stranger-1.jar").write_bytes(b"")
    folder = jars.fetch(BUNDLE, home, print, maven(tmp_path, write(ALL)))
    assert sorted(path.name for path in folder.iterdir()) == ALL
    assert not partial.exists()


def test_a_folder_with_a_truncated_jar_is_fetched_again(home: Home, tmp_path: Path) -> None:
    folder = jars.fetch(BUNDLE, home, print, maven(tmp_path, write(ALL)))
    (folder / ALL[0]).write_bytes(CONTENT[:5])
    jars.fetch(BUNDLE, home, print, maven(tmp_path, write(ALL)))
    assert (folder / ALL[0]).read_bytes() == CONTENT


def test_too_small_a_disk_is_named_before_anything_is_fetched(home: Home, tmp_path: Path) -> None:
    large = replace(BUNDLE, needed_bytes=2**62)
    with pytest.raises(StackError, match="DOVETAIL_HOME"):
        jars.fetch(large, home, print, maven(tmp_path, write(ALL)))


def test_an_empty_mvn_means_without_maven() -> None:
    assert jars._mvn({"MVN": "", "PATH": os.environ["PATH"]}) is None


def test_the_locks_pin_what_the_bundles_are_named_after() -> None:
    kafka = {jar.coordinate for jar in jars.KAFKA.lock()}
    assert f"org.apache.kafka:kafka_2.13:{jars.KAFKA.version}" in kafka
    assert any(name.startswith("org.apache.logging.log4j:log4j-slf4j-impl:") for name in kafka)
    spark = {jar.coordinate for jar in jars.SPARK.lock()}
    assert f"org.apache.spark:spark-sql-kafka-0-10_2.13:{jars.SPARK.version}" in spark
    assert any(name.startswith("org.postgresql:postgresql:") for name in spark)


def test_the_connectors_are_of_the_spark_that_is_installed() -> None:
    assert version("pyspark") == jars.SPARK.version


@pytest.mark.parametrize("bundle", [jars.KAFKA, jars.SPARK], ids=lambda bundle: bundle.name)
def test_a_pom_names_no_jar_that_its_lock_does_not_pin(bundle: Bundle) -> None:
    named = re.findall(
        r"<groupId>([^<*]+)</groupId>\s*<artifactId>([^<]+)</artifactId>\s*<version>([^<]+)<",
        bundle.pom.read_text(),
    )
    assert {":".join(one) for one in named[1:]} <= {jar.coordinate for jar in bundle.lock()}
