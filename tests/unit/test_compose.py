"""docker-compose.yml by the Compose specification, and by what it promises."""

from __future__ import annotations

import json
import re
import shutil
import stat
import subprocess

import jsonschema_rs
import pytest
import yaml

from deploy.local.home import CHECKOUT
from dovetail import roles

FILE = CHECKOUT / "docker-compose.yml"
TEXT = FILE.read_text()
COMPOSE = yaml.safe_load(TEXT)
SERVICES = COMPOSE["services"]
OURS = {name: one for name, one in SERVICES.items() if "dovetail" in one["image"]}
VARIABLES = set(re.findall(r"\$\{(\w+)", TEXT))


def _told(name):
    return SERVICES[name].get("environment", {})


def _secrets(one):
    return one.get("secrets", ())


def schema():
    file = CHECKOUT / "tests/schemas/compose-spec.json"
    return jsonschema_rs.validator_for(json.loads(file.read_text()))


def test_it_keeps_to_the_specification():
    assert [error.message for error in schema().iter_errors(COMPOSE)] == []


def test_the_specification_would_notice():
    broken = {**COMPOSE, "services": {"ingest": {"image": "x", "depend_on": {}}}}
    assert not schema().is_valid(broken)


@pytest.mark.parametrize("name", SERVICES)
def test_each_container_is_hardened(name):
    one = SERVICES[name]
    assert one["read_only"] is True
    assert one["cap_drop"] == ["ALL"]
    assert one["security_opt"] == ["no-new-privileges:true"]
    # Docker and Podman let nobody load a library from such a folder, unless they are told.
    java = name == "kafka" or one["image"] == SERVICES["frequency"]["image"]
    assert ("/tmp:exec" if java else "/tmp") in one["tmpfs"]
    if name in OURS:
        assert any(volume.endswith(":/var/cache/dovetail") for volume in one["volumes"])
    else:  # ours say so in the image
        user, _, group = one["user"].partition(":")
        assert int(user) > 0
        assert int(group) > 0


@pytest.mark.parametrize("name", SERVICES)
def test_each_image_may_be_pinned_by_its_digest(name):
    assert re.fullmatch(
        r"\$\{\w+_IMAGE:-[^}]+:[^}]+\}|\$\{\w+_IMAGE:-[^}]+\}:\$\{DOVETAIL_TAG:-[^}]+\}",
        SERVICES[name]["image"],
    )


class TestRoles:
    """Who each process is in the database: nobody is more than it needs."""

    def test_only_who_makes_tables_and_roles_is_the_administrator(self):
        administrators = {name for name, one in SERVICES.items() if "postgres" in _secrets(one)}
        assert administrators == {"postgres", "catalogue", "roles"}

    @pytest.mark.parametrize("name", [name for name in OURS if "DATABASE_URL" in _told(name)])
    def test_each_has_the_passwords_of_its_roles_and_no_other(self, name):
        told = _told(name)
        files = {value for key, value in told.items() if key.endswith("_PASSWORD_FILE")}
        extra = {"control": {"admin-token"}, "roles": {*roles.ROLES}}.get(name, set())
        assert set(_secrets(OURS[name])) == {file.rpartition("/")[2] for file in files} | extra
        for prefix in ("DATABASE", "CONTROL_DATABASE"):
            if f"{prefix}_URL" in told:
                user = told[f"{prefix}_URL"].partition("//")[2].partition("@")[0]
                secret = told[f"{prefix}_PASSWORD_FILE"].rpartition("/")[2]
                assert secret == ("postgres" if user == "dovetail" else user)

    def test_roles_are_made_before_anybody_is_one(self):
        for name in ("control", "ingest", "disk-phase-0"):
            assert "roles" in _before(name)
        assert "catalogue" in _before("roles")

    def test_every_secret_is_somebodys(self):
        assert {name for one in SERVICES.values() for name in _secrets(one)} == {
            *COMPOSE["secrets"]
        }


