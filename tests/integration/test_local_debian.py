"""Programs of Debian's packages: fetched without root, or told what else helps."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from deploy.local.debian import Unpacked, unpack
from deploy.local.home import Home
from deploy.local.prometheus import find_binaries
from dovetail.errors import StackError

HELLO = ["hello"]
NO_LISTS = 'Dir::State::Lists "{}/none";'
NO_SOURCES = NO_LISTS + ' Dir::Etc::SourceList "/dev/null"; Dir::Etc::SourceParts "/dev/null";'


@pytest.fixture
def apt(tmp_path, monkeypatch):
    """Let apt believe that the machine is set up otherwise."""

    def configure(text):
        (tmp_path / "apt.conf").write_text(text.format(tmp_path))
        monkeypatch.setenv("APT_CONFIG", str(tmp_path / "apt.conf"))

    return configure


def says_hello(unpacked):
    told = subprocess.run([unpacked.program("hello")], capture_output=True, text=True, check=True)
    return told.stdout == "Hello, world!\n"


def test_without_apt_it_is_said_what_else_helps(tmp_path):
    with pytest.raises(StackError, match=r"no apt-get .* `prometheus` and `promtool` are on"):
        find_binaries(Home(tmp_path), {"PATH": str(tmp_path)})
    assert list((tmp_path / "cache/debian").glob("prometheus*")) == []


def test_what_the_machine_has_itself_is_taken(tmp_path):
    for name in ("prometheus", "promtool"):
        (tmp_path / name).write_text("#!/bin/sh\n")
        (tmp_path / name).chmod(0o755)
    found = find_binaries(Home(tmp_path / "home"), {"PATH": str(tmp_path)})
    assert (found.prometheus, found.promtool) == (tmp_path / "prometheus", tmp_path / "promtool")


def test_a_package_that_cannot_be_had_is_told_with_apts_words(tmp_path, apt):
    apt(NO_SOURCES)
    with pytest.raises(StackError, match=r"Unable to locate package hello\n.*or do without"):
        unpack(HELLO, Home(tmp_path), os.environ, "do without", lambda _: None)
    assert not (tmp_path / "cache/debian/hello").exists()


def test_a_package_is_fetched_once_also_where_there_are_no_lists_of_packages(tmp_path, apt):
    apt(NO_LISTS)
    reports = []
    for _ in range(2):
        unpacked = unpack(HELLO, Home(tmp_path), os.environ, "", reports.append)
        assert says_hello(unpacked)
    assert reports == ["fetching Debian's package hello"]
    assert {path.name for path in unpacked.folder.iterdir()} == {"usr"}
    with pytest.raises(StackError, match="has no program goodbye"):
        unpacked.program("goodbye")


def test_a_missing_library_is_named(tmp_path):
    """A program that wants, by its name, a library that nobody has."""
    program = Path(shutil.which("ls"))
    told = subprocess.run(["ldd", program], capture_output=True, text=True, check=True)
    wanted = re.search(r"lib\w+\.so\.\d+", told.stdout)[0].encode()
    nobodys = wanted.replace(b"lib", b"lob")
    copy = tmp_path / "some/usr/bin/ls"
    copy.parent.mkdir(parents=True)
    copy.write_bytes(program.read_bytes().replace(wanted, nobodys))
    copy.chmod(0o755)
    with pytest.raises(StackError, match=f"{nobodys.decode()}.*install the packages"):
        Unpacked(tmp_path / "some").program("ls")
