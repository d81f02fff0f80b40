"""What the parent of Spark's Python workers has loaded before it forks them."""

import os
import subprocess
import sys

from dovetail.pipeline.spec import Pipeline
from services.spark.warming import told

SPEC = {
    "name": "warmed",
    "engine": "spark",
    "source": {"fields": {"id": "int", "amount": "decimal"}},
    "key": "id",
    "master": {"table": "goods", "columns": ["name"]},
    "memory": "4MiB",
}
LOADED = """
import os
from dovetail.join.cached import _probe
from services.spark.warming import warm_as_told
warm_as_told({})
before = len(_probe.signatures)
warm_as_told(os.environ)
print(before, len(_probe.signatures))
"""


def test_kernels_are_loaded_for_the_pipeline_that_is_told():
    environment = os.environ | told(Pipeline.model_validate(SPEC))
    done = subprocess.run(
        [sys.executable, "-c", LOADED], env=environment, capture_output=True, text=True, check=True
    )
    before, after = map(int, done.stdout.split())
    assert before == 0
    assert after > 0
