"""The fragments of a table: the pieces in which it is stored, and in which tasks take it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from omnigraph.storage.tables import Table


@dataclass(frozen=True, slots=True)
class Fragment:
    """A piece of a table."""

    id: int
    rows: int
    bytes: int
    """What its files take, those of deleted rows included."""


def fragments(table: Table) -> tuple[Fragment, ...]:
    """The pieces of a table in their order; nothing is read for it."""
    return tuple(described(found.metadata) for found in table.native.get_fragments())


def file_names(table: Table) -> dict[int, str]:
    """The fragments by number, each with the name of its data file, which no other fragment ever has."""
    return {
        found.fragment_id: "\n".join(map(_name, found.data_files())) for found in table.native.get_fragments()
    }


def _name(file: Any) -> str:
    return str(file.path)  # Lance's own type does more


def described(stored: Any) -> Fragment:
    """A fragment as Lance describes it."""
    return Fragment(stored.id, stored.num_rows, sum(file.file_size_bytes or 0 for file in stored.files))


def portions(found: Iterable[Fragment], most: int) -> Iterator[tuple[Fragment, ...]]:
    """Fragments in their order, some for each task: of no more rows than `most`, but at least one."""
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
