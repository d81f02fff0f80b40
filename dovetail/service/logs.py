"""Structured logs: one JSON object a line, on standard error."""

from __future__ import annotations

import json
import logging
import sys
from datetime import UTC, datetime

_PLAIN = frozenset(logging.makeLogRecord({}).__dict__) | {"message", "asctime", "taskName"}


class JsonLines(logging.Formatter):
    def __init__(self, **context: str | int) -> None:
        super().__init__()
        self._context = context

    def format(self, record: logging.LogRecord) -> str:
        line = {
            "at": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            **self._context,
            "logger": record.name,
            "message": record.getMessage(),
        }
        line |= {name: value for name, value in vars(record).items() if name not in _PLAIN}
        if record.exc_info:
            line["error"] = self.formatException(record.exc_info)
        return json.dumps(line, default=str)


def configure(**context: str | int) -> None:
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines(**context))
    logging.basicConfig(level=logging.INFO, handlers=[handler], force=True)
    # One line a scrape would drown the rest.
    logging.getLogger("uvicorn.access").setLevel(logging.WARNING)
