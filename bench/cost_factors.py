"""The cost factors of this machine, as the models in dovetail/join/cost want them.

    python -m bench.cost_factors [--file-mib 256]

R is a file of pages in .dovetail/bench, read past the page cache (O_DIRECT) in reads of 1 to 1024
pages one after the other; the rest are the join's kernels. A lookup's two factors need a database
and stay the typical ones. The last line is JSON, fit for `dovetail size --factors`.
"""

from __future__ import annotations

import argparse
import json
import mmap
import os
import time
from dataclasses import asdict
from pathlib import Path

from dovetail.join.cost.factors import PAGE_BYTES
from dovetail.join.cost.measure import PAGES, measure

MIB = 1 << 20
FOLDER = Path(__file__).resolve().parent.parent / ".dovetail" / "bench"


class PageFile:
    """Reads of consecutive pages, from the file's start again at its end."""

    def __init__(self, path: Path, mib: int) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        if not path.exists() or path.stat().st_size != mib * MIB:
            with path.open("wb") as out:
                for _ in range(mib):
                    out.write(os.urandom(MIB))
                os.fsync(out.fileno())
        self._size = mib * MIB
        self._at = 0
        self._file = os.open(path, os.O_RDONLY | os.O_DIRECT)
        # O_DIRECT wants its target aligned, which mapped memory is; touched once, so that no
        # page fault is measured.
        self._target = mmap.mmap(-1, max(PAGES) * PAGE_BYTES)
        self._target.write(bytes(len(self._target)))

    def read(self, pages: int) -> int:
        size = pages * PAGE_BYTES
        if self._at + size > self._size:
            self._at = 0
        with memoryview(self._target) as target:
            got = os.preadv(self._file, [target[:size]], self._at)
        self._at += size
        return got


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--file-mib", type=int, default=256)
    args = parser.parse_args()
    pages = PageFile(FOLDER / "pages.bin", args.file_mib)
    factors = measure(time.perf_counter, read=pages.read)
    for name, seconds in asdict(factors).items():
        print(f"{name:8} {seconds * 1e9:12,.1f} ns")
    for count in PAGES:
        rate = count * PAGE_BYTES / factors.read(count) / 1e6
        print(f"a read of {count:5,} pages: {rate:7,.0f} MB/s")
    print(json.dumps(asdict(factors)))


if __name__ == "__main__":
    main()
