from __future__ import annotations

import pytest

from deploy.local.chromium import find_chromium
from deploy.local.home import Home
from dovetail.errors import StackError


def program(folder, name):
    path = folder / name
    path.write_text("#!/bin/sh\n")
    path.chmod(0o755)
    return path


def test_the_one_that_is_asked_for_comes_before_the_paths(tmp_path):
    asked, found = program(tmp_path, "mine"), program(tmp_path, "chromium")
    environ = {"PATH": str(tmp_path)}
    assert find_chromium(Home(tmp_path), environ=environ).program == found
    chosen = find_chromium(Home(tmp_path), environ={**environ, "CHROMIUM": str(asked)})
    assert chosen.program == asked
    assert chosen.environment == {}


def test_one_that_is_not_there_is_an_error(tmp_path):
    with pytest.raises(StackError, match=r"CHROMIUM=/nowhere is no file"):
        find_chromium(Home(tmp_path), environ={"CHROMIUM": "/nowhere"})


def test_without_apt_the_cure_is_told(tmp_path):
    with pytest.raises(StackError, match="install Chromium, or set CHROMIUM"):
        find_chromium(Home(tmp_path), environ={"PATH": str(tmp_path)})
