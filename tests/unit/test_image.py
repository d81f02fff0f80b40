"""What the images run, and that their recipes agree with it."""

from __future__ import annotations

import os
import re
import sys
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from deploy.image import base, build, health, lock, roles, start
from deploy.local import jars
from deploy.local.home import CHECKOUT, Home
from deploy.sbom.installed import normalised, packages
from dovetail import roles as database_roles
from dovetail.topology import CONTROL, ENRICH

RECIPE = (CHECKOUT / build.RECIPE).read_text()
JOINED = RECIPE.replace("\\\n", "")
LOCKS = {name: lock.read((lock.HERE / f"{name}.lock").read_text()) for name in lock.LOCKS}
STAGES = {
    found[2]: (found[1], found[3])
    for found in re.finditer(r"^FROM (\S+) AS (\S+)\n((?:(?!^FROM ).*\n)*)", RECIPE, re.MULTILINE)
}
"""What each begins with, and its steps."""


def kept(stage):
    """All steps that an image is made of: of its stage, and of those that it begins with."""
    begins, steps = STAGES[stage]
    return kept(begins) + steps if begins in STAGES else steps


@pytest.mark.parametrize("service", start.SERVICES)
def test_each_service_is_a_program_of_the_image(service):
    module = start.command_of([service], {})[-1]
    assert (CHECKOUT / f"{module.replace('.', '/')}.py").is_file()


def test_any_other_word_is_the_command_lines():
    assert start.command_of(["audit", "--json"], {}) == [
        *(sys.executable, "-m", "dovetail.cli", "audit", "--json")
    ]
    assert start.command_of(["spark", ENRICH], {})[1:] == ["-m", "services.spark", ENRICH]


def test_without_a_word_it_says_what_there_is(capsys):
    assert start.main([]) == 2
    assert CONTROL in capsys.readouterr().err


def test_kernels_are_for_this_processor_unless_the_image_names_another():
    assert start.for_processor({"NUMBA_CPU_NAME": "", "A": "1"}, "") == {"A": "1"}
    named = {"NUMBA_CPU_NAME": "x86-64-v3", "NUMBA_CPU_FEATURES": ""}
    assert start.for_processor({}, "x86-64-v3") == named
    assert start.for_processor({"NUMBA_CPU_NAME": "znver4"}, "x86-64-v3") == {
        **named,
        "NUMBA_CPU_NAME": "znver4",
    }


@pytest.fixture
def kernels(tmp_path):
    """Those of an image."""
    (tmp_path / "kernels/join_1").mkdir(parents=True)
    file = tmp_path / "kernels/join_1/a.nbi"
    file.write_text("of the image")
    os.utime(file, (1_000, 1_000))
    return tmp_path / "kernels"


def test_kernels_are_copied_once_with_their_times(tmp_path, kernels):
    cache = tmp_path / "cache"
    place = start.filled(cache, kernels)
    assert (place / "join_1/a.nbi").stat().st_mtime == 1_000
    (place / "join_1/b.nbi").write_text("compiled here")
    assert start.filled(cache, kernels) == place
    assert (place / "join_1/b.nbi").read_text() == "compiled here"
    assert [*cache.iterdir()] == [place]


def test_kernels_of_another_image_take_the_place_of_those_in_the_volume(tmp_path, kernels):
    cache = tmp_path / "cache"
    of_before = cache / f"join_{'0' * 40}"  # as of 0.2.0, which had no folder for each image
    for folder in (of_before, cache / "mine"):
        folder.mkdir(parents=True)
    first = start.filled(cache, kernels)
    (kernels / "join_1/a.nbi").write_text("of the next")
    second = start.filled(cache, kernels)
    assert (second / "join_1/a.nbi").read_text() == "of the next"
    assert not first.exists()
    assert {path.name for path in cache.iterdir()} == {second.name, "mine"}


def test_who_is_told_the_place_itself_finds_them_there(tmp_path, kernels):
    """As executors of Spark's are, by their driver."""
    place = start.filled(tmp_path / "cache", kernels)
    assert start.filled(place, kernels) == place
    assert start.filled(tmp_path / "own" / place.name, kernels).parent == tmp_path / "own"
    assert [path.name for path in place.iterdir()] == ["join_1"]


def test_what_runs_looks_for_its_kernels_there(tmp_path, kernels, monkeypatch):
    monkeypatch.setattr(start, "KERNELS", kernels)
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path / "cache"))
    became = []
    monkeypatch.setattr(start.os, "execvpe", lambda *words: became.append(words))
    start.main([CONTROL])
    (_, _, environment) = became[0]
    assert environment["NUMBA_CACHE_DIR"] == str(start.filled(tmp_path / "cache", kernels))


