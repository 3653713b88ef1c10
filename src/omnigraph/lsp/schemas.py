"""Which schema a query file belongs to: the one that was named, or the nearest `.pg` file above it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from omnigraph.deferred_dataclass import dataclass
from omnigraph.errors import CompileError
from omnigraph.lang.schema import compile_schema
from omnigraph.lang.schema.catalog import Catalog
from omnigraph.lang.source import Source

ENDING = ".pg"
USUAL = "schema.pg"
MOST_PARENTS = 8

ReadText = Callable[[Path], str | None]
"""Returns the text of a file as an editor shows it, or None if there is none."""


@dataclass(frozen=True, slots=True)
class Schema:
    """A schema file that is valid."""

    path: Path
    source: Source
    catalog: Catalog


def find_schema(query: Path, named: Path | None, read: ReadText) -> Schema | None:
    """Return the schema for a query file, or None when there is none, or it has mistakes."""
    path = named if named is not None else _nearest(query)
    text = None if path is None else read(path)
    if path is None or text is None:
        return None
    try:
        source = Source(text, str(path))
        return Schema(path, source, compile_schema(source))
    except CompileError:
        return None  # its own file shows the mistakes


def _nearest(query: Path) -> Path | None:
    """Return `schema.pg`, or the only `.pg` file, of the nearest folder that has one."""
    for folder in list(query.parents)[:MOST_PARENTS]:
        usual = folder / USUAL
        if usual.is_file():
            return usual
        found = sorted(folder.glob(f"*{ENDING}"))
        if found:
            return found[0] if len(found) == 1 else None
    return None
