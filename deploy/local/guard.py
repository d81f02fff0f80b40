"""Becomes another program that ends with its supervisor, even one ended by `kill -9`.

    python guard.py <supervisor's pid> <signal> <program> <argument>…

It runs between fork and exec in a process of its own because code in `preexec_fn` may deadlock
in a supervisor with threads. It stands alone and imports nothing of the project: it may run
as another user, for whom every import is a path to search.
"""

import ctypes
import os
import sys

PR_SET_PDEATHSIG = 1


def main() -> None:
    supervisor, signal_number = int(sys.argv[1]), int(sys.argv[2])
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal_number, 0, 0, 0)
    if os.getppid() != supervisor:
        sys.exit("the supervisor ended before its child began")
    os.execvp(sys.argv[3], sys.argv[3:])  # noqa: S606 - no shell is wanted


if __name__ == "__main__":
    main()
