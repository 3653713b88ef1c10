"""Logs as lines of JSON on standard error: one for each request, and what the server has to say beside."""

from __future__ import annotations

import logging
import os
import sys
import traceback
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import msgspec

LEVEL = "OMNIGRAPH_LOG"
"""The setting for how much is logged: error, warning, info or debug."""
REQUESTS = "omnigraph.server.request"

_LEVELS = {
    "error": logging.ERROR,
    "warn": logging.WARNING,
    "warning": logging.WARNING,
    "info": logging.INFO,
    "debug": logging.DEBUG,
}


class JsonLines(logging.Formatter):
    """A record as one line of JSON; `facts` of a record are members of it."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line."""
        facts: Mapping[str, Any] = getattr(record, "facts", {})
        line = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **facts,
        }
        if record.exc_info and record.exc_info[1] is not None:
            line["trace"] = "".join(traceback.format_exception(record.exc_info[1]))
        return msgspec.json.encode(line, enc_hook=str).decode()


def set_up_logs(environment: Mapping[str, str] = os.environ) -> None:
    """Send the logs of this process to standard error."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.WARNING)
    chosen = environment.get(LEVEL, "").strip().lower() or "info"
    logging.getLogger("omnigraph").setLevel(_LEVELS.get(chosen, logging.INFO))
    if chosen not in _LEVELS:
        logging.getLogger(__name__).warning("%s must be one of %s; using info", LEVEL, ", ".join(_LEVELS))
