"""docker-compose.yml as Docker Compose itself reads it: by the loader that it is built on."""

from __future__ import annotations

import re
import shutil
import subprocess

import pytest
import yaml

from deploy.local.home import CHECKOUT
from tests.deploy import tools

WITH_A_PASSWORD = re.compile(r"://[^/@\s]*:[^/@\s]*@")


@pytest.fixture(scope="module")
def loader():
    return tools.compose()


@pytest.fixture
def read(loader, tmp_path):
    """Read it with a .env as a user makes it of the example, and further lines."""
    shutil.copy(CHECKOUT / "docker-compose.yml", tmp_path)

    def of(*lines):
        example = (CHECKOUT / ".env.example").read_text()
        (tmp_path / ".env").write_text("\n".join([example, *lines, ""]))
        done = subprocess.run(
            [loader, "docker-compose.yml"],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    return of


@pytest.mark.timeout(3600)
def test_compose_reads_it_with_the_example_as_it_is(read):
    services = yaml.safe_load(read())["services"]
    assert services["mapper"]["image"].startswith("dovetail:")
    assert services["frequency"]["profiles"] == ["jobs"]


def test_no_address_has_a_password(read):
    text = read()
    assert "postgresql://dovetail_reader@postgres:5432/shop" in text
    assert not WITH_A_PASSWORD.search(text)
    assert WITH_A_PASSWORD.search("postgresql://dovetail:secret@postgres:5432/shop")


def test_every_secret_is_a_file_of_the_folder_that_is_named(read, tmp_path):
    for lines, folder in (((), "secrets"), (("DOVETAIL_SECRETS=./elsewhere",), "elsewhere")):
        secrets = yaml.safe_load(read(*lines))["secrets"]
        assert {name: one["file"] for name, one in secrets.items()} == {
            name: str(tmp_path / folder / name) for name in secrets
        }


def test_control_asks_the_services_as_it_is_told(read):
    for lines, scheme in (((), "http"), (("DOVETAIL_SCHEME=https",), "https")):
        told = yaml.safe_load(read(*lines))["services"]["control"]["environment"]
        assert told["DOVETAIL_STAGES"] == f"{scheme}://{{process}}:8080"


def test_another_database_is_named_once_for_all(read):
    services = yaml.safe_load(read("DATABASE=db.example:5433/goods"))["services"]
    told = [one.get("environment", {}) for one in services.values()]
    addresses = {value for one in told for name, value in one.items() if name.endswith("_URL")}
    assert addresses
    assert all(address.endswith("@db.example:5433/goods") for address in addresses)
