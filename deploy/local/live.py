"""What the control service says, for whoever shows it."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from typing import Any


def fetch(url: str, token: str = "") -> dict[str, Any] | None:
    """The control service's stats; None while it does not answer."""
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    asked = urllib.request.Request(f"{url}/v1/stats", headers=headers)  # noqa: S310 - our own
    try:
        with urllib.request.urlopen(asked, timeout=5) as answer:  # noqa: S310 - our own
            stats: dict[str, Any] = json.load(answer)
            return stats
    except (urllib.error.URLError, OSError, ValueError):
        return None