@pytest.mark.parametrize("file", ["docker-compose.yml", ".env.example", "docs/deployment.md"])
def test_secrets_are_made_for_containers_and_for_no_other_user(file, tmp_path):
    """As it says: a container's user reads a file, nobody of this machine comes as far."""
    text = re.sub(r"^#   ", "", (CHECKOUT / file).read_text(), flags=re.MULTILINE)
    steps = re.search(r"^mkdir -p secrets/tls.*?\bdone\b", text, re.MULTILINE | re.DOTALL)[0]
    # Not every machine has openssl.
    script = f"openssl() {{ echo secret; }}\n{steps}"
    subprocess.run(["sh", "-euc", script], cwd=tmp_path, check=True)
    folder = tmp_path / "secrets"
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    made = {path.name: path for path in folder.iterdir() if path.is_file()}
    assert made.keys() == COMPOSE["secrets"].keys()
    assert {stat.S_IMODE(path.stat().st_mode) for path in made.values()} == {0o444}


@pytest.mark.parametrize("name", SERVICES)
def test_nothing_starts_before_what_it_needs_is_well(name):
    for needed, how in SERVICES[name].get("depends_on", {}).items():
        condition = how["condition"]
        check = SERVICES[needed].get("healthcheck", {})
        if condition == "service_healthy":
            assert check.get("test"), f"{needed} has no health check"
        else:
            assert condition == "service_completed_successfully"
            assert SERVICES[needed]["restart"] == "no"


def test_the_order_of_starting_is_the_order_in_which_the_data_flows():
    assert _before("disk-phase-0") >= {"cache-phase-0", "mapper", "ingest", "control", "kafka"}
    assert _before("cache-phase-1") >= {"mapper", "ingest", "control", "postgres"}
    assert "disk-phase-0" not in _before("cache-phase-0")


def test_ports_are_open_to_this_machine_alone():
    published = [port for one in SERVICES.values() for port in one.get("ports", ())]
    assert published
    assert all(port.startswith("127.0.0.1:") for port in published)


def test_no_password_stands_in_it():
    assert not re.search(r"PASSWORD: |PASSWORD\}", TEXT)
    assert "DOVETAIL_ADMIN_TOKEN:" not in TEXT


def test_every_variable_is_explained_in_the_example():
    example = (CHECKOUT / ".env.example").read_text()
    explained = set(re.findall(r"^#? ?([A-Z_]+)=", example, re.MULTILINE))
    assert explained >= VARIABLES
    assert explained - VARIABLES == set()


def test_the_examples_defaults_are_the_files():
    example = (CHECKOUT / ".env.example").read_text()
    shown = dict(re.findall(r"^# ([A-Z_]+)=(.+)$", example, re.MULTILINE))
    used = dict(re.findall(r"\$\{(\w+):-([^}$]+)\}", TEXT))
    for name, default in used.items():
        assert shown[name] == default, name


def test_control_asks_by_tls_where_services_have_a_certificate():
    assert _told("control")["DOVETAIL_STAGES"] == "${DOVETAIL_SCHEME:-http}://{process}:8080"


@pytest.mark.parametrize("volume", COMPOSE["volumes"])
def test_every_volume_is_used(volume):
    used = [mount for one in SERVICES.values() for mount in one.get("volumes", ())]
    assert any(mount.startswith(f"{volume}:") for mount in used)


def test_every_mounted_file_is_there():
    mounts = {mount for one in SERVICES.values() for mount in one.get("volumes", ())}
    for mount in mounts:
        if mount.startswith("./"):
            assert (CHECKOUT / mount.split(":")[0]).exists(), mount


def _compose():
    docker = shutil.which("docker")
    if docker is None:
        return None
    asked = subprocess.run([docker, "compose", "version"], capture_output=True, check=False)
    return [docker, "compose"] if asked.returncode == 0 else None


@pytest.mark.skipif(_compose() is None, reason="the docker compose plugin is not here")
def test_docker_compose_reads_it():
    profiles = [word for one in ("load", "observability", "jobs") for word in ("--profile", one)]
    command = [*_compose(), "-f", str(FILE), *profiles, "config", "--quiet"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def _before(name):
    """All that is started, and well, before it is."""
    needed = set(SERVICES[name].get("depends_on", ()))
    return needed.union(*(_before(one) for one in needed))
