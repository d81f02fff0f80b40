"""Installs Dovetail, with what it needs, into the virtual environment that runs this.

    python -m deploy.local.install local            what `make run` needs
    python -m deploy.local.install local spark dev  all

By uv, which pip installs first: it takes seconds where pip takes minutes. uv reads none of pip's
settings, where many a machine's index, proxy and certificates stand, so they are asked of
`pip config` each time and passed on in the environment, never written down. Where uv cannot be
had, or fails, pip installs, and it is said.

Nothing but the standard library is there to begin with.
"""

from __future__ import annotations

import ast
import fcntl
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

UV = "uv==0.13.8"
CHECKOUT = Path(__file__).parents[2]
# PySpark comes as sources, and is made into a wheel that is unpacked at once: do not compress it.
_UNPACKED_AT_ONCE = "--config-settings=--build-option=--compression=stored"

# As pip calls a setting of one value, and where uv looks for it.
_SINGLE = {
    "index-url": ("UV_DEFAULT_INDEX",),
    "proxy": ("HTTPS_PROXY", "HTTP_PROXY"),
    "cert": ("SSL_CERT_FILE",),
    "client-cert": ("SSL_CLIENT_CERT",),
    "timeout": ("UV_HTTP_TIMEOUT",),
    "default-timeout": ("UV_HTTP_TIMEOUT",),
}
# Of several values, with what uv takes between them.
_SEVERAL = {
    "extra-index-url": ("UV_EXTRA_INDEX_URL", " "),
    "trusted-host": ("UV_INSECURE_HOST", " "),
    "constraint": ("UV_CONSTRAINT", " "),
}
_FLAGS = ("only-binary", "no-binary")


def main() -> int:
    # Spark may still be installed beside a run when tests ask for all.
    with (Path(sys.prefix) / "install.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        return _install(sys.argv[1:])


def command(extras: Sequence[str]) -> list[str]:
    """What installs them as a process of its own."""
    return [sys.executable, "-m", "deploy.local.install", *extras]


def _install(extras: Sequence[str]) -> int:
    wanted = ["-c", "constraints.txt", "-e", f".[{','.join(extras)}]"]
    print(f"installing Dovetail for {' and '.join(extras)}", flush=True)
    pip = [sys.executable, "-m", "pip"]
    if _run([*pip, "install", "--quiet", UV]) == 0:
        settings = pip_settings()
        uv = [sys.executable, "-m", "uv", "pip", "install", "--python", sys.executable]
        words = [*uv, _UNPACKED_AT_ONCE, *flags(settings), *wanted]
        if _run(words, environment(settings, os.environ)) == 0:
            return 0
    print("uv could not: pip installs instead, which takes some minutes", flush=True)
    return _run([*pip, "install", "--progress-bar", "on", *wanted])


def _run(words: Sequence[str], environ: Mapping[str, str] = os.environ) -> int:
    return subprocess.run(words, cwd=CHECKOUT, env=dict(environ), check=False).returncode


def pip_settings() -> dict[str, str]:
    """All that files and the environment tell `pip install`."""
    told = subprocess.run(
        [sys.executable, "-m", "pip", "config", "list"], capture_output=True, text=True, check=True
    ).stdout
    return settings_of(told)


def settings_of(listed: str) -> dict[str, str]:
    """Read what `pip config list` prints; the later of these sections overrule the earlier."""
    found: dict[str, dict[str, str]] = {"global": {}, "install": {}, ":env:": {}}
    for line in listed.splitlines():
        name, equals, value = line.partition("=")
        section, _, key = name.rpartition(".")
        if equals and section in found:
            found[section][key] = str(ast.literal_eval(value))
    return {key: value for section in found.values() for key, value in section.items() if value}


def environment(settings: Mapping[str, str], environ: Mapping[str, str]) -> dict[str, str]:
    """Pip's settings as uv's; what the user has set for uv stays."""
    passed = {
        variable: settings[key]
        for key, variables in _SINGLE.items()
        if key in settings
        for variable in variables
    }
    for key, (variable, between) in _SEVERAL.items():
        if key in settings:
            passed[variable] = between.join(settings[key].split())
    # pip looks over folders that are not there; uv refuses them.
    places = [place for place in settings.get("find-links", "").split() if _is_there(place)]
    if places:
        passed["UV_FIND_LINKS"] = ",".join(places)
    if "extra-index-url" in settings:
        # As pip does: the best version of all indexes, not that of the first one that has any.
        passed["UV_INDEX_STRATEGY"] = "unsafe-best-match"
    if "UV_INDEX_URL" in environ:  # an older name
        passed.pop("UV_DEFAULT_INDEX", None)
    return {**passed, **environ}


def flags(settings: Mapping[str, str]) -> list[str]:
    """What uv takes on its command line alone."""
    words = [f"--{key}={settings[key]}" for key in _FLAGS if key in settings]
    if settings.get("no-index", "").lower() in ("1", "true", "yes", "on"):
        words.append("--no-index")
    return words


def _is_there(place: str) -> bool:
    return "://" in place or Path(place).exists()


if __name__ == "__main__":
    sys.exit(main())
