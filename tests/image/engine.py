"""What runs containers here: docker, podman, or podman over runc."""

from __future__ import annotations

import json
import resource
import shutil
import subprocess

from deploy.image import build

RUNNERS = (
    ("docker",),
    ("podman",),
    # On a machine with both versions of control groups, which crun refuses.
    ("podman", "--runtime", "runc", "--cgroup-manager", "cgroupfs"),
)
_MOST_FILES = 65_536


class Engine:
    """Speaks the words that docker and podman have in common."""

    def __init__(self, runner):
        self.runner = list(runner)

    @property
    def name(self):
        return self.runner[0]

    def __call__(self, *words, check=True, **options):
        """Run one of its commands; give what it printed."""
        done = subprocess.run(
            [*self.runner, *map(str, words)],
            env=build.environment(),
            capture_output=True,
            text=True,
            check=False,
            **options,
        )
        if check and done.returncode:
            raise AssertionError(f"{' '.join(map(str, words))}: {done.stderr[-3000:]}")
        return done

    def run(self, *words, check=True):
        """Start a container; a test asks for its health itself."""
        return self("run", "--no-healthcheck", *_limits(), *words, check=check)

    @property
    def read_only(self):
        """Words for a root that is read-only without exception: podman makes some, unless told."""
        more = ["--read-only-tmpfs=false"] if self.name == "podman" else []
        return ["--read-only", *more]

    def inspect(self, image):
        return json.loads(self("image", "inspect", image).stdout)[0]

    def has(self, image):
        return self("image", "inspect", image, check=False).returncode == 0


def find(image):
    """The first engine that truly runs a container from an image."""
    reasons = []
    for runner in RUNNERS:
        if shutil.which(runner[0]) is None:
            reasons.append(f"{runner[0]} is not here")
            continue
        engine = Engine(runner)
        tried = engine.run("--rm", "--network", "host", "--entrypoint", "true", image, check=False)
        if tried.returncode == 0:
            return engine
        reasons.append(f"{' '.join(runner)}: {tried.stderr.strip()[-300:]}")
    raise AssertionError(
        "no engine here runs a container; on Debian: apt-get install podman runc\n"
        + "\n".join(reasons)
    )


def _limits():
    """No more than this machine allows anybody: engines ask for more as root."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = min(hard, _MOST_FILES) if hard > 0 else _MOST_FILES
    return ["--ulimit", f"nofile={most}:{most}", "--ulimit", "nproc=4096:4096"]
