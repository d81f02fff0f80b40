import re
from pathlib import Path

import pytest

PAGE = (Path(__file__).parents[2] / "docs" / "shedding.md").read_text()
EXAMPLES = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)


@pytest.mark.parametrize("example", EXAMPLES)
def test_every_example_does_what_it_says(example):
    exec(compile(example, "docs/shedding.md", "exec"), {})


def test_there_are_examples():
    assert EXAMPLES
