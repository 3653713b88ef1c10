"""Indexes whose files are not where their table looks for them.

A fork reads the indexes it inherits from the folder of the table it was made from. When Lance compacts such a
fork it writes an inherited B-tree anew, into the fork's own folder, and goes on looking for it in the
other one. Files may be missing for other reasons as well. Nothing is lost with them but time: an index that
is found in the fork's folder is told so, and any other is dropped, to be built again.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from lance import Index, LanceOperation
from lance.file import LanceFileSession

from omnigraph.storage.index_parts import BTREE
from omnigraph.storage.indexes import entries
from omnigraph.storage.staging import Staged, unfenced
from omnigraph.storage.tables import Table, options


@dataclass(frozen=True, slots=True)
class Astray:
    """The indexes of a table whose files are elsewhere, or nowhere."""

    table: Table
    lost: frozenset[str]
    """The names of those that are nowhere."""
    here: tuple[Index, ...] = field(repr=False)
    """What is to be said of those that are in the table's own folder."""
    wrong: tuple[Index, ...] = field(repr=False)
    """What is said of all of them so far."""

    def stage_mended(self) -> Staged:
        """The change after which every index that the table names is there."""
        operation = LanceOperation.CreateIndex(new_indices=list(self.here), removed_indices=list(self.wrong))
        return Staged(self.table, unfenced(self.table, operation))


def find_astray(table: Table) -> Astray | None:
    """The indexes whose files are not where the table looks for them; None when all are in place.

    It lists the folders that indexes are in: the table's own, and those that it inherits from.
    """
    with table.access.call("find_index_files", table.uri):
        described = table.native.describe_indices()
        folders = _Folders(table)
        lost: set[str] = set()
        here: list[Index] = []
        wrong: list[Index] = []
        for stored in described:
            missing = [entry for entry in entries(stored) if not folders.have(entry, entry.base_id)]
            found = [
                _at_home(stored, entry)
                for entry in missing
                if stored.index_type.upper() == BTREE and folders.have(entry, None)
            ]
            if len(found) < len(missing):
                # Without all of its segments it is better built anew.
                lost.add(stored.name)
                wrong += entries(stored)
            else:
                here += found
                wrong += missing
    return Astray(table, frozenset(lost), tuple(here), tuple(wrong)) if wrong else None


class _Folders:
    """Which segments there are files of, in the folders that a table reads; each is listed once."""

    def __init__(self, table: Table) -> None:
        self._table = table
        self._found: dict[int | None, frozenset[str]] = {}

    def have(self, entry: Index, base: int | None) -> bool:
        """Whether a segment is in the folder of this base; None is the table's own."""
        if base not in self._found:
            self._found[base] = self._listed(base)
        return entry.uuid in self._found[base]

    def _listed(self, base: int | None) -> frozenset[str]:
        folder = self._table.uri if base is None else self._table.native.base_paths()[base].path
        session = LanceFileSession(folder, storage_options=options(self._table.location))
        return frozenset(path.split("/")[1] for path in session.list("_indices"))


def _at_home(stored: Any, entry: Index) -> Index:
    """The entry of a B-tree that is in the table's own folder."""
    # Lance tells the details of an index in another form than it takes them; those of a B-tree are empty.
    return replace(entry, base_id=None, index_details=(stored.type_url, b""))
