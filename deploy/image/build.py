"""Builds the images dovetail and dovetail-spark, by docker, podman or buildah: whichever works.

    python -m deploy.image.build 0.2.0 --build-arg PYTHON_IMAGE=…

What this machine's pip is told of registries, and whom it trusts, reaches the build as secrets:
they are mounted while a step runs, and are in no layer. Needs nothing but Python's own library, as
an image may be built where nothing else is installed.
"""

from __future__ import annotations

import configparser
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from deploy.local import install

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

RECIPE = "deploy/image/Dockerfile"
IMAGES = {"dovetail": "services", "dovetail-spark": "spark"}
"""Each with its stage of the recipe."""
CERTIFICATES = "/etc/ssl/certs/ca-certificates.crt"
"""Where an image has whom it trusts; this machine's are mounted in its place."""
# A health check is something that only this format of images knows. Layers are kept, as the second
# image shares its first steps, kernels among them, with the first.
_DOCKERS_WAY = ("--format", "docker", "--layers")
ENGINES: dict[str, tuple[str, ...]] = {
    "docker": (),
    "podman": _DOCKERS_WAY,
    "buildah": _DOCKERS_WAY,
}
"""In the order in which they are tried, with what each has to be told."""
_OF_REGISTRIES = ("index-url", "extra-index-url", "trusted-host", "proxy", "timeout")
_TRUST = ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE")
"""Beside pip's own setting, which may stand in a file as well as in PIP_CERT."""
_CHECKOUT = Path(__file__).resolve().parents[2]


def main(words: Sequence[str] = sys.argv[1:]) -> int:
    tag, *options = words
    engine = find()
    if engine is None:
        return 1
    build(engine, tag, options)
    return 0


def build(engine: str, tag: str, options: Sequence[str] = ()) -> None:
    with tempfile.TemporaryDirectory() as folder:
        secrets = registries(Path(folder), os.environ)
        for name, stage in IMAGES.items():
            words = [
                *(engine, "build", *ENGINES[engine], *secrets, *options, "--target", stage),
                *("--build-arg", f"VERSION={tag}", "-f", RECIPE, "-t", f"{name}:{tag}", "."),
            ]
            subprocess.run(words, cwd=_CHECKOUT, env=environment(), check=True)


def find() -> str | None:
    """Return the first engine that answers; say of each why it does not."""
    reasons = []
    for engine in ENGINES:
        if shutil.which(engine) is None:
            reasons.append(f"{engine} is not here")
            continue
        asked = subprocess.run(
            [engine, "info"], env=environment(), capture_output=True, text=True, check=False
        )
        if asked.returncode == 0:
            return engine
        reasons.append(f"{engine} does not answer: {_last_line(asked.stderr)}")
    print(f"no image is built: {'; '.join(reasons)}", file=sys.stderr)
    return None


def environment() -> dict[str, str]:
    """For an engine: steps in a chroot need no rights that a container or a small machine lacks."""
    return {"BUILDAH_ISOLATION": "chroot", **os.environ}


def registries(folder: Path, environ: Mapping[str, str]) -> list[str]:
    """Write what pip is told of registries into a folder; return the words that mount it."""
    settings = pip_settings()
    told = {name: value for name, value in settings.items() if name in _OF_REGISTRIES}
    words = []
    if trusted := certificates(settings, environ):
        told["cert"] = CERTIFICATES
        words += ["--secret", f"id=certificates,src={Path(trusted).resolve()}"]
    if told:
        file = configparser.RawConfigParser()
        file["global"] = told
        with (folder / "pip.conf").open("w") as opened:
            file.write(opened)
        words += ["--secret", f"id=pip,src={folder / 'pip.conf'}"]
    return words


def certificates(settings: Mapping[str, str], environ: Mapping[str, str]) -> str:
    """The file of whom this machine trusts; empty where nobody has named one."""
    return settings.get("cert") or next((environ[one] for one in _TRUST if environ.get(one)), "")


def pip_settings() -> dict[str, str]:
    """All that pip is told by this machine's files and environment; nothing where there is none."""
    listed = subprocess.run(
        [sys.executable, "-m", "pip", "config", "list"], capture_output=True, text=True, check=False
    ).stdout
    found = install.settings_of(listed)
    return {name.removeprefix("default-"): value for name, value in found.items()}


def _last_line(text: str) -> str:
    return (text.strip().splitlines() or ["it says nothing"])[-1]


if __name__ == "__main__":
    sys.exit(main())