def test_of_two_containers_that_fill_one_volume_the_first_wins(tmp_path, kernels, monkeypatch):
    cache = tmp_path / "cache"
    place = start.filled(cache, kernels)
    start.shutil.rmtree(place)
    copy = start.shutil.copytree

    def meanwhile(*words, **options):
        place.mkdir(exist_ok=True)  # copytree calls itself for each folder
        (place / "b.nbi").write_text("the other's")
        return copy(*words, **options)

    monkeypatch.setattr(start.shutil, "copytree", meanwhile)
    start.filled(cache, kernels)
    assert [*cache.iterdir()] == [place]
    assert (place / "b.nbi").read_text() == "the other's"


def test_an_image_without_kernels_starts_all_the_same(tmp_path):
    assert start.filled(tmp_path / "cache", tmp_path / "none") == tmp_path / "cache"
    assert not (tmp_path / "cache").exists()


def test_a_driver_on_kubernetes_is_submitted_as_spark_asks():
    command = start.command_of(
        ["driver", "--properties-file", "/opt/spark.properties", "local:///job.py"],
        {"SPARK_DRIVER_BIND_ADDRESS": "10.0.0.7"},
    )
    assert command[0].endswith("/spark-submit")
    assert command[1:5] == [
        *("--conf", "spark.driver.bindAddress=10.0.0.7"),
        *("--deploy-mode", "client"),
    ]


def test_an_executor_on_kubernetes_takes_its_options_in_their_order():
    names = ("DRIVER_URL", "EXECUTOR_ID", "EXECUTOR_CORES", "APPLICATION_ID", "EXECUTOR_POD_IP")
    told = {f"SPARK_{name}": name.lower() for name in (*names, "RESOURCE_PROFILE_ID")}
    command = start.command_of(
        ["executor"],
        {
            **told,
            "SPARK_EXECUTOR_POD_NAME": "pod",
            "SPARK_HOME": "/spark",
            "SPARK_EXECUTOR_MEMORY": "1g",
            "SPARK_JAVA_OPT_10": "-Dlast",
            "SPARK_JAVA_OPT_2": "-Dfirst",
        },
    )
    assert command[:5] == ["java", "-Dfirst", "-Dlast", "-Xms1g", "-Xmx1g"]
    assert command[command.index("-cp") + 1] == "/spark/jars/*"
    assert command[command.index("--driver-url") + 1] == "driver_url"


class Answer(BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200 if self.path == "/health" else 503)
        self.end_headers()
        self.wfile.write(self.path.encode())

    def log_message(self, *_):
        """Say nothing."""


def test_the_health_check_tells_alive_from_not_ready_and_from_gone(monkeypatch, capsys):
    server = HTTPServer(("127.0.0.1", 0), Answer)
    monkeypatch.setenv("DOVETAIL_PORT", str(server.server_port))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        assert health.main([]) == 0
        assert health.main(["/ready"]) == 1
        assert "/ready" in capsys.readouterr().out
    finally:
        server.shutdown()
        server.server_close()
    assert health.main([]) == 1


@pytest.mark.parametrize("stage", build.IMAGES.values())
class TestRecipe:
    def test_is_pinned_not_root_and_checks_its_health(self, stage):
        assert re.search(r"^ARG PYTHON_IMAGE=python:\d+\.\d+\.\d+-slim-\w+$", RECIPE, re.MULTILINE)
        assert {begins for begins, _ in STAGES.values()} - set(STAGES) == {"${PYTHON_IMAGE}"}
        last = kept(stage)
        assert "\nUSER 10001:10001\n" in last
        assert "\nHEALTHCHECK " in last
        assert 'ENTRYPOINT ["tini", "--", "python", "-m", "deploy.image.start"]' in last

    def test_leaves_nothing_that_installs_or_builds(self, stage):
        last = kept(stage)
        assert "pip uninstall" in last
        assert "pip install" not in last
        for tool in ("gcc", "build-essential", "maven", "jdk-17-jdk"):
            assert tool not in last

    def test_writes_only_where_a_volume_is(self, stage):
        last = kept(stage)
        volumes = re.search(r"^VOLUME \[(.*)\]", last, re.MULTILINE).group(1)
        declared = [volume.strip(' "') for volume in volumes.split(",")]
        written = re.findall(
            r"(?:NUMBA_CACHE_DIR|DOVETAIL_HOME|DOVETAIL_FREQUENCIES|SPARK_LOCAL_DIRS)=(\S+)", last
        )
        assert len(written) >= 3
        assert all(folder.startswith(tuple(declared)) for folder in written)


