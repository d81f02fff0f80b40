"""A real Prometheus over the services that run here, with the repository's rules and alerts."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import time
import urllib.error
import urllib.parse
import urllib.request
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from deploy.local.debian import unpack
from deploy.local.files import last_lines, write_atomically
from deploy.local.home import CHECKOUT
from deploy.local.ports import PROMETHEUS
from deploy.local.processes import Managed
from deploy.prometheus.targets import targets_of
from dovetail.errors import StackError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from deploy.local.home import Home
    from deploy.local.ports import Ports
    from deploy.prometheus.targets import Target
    from dovetail.pipeline.spec import Pipeline

CONFIGURATION = CHECKOUT / "deploy/prometheus"
CURE = "install Prometheus 2.40 or newer, so that `prometheus` and `promtool` are on the PATH"
_READY_WITHIN_S = 60.0


@dataclass(frozen=True)
class Binaries:
    prometheus: Path
    promtool: Path


def find_binaries(
    home: Home, environ: Mapping[str, str] = os.environ, report: Callable[[str], None] = print
) -> Binaries:
    """The machine's own, or those of Debian's package."""
    path = environ.get("PATH", "")
    own = [shutil.which(name, path=path) for name in ("prometheus", "promtool")]
    if own[0] and own[1]:
        return Binaries(Path(own[0]), Path(own[1]))
    package = unpack(["prometheus"], home, environ, CURE, report)
    return Binaries(package.program("prometheus"), package.program("promtool"))


class Prometheus:
    """One server, its data in the home; they are deleted when it starts."""

    def __init__(
        self, home: Home, binaries: Binaries, port: int, targets: list[Target], every: str = ""
    ) -> None:
        """`every` is how often it scrapes and judges, unless as the configuration says."""
        self.url = f"http://127.0.0.1:{port}"
        self._folder = home.data / "prometheus"
        self._targets = targets
        self._every = every
        self._process = Managed(
            home,
            "prometheus",
            [
                binaries.prometheus,
                f"--config.file={self._folder / 'prometheus.yml'}",
                f"--storage.tsdb.path={self._folder / 'data'}",
                f"--web.listen-address=127.0.0.1:{port}",
                "--log.level=warn",
            ],
        )

    def start(self) -> None:
        shutil.rmtree(self._folder, ignore_errors=True)
        self._folder.mkdir(parents=True)
        configuration = yaml.safe_load((CONFIGURATION / "prometheus.yml").read_text())
        if self._every:
            configuration["global"] |= {
                "scrape_interval": self._every,
                "evaluation_interval": self._every,
                "scrape_timeout": self._every,
            }
        rules = configuration["rule_files"]
        configuration["rule_files"] = [str(CONFIGURATION / Path(name).name) for name in rules]
        (job,) = configuration["scrape_configs"]
        job["file_sd_configs"] = [{"files": [str(self._folder / "targets.json")]}]
        entries = [target.entry for target in self._targets]
        write_atomically(self._folder / "targets.json", json.dumps(entries))
        write_atomically(self._folder / "prometheus.yml", yaml.safe_dump(configuration))
        self._process.start()

    def wait_until_ready(self) -> None:
        deadline = time.monotonic() + _READY_WITHIN_S
        while not self._ready():
            self._process.check()
            if time.monotonic() > deadline:
                raise StackError(
                    f"Prometheus is not ready after {_READY_WITHIN_S:.0f} s. The end of "
                    f"{self._process.log}:\n{last_lines(self._process.log)}"
                )
            time.sleep(0.1)

    def stop(self) -> None:
        self._process.stop()

    def query(self, expression: str) -> list[dict[str, Any]]:
        """The samples that an expression has now."""
        result: list[dict[str, Any]] = self.ask("query", query=expression)["result"]
        return result

    def ask(self, path: str, **parameters: str) -> dict[str, Any]:
        """Ask the HTTP API; an expression that it refuses is told with its reason."""
        url = f"{self.url}/api/v1/{path}?{urllib.parse.urlencode(parameters)}"
        try:
            with urllib.request.urlopen(url, timeout=30) as answer:  # noqa: S310 - our own
                data: dict[str, Any] = json.load(answer)["data"]
                return data
        except urllib.error.HTTPError as error:
            told = json.load(error)
            raise StackError(f"Prometheus refuses {parameters}: {told['error']}") from None

    def _ready(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self.url}/-/ready", timeout=2) as answer:  # noqa: S310
                return bool(answer.status == 200)
        except (urllib.error.URLError, OSError):
            return False


@contextmanager
def observing(
    home: Home,
    pipeline: Pipeline,
    url_of: Callable[[str], str],
    ports: Ports,
    *,
    every: str = "",
    report: Callable[[str], None] = print,
) -> Iterator[Prometheus]:
    """Let a Prometheus scrape every process of a pipeline, each where `url_of` its name says."""
    targets = targets_of(pipeline, lambda one: url_of(one.name).removeprefix("http://"))
    binaries = find_binaries(home, report=report)
    prometheus = Prometheus(home, binaries, ports.choose(PROMETHEUS), targets, every)
    try:
        prometheus.start()
        prometheus.wait_until_ready()
        report(f"Prometheus    {prometheus.url}  /api/v1/query /api/v1/alerts")
        yield prometheus
    finally:
        prometheus.stop()


def promtool(binaries: Binaries, *arguments: str | Path, given: str | None = None) -> str:
    """Run promtool; give what it says, and raise that if it finds anything wrong."""
    done = subprocess.run(
        [binaries.promtool, *arguments], capture_output=True, text=True, check=False, input=given
    )
    told = done.stdout + done.stderr
    if done.returncode:
        raise StackError(f"promtool {arguments[0]} {arguments[1]} finds:\n{told}")
    return told
