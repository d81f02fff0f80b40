"""`dovetail`: everything that a person does with a pipeline, from a terminal or a script.

    program      parses, runs a command, turns its outcome into an exit code
    commands     each command with its module, which is imported when it is asked for
    parsing      options that many commands share
    client       the control service's API
    following    a long operation, until it ends
    output       tables and JSON
    live         the live table

What each command does is in docs/cli.md.
"""

from dovetail.cli.program import main

__all__ = ["main"]