def test_it_is_built_only_from_what_is_sent_to_the_builder():
    ignored = (CHECKOUT / ".dockerignore").read_text().split()
    sent = tuple(line[1:] for line in ignored if line[0] == "!")
    copied = re.findall(r"^COPY (?!--from)(.+) \S+$", RECIPE, re.MULTILINE)
    assert copied
    for file in " ".join(copied).split():
        assert file.startswith(sent)
        assert (CHECKOUT / file).exists()


class TestInstalled:
    """What is installed: nothing without a hash, and no version but that of constraints.txt."""

    def test_every_step_that_fetches_wants_hashes(self):
        installs = re.findall(r"(?<!-m )\bpip (?:--python \S+ )?(?:install|wheel) [^&\n]*", JOINED)
        assert len(installs) == 6
        for step in installs:
            assert "--no-deps" in step
            assert ("--require-hashes" in step) is ("--no-index" not in step), step

    def test_what_fetches_jars_and_a_bases_pip_want_hashes_too(self, tmp_path, monkeypatch):
        told = []
        monkeypatch.setattr(jars, "run_tool", lambda _, words, *rest, **more: told.append(words))
        jars._jgo(jars.SPARK, Home(tmp_path), tmp_path, print, {})
        monkeypatch.setattr(base, "_run", lambda *words: told.append(words))
        monkeypatch.setattr(base.Path, "write_text", lambda *_: None)
        base.make("docker")
        pips = [[*map(str, words)] for words in told if "pip" in words]
        assert len(pips) == 2
        for words, name in zip(pips, ("jgo", "base"), strict=True):
            assert "--require-hashes" in words
            assert words[words.index("-r") + 1] == str(lock.HERE / f"{name}.lock")

    @pytest.mark.parametrize("name", lock.LOCKS)
    def test_each_has_its_hashes(self, name):
        assert LOCKS[name]
        for text in LOCKS[name].values():
            first, *hashes = text.splitlines()
            assert "==" in first
            assert hashes
            assert all(re.fullmatch(r" +--hash=sha256:[0-9a-f]{64}( \\)?", one) for one in hashes)

    @pytest.mark.parametrize("name", lock.LOCKS)
    def test_versions_are_those_of_the_constraints(self, name):
        pinned = {
            normalised(line.partition("==")[0]): line.partition("==")[2]
            for line in (CHECKOUT / "constraints.txt").read_text().splitlines()
        }
        for package, text in LOCKS[name].items():
            version = text.partition("==")[2].split()[0]
            assert pinned.get(normalised(package), version) == version, "run: make lock"
            assert normalised(package) in pinned or name not in ("services", "spark")

    def test_uv_asks_the_index_that_pip_is_told_of(self, tmp_path, monkeypatch):
        """By an uv that answers with what it was told."""
        (tmp_path / "uv").write_text('#!/bin/sh\necho "index==$UV_DEFAULT_INDEX"\n')
        (tmp_path / "uv").chmod(0o755)
        monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
        monkeypatch.setenv("PIP_INDEX_URL", "https://mirror/simple")
        for name in ("UV_DEFAULT_INDEX", "UV_INDEX_URL"):
            monkeypatch.delenv(name, raising=False)
        monkeypatch.setattr(lock, "HERE", tmp_path)
        assert lock.main() == 0
        assert (tmp_path / "services.lock").read_text() == "index==https://mirror/simple\n"

    @pytest.mark.parametrize("extras", [[], ["spark"]])
    def test_they_hold_all_that_the_package_needs(self, extras):
        names = ["services", *extras]
        locked = {normalised(package) for name in names for package in LOCKS[name]}
        assert packages(extras=extras).keys() - {"dovetail"} <= locked, "run: make lock"


