"""docker-compose.yml as Docker Compose itself reads it: by the loader that it is built on."""

from __future__ import annotations

import shutil
import subprocess

import pytest

from deploy.local.home import CHECKOUT
from tests.deploy import tools


@pytest.fixture
def read(tmp_path):
    """Read it with a .env as a user makes it of the example."""
    shutil.copy(CHECKOUT / "docker-compose.yml", tmp_path)

    def of(password):
        example = (CHECKOUT / ".env.example").read_text()
        (tmp_path / ".env").write_text(example.replace("PASSWORD=\n", f"PASSWORD={password}\n"))
        return subprocess.run(
            [tools.compose(), "docker-compose.yml"],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
        )

    return of


@pytest.mark.timeout(3600)
def test_compose_reads_it(read):
    done = read("secret1")
    assert done.returncode == 0, done.stderr
    assert "postgresql://dovetail:secret1@postgres:5432/shop" in done.stdout


def test_it_says_which_password_is_missing(read):
    done = read("")
    assert done.returncode
    assert "PASSWORD is missing" in done.stdout + done.stderr
