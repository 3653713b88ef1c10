"""Files that a command is given by name."""

from __future__ import annotations

from pathlib import Path

from omnigraph.errors import BadRequest
from omnigraph.lang.source import Source


def read_source(path: Path) -> Source:
    """The text of a schema or query file; what is wrong with it is told with its name."""
    try:
        data = path.read_bytes()
    except OSError as failure:
        raise BadRequest(f"cannot read '{path}': {failure.strerror}", remedy="check the path") from failure
    return Source.from_bytes(data, str(path))
