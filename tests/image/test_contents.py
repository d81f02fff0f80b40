"""What the images hold, how large they are, and what must not be in them."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from deploy.image.build import CERTIFICATES, certificates, pip_settings

_LOOK = """
import importlib.metadata, json, os, pathlib, shutil
root = pathlib.Path("/opt/dovetail")
size = lambda folder: sum(f.lstat().st_size for f in folder.rglob("*") if not f.is_dir())
def writable():
    for folder, names, _ in os.walk("/"):
        if folder in ("/proc", "/sys", "/dev"):
            names.clear()
        elif os.access(folder, os.W_OK):
            names.clear()
            yield folder
print(json.dumps({
    "packages": {one.name.lower().replace("_", "-"): one.version
                 for one in importlib.metadata.distributions()},
    "sizes": {"packages": size(root / "lib"), "kernels": size(root / "kernels"),
              "jars": size(root / "jars")},
    "kernels": sum(1 for _ in (root / "kernels").rglob("*.nbc")),
    "listed": [one["name"].lower().replace("_", "-")
               for one in json.loads((root / "sbom/bom.json").read_text())["components"]],
    "tools": [name for name in ("pip", "pip3", "gcc", "cc", "make", "uv", "mvn", "javac", "curl")
              if shutil.which(name)],
    "java": shutil.which("java"),
    "writable": sorted(writable()),
    "user": [os.getuid(), os.getgid()],
    "compiled": sum(1 for _ in (root / "lib").rglob("*.pyc")),
    "environment": sorted(os.environ),
}))
"""


@pytest.fixture(scope="session")
def found(engine, image):
    """What a process in the image sees, with a root that is read-only."""
    words = ["--network", "none", *engine.read_only, "--tmpfs", "/tmp"]
    hardened = ["--cap-drop", "ALL", "--security-opt", "no-new-privileges"]
    python = ["--entrypoint", "python", image, "-c", _LOOK]
    return json.loads(engine.run("--rm", *words, *hardened, *python).stdout)


def test_its_size_and_contents_are_listed(engine, image, found, capsys):
    size = engine.inspect(image)["Size"]
    parts = ", ".join(f"{name} {bytes_ >> 20} MiB" for name, bytes_ in found["sizes"].items())
    with capsys.disabled():
        print(f"\n{image}: {size >> 20} MiB; {parts}; {found['kernels']} compiled kernels")
        print("  " + ", ".join(f"{n} {v}" for n, v in sorted(found["packages"].items())))
    assert found["sizes"]["packages"] > 0
    assert size > sum(found["sizes"].values())


def test_kernels_and_byte_code_are_in_it(found):
    assert found["kernels"] > 50
    assert found["compiled"] > 1_000


def test_its_bill_of_materials_names_every_package(found):
    assert set(found["packages"]) - set(found["listed"]) <= {"dovetail"}


def test_only_the_spark_image_has_spark(image, found):
    spark = "spark" in image
    assert ("pyspark" in found["packages"]) is spark
    assert bool(found["java"]) is spark
    assert (found["sizes"]["jars"] > 0) is spark


def test_nothing_in_it_installs_or_builds(found):
    assert found["tools"] == []
    assert not {"pip", "setuptools", "wheel", "pytest", "ruff"} & set(found["packages"])


def test_it_runs_as_its_own_user_who_can_write_only_where_volumes_are(found):
    assert found["user"] == [10001, 10001]
    assert found["writable"] == ["/tmp", "/var/cache/dovetail", "/var/lib/dovetail"]


def test_its_configuration_is_the_recipes(engine, image):
    config = engine.inspect(image)["Config"]
    assert config["User"] == "10001:10001"
    assert config["Entrypoint"][-3:] == ["python", "-m", "deploy.image.start"]
    assert set(config["Volumes"]) == {"/var/cache/dovetail", "/var/lib/dovetail"}
    assert config["Labels"]["org.opencontainers.image.title"] == image.split(":")[0]
    # Of OCI's own format it would have been dropped in silence.
    assert (config.get("Healthcheck") or engine.inspect(image)["Healthcheck"])["Test"]


def test_what_the_build_was_told_of_registries_is_not_in_it(engine, image, found, tmp_path):
    """Neither this machine's configuration of pip nor its certificates, nor a word of them."""
    config = (
        json.dumps(engine.inspect(image)["Config"])
        + engine("history", "--no-trunc", "--format", "{{.CreatedBy}}", image).stdout
    )
    assert "index-url" not in config
    assert not [name for name in found["environment"] if name.startswith(("PIP_INDEX", "PIP_CERT"))]
    container = engine("create", image).stdout.strip()
    try:
        absent = engine("cp", f"{container}:/etc/pip.conf", tmp_path / "pip.conf", check=False)
        assert absent.returncode or (tmp_path / "pip.conf").read_text() == ""
        engine("cp", f"{container}:{CERTIFICATES}", tmp_path / "certificates")
    finally:
        engine("rm", "-f", container)
    # Without one nothing was mounted, and two machines may well trust the same.
    if ours := certificates(pip_settings(), os.environ):
        assert Path(ours).read_bytes() != (tmp_path / "certificates").read_bytes()


def test_without_a_word_it_says_what_there_is(engine, image):
    said = engine.run("--rm", "--network", "none", image, check=False)
    assert "usage" in (said.stdout + said.stderr).lower()
