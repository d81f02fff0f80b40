"""Both images, built from this checkout, and an engine that runs them."""

from __future__ import annotations

import os

import pytest

from deploy.image import base, build
from tests.image import engine as engines

TAG = os.environ.get("IMAGES") or "test"
"""Of images that are there already, where the environment names one."""
IMAGES = {"services": f"dovetail:{TAG}", "spark": f"dovetail-spark:{TAG}"}


def pytest_collection_modifyitems(items):
    for item in items:
        item.add_marker(pytest.mark.timeout(7_200), append=False)


@pytest.fixture(scope="session")
def engine():
    """Build the images on what PYTHON_IMAGE names, or on a base from Debian's archive."""
    if os.environ.get("IMAGES"):
        return engines.find(IMAGES["services"])
    builder = build.find()
    assert builder in {"docker", "podman"}, "no engine here builds images and runs them"
    given = os.environ.get("PYTHON_IMAGE")
    if not given and not engines.Engine([builder]).has(base.NAME):
        base.make(builder)
    start_from = given or base.NAME
    build.build(builder, TAG, ["--build-arg", f"PYTHON_IMAGE={start_from}"])
    return engines.find(IMAGES["services"])


@pytest.fixture(scope="session", params=IMAGES)
def image(request, engine):
    return IMAGES[request.param]
