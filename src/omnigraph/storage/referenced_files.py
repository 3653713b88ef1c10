"""Which files a version of a table needs, those that a fork shares with its table included.

Lance's own removal leaves a file that is younger than the versions that stay, since it may belong to a change
under way. After a copy all files look young. Where rows must go, the files are removed by name.
"""

from __future__ import annotations

import copy
from collections.abc import Collection, Iterable, Iterator
from typing import Any

from omnigraph.storage.objects import ObjectStore
from omnigraph.storage.tables import Table
from omnigraph.storage.upkeep import CollectionResult, collect_versions


def list_referenced_files(table: Table, version: int) -> frozenset[str]:
    """The files with rows, and with deleted rows, that a version reads; relative to the table itself."""
    with table.access.call("read_version", table.uri):
        # While it reads, no other thread can use the handle, and others share this one.
        native = copy.copy(table.native).checkout_version(version)
        return frozenset(_needed(native, table.branch))


def collect_with_files(objects: ObjectStore, table: Table, versions: Collection[int]) -> CollectionResult:
    """Remove versions of main with all files that only they need, however young; forks keep theirs.

    Files go first: as long as a version is stored, the next run of an interrupted removal finds them by it.
    """
    stay = set(table.versions()).difference(versions)
    doomed = _files_of(table, versions) - _files_of(table, stay)
    table.access.announce("collect", table.uri)
    for name in sorted(doomed):
        objects.delete(table.location / name)
        objects.delete_prefix(table.location / name.removesuffix(".lance"))
    return collect_versions(table, sorted(versions))


def _files_of(table: Table, versions: Iterable[int]) -> set[str]:
    return {name for version in versions for name in list_referenced_files(table, version)}


def _needed(native: Any, branch: str | None) -> Iterator[str]:
    folders = {base.id: _folder(base.name) for base in native.base_paths().values()}
    own = _folder(branch)
    for fragment in native.get_fragments():
        stored = fragment.metadata
        for file in stored.files:
            yield f"{own if file.base_id is None else folders[file.base_id]}data/{file.path}"
        deleted = stored.deletion_file
        if deleted is not None:
            yield f"{own if deleted.base_id is None else folders[deleted.base_id]}{deleted.path(stored.id)}"


def _folder(branch: str | None) -> str:
    return "" if branch is None else f"tree/{branch}/"