class TestBuild:
    """`make image`, by an engine that only writes down what it is told."""

    def engine(self, folder, name, answers=True):
        program = folder / name
        program.write_text(
            f'#!/bin/sh\n[ "$1" = info ] && exit {0 if answers else 1}\n'
            f'echo "{name} $*" >> {folder}/told\n'
        )
        program.chmod(0o755)

    @pytest.fixture
    def only(self, tmp_path, monkeypatch):
        monkeypatch.setenv("PATH", f"{tmp_path}:/bin")
        monkeypatch.setattr(build.shutil, "which", lambda name: (tmp_path / name).exists() or None)
        return tmp_path

    def test_the_first_engine_that_answers_builds_both(self, only):
        self.engine(only, "docker", answers=False)
        self.engine(only, "buildah")
        assert build.main(["1.2.3", "--build-arg", "A=b"]) == 0
        first, second = (only / "told").read_text().splitlines()
        assert first.startswith("buildah build --format docker --layers")
        assert "--build-arg A=b --target services" in first
        assert first.endswith("-t dovetail:1.2.3 .")
        assert "--target spark" in second
        assert second.endswith("-t dovetail-spark:1.2.3 .")

    def test_without_any_it_says_of_each_why(self, only, capsys):
        self.engine(only, "docker", answers=False)
        assert build.main(["1.2.3"]) == 1
        told = capsys.readouterr().err
        assert "docker does not answer" in told
        assert "podman is not here; buildah is not here" in told

    def test_what_pip_is_told_of_registries_is_mounted_and_not_written_down(
        self, tmp_path, monkeypatch
    ):
        told = {"index-url": "https://u:p@mirror/simple", "cache-dir": "/x", "timeout": "60"}
        monkeypatch.setattr(build, "pip_settings", lambda: told)
        words = build.registries(tmp_path, {"SSL_CERT_FILE": "/etc/hosts"})
        assert words == [
            *("--secret", "id=certificates,src=/etc/hosts"),
            *("--secret", f"id=pip,src={tmp_path}/pip.conf"),
        ]
        written = (tmp_path / "pip.conf").read_text()
        assert "index-url = https://u:p@mirror/simple" in written
        assert f"cert = {build.CERTIFICATES}" in written
        assert "cache-dir" not in written

    def test_certificates_that_stand_in_pips_file_are_mounted_too(self, tmp_path, monkeypatch):
        monkeypatch.setattr(build, "pip_settings", lambda: {"cert": "/etc/hosts"})
        words = build.registries(tmp_path, {"SSL_CERT_FILE": "/etc/hostname"})
        assert words[:2] == ["--secret", "id=certificates,src=/etc/hosts"]
        assert f"cert = {build.CERTIFICATES}" in (tmp_path / "pip.conf").read_text()

    def test_the_environment_tells_pip_more_than_a_file(self, tmp_path, monkeypatch):
        (tmp_path / "pip.conf").write_text("[global]\ncert = /of/the/file\ndefault-timeout = 7\n")
        monkeypatch.setenv("PIP_CONFIG_FILE", str(tmp_path / "pip.conf"))
        monkeypatch.setenv("PIP_CERT", "/of/the/environment")
        monkeypatch.delenv("PIP_DEFAULT_TIMEOUT", raising=False)
        monkeypatch.delenv("PIP_TIMEOUT", raising=False)
        settings = build.pip_settings()
        assert (settings["cert"], settings["timeout"]) == ("/of/the/environment", "7")

    def test_where_pip_is_told_nothing_nothing_is_mounted(self, tmp_path, monkeypatch):
        monkeypatch.setattr(build, "pip_settings", dict)
        assert build.registries(tmp_path, {}) == []

    def test_every_step_that_fetches_has_them_mounted(self):
        steps = re.findall(r"^RUN .*", JOINED, re.MULTILINE)
        fetching = [step for step in steps if re.search(r"--require-hashes|image\.jars", step)]
        assert len(fetching) == 3
        for step in fetching:
            assert "id=pip,target=/etc/pip.conf" in step
            assert f"id=certificates,target={build.CERTIFICATES}" in step


@pytest.mark.parametrize(("text", "told"), [(None, "No such file"), ("\n", "is empty")])
def test_roles_without_a_password_are_not_made(tmp_path, capsys, text, told):
    """Nobody is asked before all of them are there: the address is nobody's."""
    for role in database_roles.ROLES:
        (tmp_path / role).write_text("secret")
    (tmp_path / database_roles.GATE).unlink()
    if text is not None:
        (tmp_path / database_roles.GATE).write_text(text)
    environment = {
        "DOVETAIL_PIPELINE": str(CHECKOUT / "pipeline.yaml"),
        "DOVETAIL_ROLES": str(tmp_path),
        "DATABASE_URL": "postgresql://nobody@127.0.0.1:1/none",
    }
    assert roles.main(environment) == 1
    said = capsys.readouterr().err
    assert told in said
    assert database_roles.GATE in said
