from __future__ import annotations

from typing import TYPE_CHECKING

from dovetail.stream.handler import Step

if TYPE_CHECKING:
    from dovetail.pipeline.spec import Pipeline

# What is taken of events by HTTP; docs/http.md tells it to senders.
MOST_BODY_BYTES = 8 << 20
"""Of a body as it comes, and of what it is decompressed to."""
MOST_GZIP_FILES = 1_000
"""One behind the other in a body."""
MOST_EVENTS = 10_000
"""In one request."""
MOST_EVENT_BYTES = 1_000_000
"""A broker, unless it is told otherwise, refuses a message that is larger."""
MOST_REQUESTS = 256
"""Under way at a time."""
MOST_HELD_BYTES = 64 << 20
"""Of all of them."""
MOST_DISCARDED_BYTES = 64 << 20
"""Of a body that was refused."""
BODY_WITHIN_S = 30.0
REQUESTS_TIMES = 20.0
"""As many requests as elsewhere, for each sender: what they send is bounded, too."""


def step(_: Pipeline) -> Step:
    return Step(max_records=50_000, max_bytes=16 << 20, linger_s=0.1)
