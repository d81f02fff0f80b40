"""A release's code comes out of the history, or it is said why not."""

from __future__ import annotations

import re
import subprocess

import pytest

from deploy.local.home import CHECKOUT, Home
from dovetail.errors import StackError
from tests.upgrade.releases import PREVIOUS, RELEASES, Release, code_of, project_of

CHANGES = (CHECKOUT / "CHANGELOG.md").read_text()


def numbers(version):
    return tuple(map(int, version.split(".")))


def test_the_code_of_the_previous_release_is_its_own(tmp_path):
    folder = code_of(PREVIOUS, Home(tmp_path))
    assert project_of(folder)["version"] == PREVIOUS.version
    assert (folder / "services" / "ingest" / "main.py").is_file()
    assert not (folder / "tests").exists()


def test_taken_out_again_nothing_of_before_is_left(tmp_path):
    home = Home(tmp_path)
    stray = code_of(PREVIOUS, home) / "dovetail" / "stray.py"
    stray.touch()
    code_of(PREVIOUS, home)
    assert not stray.exists()


def test_a_clone_without_the_history_is_told_how_to_get_it(tmp_path):
    subprocess.run(["git", "init", "--quiet", tmp_path / "clone"], check=True)
    with pytest.raises(StackError, match=r"0\.1\.0.*git fetch --unshallow"):
        code_of(PREVIOUS, Home(tmp_path / "home"), tmp_path / "clone")


def test_a_release_that_cannot_run_here_is_told(tmp_path):
    repository = tmp_path / "other"
    for part in ("dovetail", "services", "deploy"):
        (repository / part).mkdir(parents=True)
        (repository / part / "__init__.py").touch()
    (repository / "pyproject.toml").write_text(
        '[project]\nversion = "9"\ndependencies = ["numpy>=1", "not-a-package-of-ours>=2"]\n'
    )
    git = ["git", "-C", repository, "-c", "user.name=x", "-c", "user.email=x@x"]
    for arguments in (["init", "--quiet"], ["add", "."], ["commit", "--quiet", "-m", "x"]):
        subprocess.run([*git, *arguments], check=True)
    commit = subprocess.run([*git, "rev-parse", "HEAD"], check=True, capture_output=True, text=True)
    with pytest.raises(StackError, match="release 9 needs not-a-package-of-ours>=2, which"):
        code_of(Release("9", commit.stdout.strip()), Home(tmp_path / "home"), repository)


def test_the_present_version_comes_after_every_release():
    versions = [*(one.version for one in RELEASES), project_of(CHECKOUT)["version"]]
    assert sorted(set(versions), key=numbers) == versions


def test_the_changelog_has_a_heading_for_each_version_newest_first():
    headings = re.findall(r"^## (.+)$", CHANGES, re.MULTILINE)
    versions = [project_of(CHECKOUT)["version"], *(one.version for one in reversed(RELEASES))]
    assert [one for one in headings if one != "Unreleased"] == versions
