"""Read schemas and queries from files."""

from __future__ import annotations

import os
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


def read_schema(schema: str | os.PathLike[str]) -> Source:
    """Return a schema text, or the text of a schema file with its name, so that mistakes name it."""
    if not isinstance(schema, str):
        return read_source(Path(schema))
    if schema.endswith(".pg") and len(schema.split()) == 1:
        raise BadRequest(f"'{schema}' is not a schema", remedy=f"to read a file, write `Path('{schema}')`")
    return Source(schema)
