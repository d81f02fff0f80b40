"""What the images run, and that their recipes agree with it."""

from __future__ import annotations

import os
import re
import sys
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from deploy.image import health, start
from deploy.local.home import CHECKOUT
from dovetail.topology import CONTROL, ENRICH

IMAGES = {
    name: (CHECKOUT / f"deploy/image/{name}").read_text()
    for name in ("Dockerfile", "spark.Dockerfile")
}


def final(recipe):
    """The stage that is kept."""
    return recipe[recipe.rindex("\nFROM ") :]


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


def test_kernels_are_copied_once_with_their_times(tmp_path):
    kernels, cache = tmp_path / "kernels", tmp_path / "cache"
    (kernels / "join_1").mkdir(parents=True)
    (kernels / "join_1/a.nbi").write_text("of the image")
    os.utime(kernels / "join_1/a.nbi", (1_000, 1_000))
    start.fill(cache, kernels)
    assert (cache / "join_1/a.nbi").stat().st_mtime == 1_000
    (cache / "join_1/a.nbi").write_text("compiled here")
    start.fill(cache, kernels)
    assert (cache / "join_1/a.nbi").read_text() == "compiled here"
    assert [path.name for path in cache.iterdir()] == ["join_1"]


def test_of_two_containers_that_fill_one_volume_the_first_wins(tmp_path, monkeypatch):
    kernels, cache = tmp_path / "kernels", tmp_path / "cache"
    (kernels / "join_1").mkdir(parents=True)
    (kernels / "join_1/a.nbi").write_text("of the image")
    copy = start.shutil.copytree

    def meanwhile(*words, **options):
        (cache / "join_1").mkdir()
        (cache / "join_1/b.nbi").write_text("the other's")
        return copy(*words, **options)

    monkeypatch.setattr(start.shutil, "copytree", meanwhile)
    start.fill(cache, kernels)
    assert [path.name for path in cache.iterdir()] == ["join_1"]
    assert (cache / "join_1/b.nbi").read_text() == "the other's"


def test_an_image_without_kernels_starts_all_the_same(tmp_path):
    start.fill(tmp_path / "cache", tmp_path / "none")
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


@pytest.mark.parametrize("name", IMAGES)
class TestRecipe:
    def test_is_pinned_not_root_and_checks_its_health(self, name):
        recipe = IMAGES[name]
        assert re.search(r"^ARG PYTHON_IMAGE=python:\d+\.\d+\.\d+-slim-\w+$", recipe, re.MULTILINE)
        assert set(re.findall(r"^FROM (\S+)", recipe, re.MULTILINE)) == {"${PYTHON_IMAGE}"}
        last = final(recipe)
        assert "\nUSER 10001:10001\n" in last
        assert "\nHEALTHCHECK " in last
        assert "deploy.image.start" in last.split("ENTRYPOINT")[1]

    def test_leaves_nothing_that_installs_or_builds(self, name):
        last = final(IMAGES[name])
        assert "pip uninstall" in last
        assert "pip install" not in last
        for tool in ("gcc", "build-essential", "maven", "jdk-17-jdk"):
            assert tool not in last

    def test_writes_only_where_a_volume_is(self, name):
        last = final(IMAGES[name])
        volumes = re.search(r"^VOLUME \[(.*)\]", last, re.MULTILINE).group(1)
        declared = [volume.strip(' "') for volume in volumes.split(",")]
        written = re.findall(
            r"(?:NUMBA_CACHE_DIR|DOVETAIL_HOME|DOVETAIL_FREQUENCIES|SPARK_LOCAL_DIRS)=(\S+)", last
        )
        assert len(written) >= 3
        assert all(folder.startswith(tuple(declared)) for folder in written)

    def test_builds_only_from_what_is_sent_to_the_builder(self, name):
        sent = {
            line[1:] for line in (CHECKOUT / ".dockerignore").read_text().split() if line[0] == "!"
        }
        copied = re.findall(r"^COPY (?!--from)(.+) \S+$", IMAGES[name], re.MULTILINE)
        for file in " ".join(copied).split():
            assert file in sent
            assert (CHECKOUT / file).exists()
