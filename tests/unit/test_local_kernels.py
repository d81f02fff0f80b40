"""How far the compilation of the kernels is."""

from __future__ import annotations

import os

from deploy.local.kernels import _compiled


def test_a_stale_kernel_that_is_compiled_anew_counts_and_an_old_one_does_not(tmp_path):
    folder = tmp_path / "module"
    folder.mkdir()
    for name in ("old.1.nbc", "stale.1.nbc", "stale.nbi"):
        (folder / name).touch()
        os.utime(folder / name, (1_000, 1_000))
    assert _compiled(tmp_path, 2_000) == 0
    os.utime(folder / "stale.1.nbc", (3_000, 3_000))
    assert _compiled(tmp_path, 2_000) == 1
    assert _compiled(tmp_path / "not made yet", 0) == 0
