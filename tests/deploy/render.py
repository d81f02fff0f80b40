"""The chart as Helm renders it; `make chart` writes what `make test` compares with.

`make test` has no Helm. It reads what is kept in rendered/, which begins with a digest of the chart
it was made from: one that was changed and not rendered anew is noticed there, too.
"""

from __future__ import annotations

import hashlib
import subprocess
from pathlib import Path

import yaml

from deploy.local.home import CHECKOUT

CHART = CHECKOUT / "helm/dovetail"
FOLDER = Path(__file__).with_name("rendered")
RELEASE = "sales"
SETS = {
    "default": (),
    # Without the dashboards, which are files of their own.
    "hardened": (
        *("-f", str(CHART / "ci/hardened-values.yaml")),
        *("--set", "monitoring.dashboards=false"),
    ),
    # The same, with one process for each node.
    "fused": (
        *("-f", str(CHART / "ci/hardened-values.yaml")),
        *("--set", "monitoring.dashboards=false,environment.DOVETAIL_LAYOUT=fused"),
    ),
}
"""The values that are kept rendered."""
_DIGEST = "# of the chart with the digest "
_OLDEST = "1.29"


def digest(chart: Path = CHART) -> str:
    """Of all that the kept ones are rendered from."""
    names = ("Chart.yaml", "values.yaml", "ci/hardened-values.yaml")
    linked = (f"files/{name}" for name in ("pipeline.yaml", "alerts.yml", "recording.yml"))
    files = [*sorted(chart.glob("templates/*")), *(chart / name for name in (*names, *linked))]
    return hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()


def rendered(name: str) -> str:
    from tests.deploy import tools

    return f"{_DIGEST}{digest()}\n{_by(tools.helm(), *SETS[name])}"


def recorded(name: str = "default") -> tuple[str, list[dict]]:
    """The digest of the chart that was rendered, and the objects."""
    text = (FOLDER / f"{name}.yaml").read_text()
    return text.partition("\n")[0].removeprefix(_DIGEST), objects(text)


def render(helm: Path, *options: str, version: str = _OLDEST) -> list[dict]:
    return objects(_by(helm, *options, version=version))


def objects(text: str) -> list[dict]:
    return [one for one in yaml.safe_load_all(text) if one]


def _by(helm: Path, *options: str, version: str = _OLDEST) -> str:
    command = [helm, "template", RELEASE, CHART, "--namespace", "shop", "--kube-version", version]
    done = subprocess.run([*command, *options], capture_output=True, text=True, check=False)
    if done.returncode:
        raise ValueError(done.stderr)
    return done.stdout


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    for name in SETS:
        (FOLDER / f"{name}.yaml").write_text(rendered(name))
