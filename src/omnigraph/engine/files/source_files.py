"""Read schemas and queries from files."""

from __future__ import annotations

from pathlib import Path

from omnigraph.errors import BadRequest
from omnigraph.lang.source import Source


def read_source(path: Path) -> Source:
    """Read a schema or query file; errors name the file."""
    try:
        data = path.read_bytes()
    except OSError as failure:
        raise BadRequest(f"cannot read '{path}': {failure.strerror}", remedy="check the path") from failure
    return Source.from_bytes(data, str(path))
