"""Find and repair indexes whose files are not where their table looks for them.

A fork reads inherited indexes from the folder of its parent table. When Lance compacts such a fork, it
rewrites an inherited B-tree into the fork's own folder and keeps looking for it in the parent's. Files can be
missing for other reasons too. Only time is lost: the entry of an index that is found in the fork's folder is
corrected; any other index is dropped, to be rebuilt.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import field, replace
from typing import Any

from lance import Index, LanceOperation
from lance.file import LanceFileReader, LanceFileSession

from omnigraph.deferred_dataclass import dataclass
from omnigraph.errors import StorageFailure
from omnigraph.storage.failures import wrap_lance_errors
from omnigraph.storage.index_parts import BTREE
from omnigraph.storage.indexes import list_segments
from omnigraph.storage.staging import Staged, build_transaction
from omnigraph.storage.tables import Table, storage_options

_ROWS_AT_ONCE = 8_192


@dataclass(frozen=True, slots=True)
class MisplacedIndexes:
    """The indexes of a table whose files are in another folder, or missing."""

    table: Table
    missing: frozenset[str]
    """The names of indexes that have lost files."""
    relocated: tuple[Index, ...] = field(repr=False)
    """Corrected entries of the segments that are in the table's own folder."""
    stale: tuple[Index, ...] = field(repr=False)
    """The present entries of all these segments, to be removed."""

    def stage_repair(self) -> Staged:
        """Stage the change after which the files of every listed index exist."""
        operation = LanceOperation.CreateIndex(
            new_indices=list(self.relocated), removed_indices=list(self.stale)
        )
        return Staged(self.table, build_transaction(self.table, operation))


def find_misplaced_indexes(table: Table) -> MisplacedIndexes | None:
    """Return the indexes whose files are not where the table looks for them; None when all are in place.

    It lists the folders that indexes are in: the table's own, and those that it inherits from.
    """
    with table.access.call("find_index_files", table.uri):
        described = table.native.describe_indices()
        folders = _Folders(table)
        lost: set[str] = set()
        here: list[Index] = []
        wrong: list[Index] = []
        for stored in described:
            missing = [entry for entry in list_segments(stored) if not folders.contains(entry, entry.base_id)]
            found = [
                _relocate_entry(stored, entry)
                for entry in missing
                if stored.index_type.upper() == BTREE and folders.contains(entry, None)
            ]
            if len(found) < len(missing):
                # An index that lost a segment is rebuilt as a whole.
                lost.add(stored.name)
                wrong += list_segments(stored)
            else:
                here += found
                wrong += missing
    return MisplacedIndexes(table, frozenset(lost), tuple(here), tuple(wrong)) if wrong else None


def find_unreadable_index_files(table: Table) -> Iterator[tuple[str, str]]:
    """Decode every file of the indexes of a table, and yield those that cannot be, with the reason.

    This proves the structure of a file, not its values: only a checksum can prove those.
    """
    with table.access.call("read_index_files", table.uri):
        stored = [entry for found in table.native.describe_indices() for entry in list_segments(found)]
        bases = table.native.base_paths() if any(entry.base_id is not None for entry in stored) else {}
    place = storage_options(table.location)
    for entry in stored:
        folder = table.uri if entry.base_id is None else bases[entry.base_id].path
        for path in LanceFileSession(folder, storage_options=place).list(f"_indices/{entry.uuid}"):
            if path.endswith(".lance"):
                reason = _read_failure(f"{folder}/{path}", place)
                if reason is not None:
                    yield path, reason


def _read_failure(uri: str, place: dict[str, str] | None) -> str | None:
    try:
        with wrap_lance_errors("read_index_files", uri):
            for batch in (
                LanceFileReader(uri, storage_options=place).read_all(batch_size=_ROWS_AT_ONCE).to_batches()
            ):
                batch.validate(full=True)
    except StorageFailure as failure:
        return failure.message
    return None


class _Folders:
    """The segments that have files, per folder that a table reads; each folder is listed once."""

    def __init__(self, table: Table) -> None:
        self._table = table
        self._found: dict[int | None, frozenset[str]] = {}

    def contains(self, entry: Index, base: int | None) -> bool:
        """Whether a segment is in the folder of this base; None is the table's own."""
        if base not in self._found:
            self._found[base] = self._list_segments(base)
        return entry.uuid in self._found[base]

    def _list_segments(self, base: int | None) -> frozenset[str]:
        folder = self._table.uri if base is None else self._table.native.base_paths()[base].path
        session = LanceFileSession(folder, storage_options=storage_options(self._table.location))
        return frozenset(path.split("/")[1] for path in session.list("_indices"))


def _relocate_entry(stored: Any, entry: Index) -> Index:
    """The entry of a B-tree that is in the table's own folder."""
    # Lance returns the details of an index in another form than it accepts; those of a B-tree are empty.
    return replace(entry, base_id=None, index_details=(stored.type_url, b""))
