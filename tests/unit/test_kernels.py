import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import dovetail
from dovetail.kernels import sources_of

PACKAGE = Path(dovetail.__file__).parent


def run(folder: Path, asked: str = "o.outer(1), o.outer.loaded") -> str:
    """What a new process gets from the kernel of `outer.py`, and how many it loaded compiled."""
    code = f"import sys, numpy as np; from dovetail import outer as o; print({asked})"
    environment = {
        **os.environ,
        "NUMBA_CACHE_DIR": str(folder / "cache"),
        # Python takes bytecode for fresh whose source has the same size and second of change.
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    command = [sys.executable, "-c", code]
    return subprocess.run(
        command, cwd=folder, env=environment, check=True, capture_output=True, text=True
    ).stdout.strip()


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """A package of three modules, `outer` with a kernel that calls one of `called`."""
    folder = tmp_path / "dovetail"
    folder.mkdir()
    for name in ("__init__.py", "kernels.py", "machine_code.py", "numba_cache.py"):
        shutil.copy(PACKAGE / name, folder / name)
    head = "from dovetail.kernels import kernel\n"
    (folder / "numbers.py").write_text("MANY = 10\n")
    (folder / "called.py").write_text(
        f"{head}from dovetail.numbers import (\n    MANY,\n)\n\n@kernel\ndef called(x):\n"
        "    return x + MANY\n"
    )
    (folder / "outer.py").write_text(
        f"{head}from dovetail import called as other\n\ncalled = other.called\n\n"
        "@kernel\ndef outer(x):\n    return called(x)\n\n"
        "@kernel\ndef root(x):\n    if x < 0:\n        raise ValueError('negative')\n"
        "    return x**0.5\n\n"
        "def refused(x):\n    try:\n        return root(x)\n"
        "    except ValueError as error:\n        return str(error)\n"
    )
    return tmp_path


def test_a_compiled_kernel_is_loaded_while_nothing_changes(package):
    assert run(package) == "11 0"
    assert run(package) == "11 1"


def test_a_loaded_kernel_gives_arrays_and_raises_without_the_compiler(package):
    asked = "o.outer(np.arange(2)).tolist(), o.root(4.0), o.refused(-1.0), 'numba' in sys.modules"
    assert run(package, asked) == "[10, 11] 2.0 negative True"
    assert run(package, asked) == "[10, 11] 2.0 negative False"


def test_beside_a_loaded_kernel_another_is_compiled(package):
    run(package)
    asked = "o.outer(1), o.outer(1.5), o.outer(np.arange(2)).tolist(), o.outer.loaded"
    assert run(package, asked) == "11 11.5 [10, 11] 1"


def test_an_edit_of_what_a_kernel_calls_makes_it_stale(package):
    run(package)
    numbers = package / "dovetail" / "numbers.py"
    numbers.write_text("MANY = 20\n")
    assert run(package) == "21 0"


def test_an_edit_of_a_module_that_it_does_not_need_leaves_it(package):
    run(package)
    (package / "dovetail" / "foreign.py").write_text("MANY = 20\n")
    assert run(package) == "11 1"


def test_a_kernels_sources_reach_through_all_imports():
    names = {path.name for path in sources_of(PACKAGE / "join" / "pending.py")}
    assert {"pending.py", "records.py", "pool.py", "memory.py", "kernels.py"} <= names


def test_every_kernel_of_the_package_is_compiled_here():
    """Numba's own decorators would keep a kernel whose callees have changed."""
    own = re.compile(r"\bnjit\(.*cache|\bcfunc\b|@njit")
    sources = [path for path in PACKAGE.rglob("*.py") if path.name != "kernels.py"]
    assert [str(path) for path in sources if own.search(path.read_text())] == []
