"""Where master rows come from, seen by the disk phase."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from dovetail.join.columns import JoinKeys
    from dovetail.join.entry import MasterRows


class MasterStore(Protocol):
    def rows_of(self, keys: JoinKeys) -> MasterRows:
        """All rows of these distinct keys, in any order; raises Unavailable while it can't."""
        ...

    def close(self) -> None: ...
