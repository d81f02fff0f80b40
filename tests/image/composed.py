"""Services of docker-compose.yml as words of `run`, on the network of this machine.

All that the file says of a service is done as it says, so that what is tried is what Compose does.
Different is the network alone: services share this machine's, each with a port of its own, and find
the Kafka and the PostgreSQL of the local stack there.
"""

from __future__ import annotations

import re

import yaml

from deploy.local.home import CHECKOUT

FILE = CHECKOUT / "docker-compose.yml"
_VARIABLE = re.compile(r"\$\{(\w+)(?::([-?])([^${}]*))?\}")
_OF_THE_NETWORK = {"ports", "depends_on", "profiles", "restart", "build", "healthcheck"}
"""Who starts it when, and reaches it how: the test's business here."""


def composed(variables):
    """All services of the file, with its variables replaced."""
    text = FILE.read_text()
    while (replaced := _VARIABLE.sub(lambda found: _value(found, variables), text)) != text:
        text = replaced
    return yaml.safe_load(text)


def _value(found, variables):
    name, kind, default = found.groups()
    given = variables.get(name)
    assert given or kind != "?", f"{name}: {default}"
    return given or default or ""


class Composed:
    """The words that start each service; volumes are named after `project`."""

    def __init__(self, variables, project, engine):
        self.file = composed(variables)
        self._project = project
        self._engine = engine

    def of(self, service, **told):
        """Words of `run`, from its options to the end; `told` adds to its environment."""
        one = dict(self.file["services"][service])
        for name in _OF_THE_NETWORK:
            one.pop(name, None)
        words = ["--network", "host"]
        for name in one.keys() - {"image", "command"}:
            words += getattr(self, f"_{name}")(one[name])
        for name, value in told.items():
            words += ["--env", f"{name}={value}"]
        return [*words, one["image"], *one.get("command", ())]

    def health(self, service):
        """What is run in its container to ask how it is."""
        kind, *words = self.file["services"][service]["healthcheck"]["test"]
        assert kind == "CMD"
        return words

    # --- one for each word that the file uses; any other is an AttributeError

    def _read_only(self, value):
        assert value is True
        return self._engine.read_only

    def _tmpfs(self, folders):
        return [word for folder in folders for word in ("--tmpfs", folder)]

    def _cap_drop(self, names):
        return [word for name in names for word in ("--cap-drop", name)]

    def _cap_add(self, names):
        return [word for name in names for word in ("--cap-add", name)]

    def _security_opt(self, options):
        # Compose takes either sign between name and value, podman one.
        return [word for one in options for word in ("--security-opt", one.replace(":", "=", 1))]

    def _user(self, user):
        return ["--user", user]

    def _stop_grace_period(self, time):
        return ["--stop-timeout", time.removesuffix("s")]

    def _mem_limit(self, size):
        return ["--memory", size]

    def _mem_reservation(self, size):
        return ["--memory-reservation", size]

    def _pids_limit(self, number):
        return ["--pids-limit", str(number)]

    def _environment(self, variables):
        return [word for name, value in variables.items() for word in ("--env", f"{name}={value}")]

    def _env_file(self, files):
        paths = [(CHECKOUT / one["path"], one["required"]) for one in files]
        return [
            word
            for path, required in paths
            if required or path.exists()
            for word in ("--env-file", str(path))
        ]

    def _volumes(self, mounts):
        words = []
        for mount in mounts:
            place, _, rest = mount.partition(":")
            if place.startswith((".", "/")):
                place = str((CHECKOUT / place).resolve())
            else:
                assert place in self.file["volumes"]
                place = f"{self._project}_{place}"
            words += ["--volume", f"{place}:{rest}"]
        return words

    def _secrets(self, names):
        words = []
        for name in names:
            file = (CHECKOUT / self.file["secrets"][name]["file"]).resolve()
            words += ["--volume", f"{file}:/run/secrets/{name}:ro"]
        return words
