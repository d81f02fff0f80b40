"""Where a field stands in an event: `order.product_id` is `product_id` within the object `order`.

A name that has a dot itself is written with the dot doubled: `net..price` is one name. Read from
the left: `a...b` is `b` within `a.`.
"""

from __future__ import annotations

MOST_NAMES = 16
"""How many names a path has at most."""


def split(path: str) -> tuple[str, ...]:
    """Give the names on the way to a field, the outermost first."""
    # A name has no control character, so that one may stand for a doubled dot meanwhile.
    return tuple(name.replace("\0", ".") for name in path.replace("..", "\0").split("."))


def join(names: tuple[str, ...]) -> str:
    """Write a path the way that `split` reads it."""
    return ".".join(name.replace(".", "..") for name in names)
