"""The fragments of a table, and groups of them for tasks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from omnigraph.deferred_dataclass import dataclass
from omnigraph.storage.tables import Table
from omnigraph.storage.version_files import data_file_name


@dataclass(frozen=True, slots=True)
class Fragment:
    """A fragment of a table."""

    id: int
    rows: int
    bytes: int
    """What its files take, those of deleted rows included."""


def list_fragments(table: Table) -> tuple[Fragment, ...]:
    """Return the fragments of a table in their order; nothing is read for it."""
    return tuple(describe_fragment(found.metadata) for found in table.native.get_fragments())


def list_data_file_names(table: Table) -> dict[int, str]:
    """Return the data file names of each fragment by its id; no other fragment ever has the same."""
    return {
        found.fragment_id: "\n".join(map(data_file_name, found.data_files()))
        for found in table.native.get_fragments()
    }


def describe_fragment(stored: Any) -> Fragment:
    """Return a fragment from Lance's description of it."""
    return Fragment(stored.id, stored.num_rows, sum(file.file_size_bytes or 0 for file in stored.files))


def group_by_rows(found: Iterable[Fragment], most: int) -> Iterator[tuple[Fragment, ...]]:
    """Yield fragments in groups of at most `most` rows and at least one fragment, in order."""
    chosen: list[Fragment] = []
    rows = 0
    for fragment in found:
        if chosen and rows + fragment.rows > most:
            yield tuple(chosen)
            chosen, rows = [], 0
        chosen.append(fragment)
        rows += fragment.rows
    if chosen:
        yield tuple(chosen)
