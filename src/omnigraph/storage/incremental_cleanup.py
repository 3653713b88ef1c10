"""Remove old versions of a table in a folder, a few at a time.

Lance's own cleanup reads every stored version, however few are to go. This one reads only those that go and
their neighbours. It is for tables of which no version is ever restored, so a file that two versions name is
named by all versions between them.
"""

from __future__ import annotations

import copy
import os
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

from omnigraph.storage.lance_errors import LANCE_RAISES, TableFailureKind, classify
from omnigraph.storage.tables import Table
from omnigraph.storage.upkeep import CollectionResult
from omnigraph.storage.version_files import version_files


@dataclass(frozen=True, slots=True)
class VersionRun:
    """Consecutive versions to be removed, and their neighbours on either side."""

    below: int | None
    versions: tuple[int, ...]
    above: int


def split_into_runs(
    stored: Sequence[int], old: Collection[int], first: int, most: int
) -> Iterator[VersionRun]:
    """Yield the old versions in runs of at most `most`, oldest first; the newest version is never in one.

    `first` is the size of the first run, which may be larger.
    """
    doomed = set(old) - {stored[-1]} if stored else set()
    below = None
    for goes, group in groupby(range(len(stored)), key=lambda at: stored[at] in doomed):
        places = list(group)
        if not goes:
            below = stored[places[-1]]
            continue
        while places:
            chosen, places = places[:first], places[first:]
            yield VersionRun(below, tuple(stored[at] for at in chosen), stored[chosen[-1] + 1])
            first = most


def collect_run(table: Table, run: VersionRun) -> CollectionResult:
    """Remove exactly these versions and the files that only they name; the table is in a folder.

    Fails with `NotFound` when another process removed some of them. Writers that may still build on one of
    them must be kept out first, see `stage_barrier`.
    """
    own = Path(table.uri)
    with table.access.call("collect", table.uri):
        neighbours = [version for version in (run.below, run.above) if version is not None]
        needed = {file for version in neighbours for file in _list_files(_checkout(table, version))}
        doomed = {version: _checkout(table, version) for version in run.versions}
        files = {file for native in doomed.values() for file in _list_files(native)} - needed
        # Files first: as long as a version is stored, the run after an interruption finds its files by it.
        freed = [_remove_file(own / file) for file in sorted(files)]
        for version, native in doomed.items():
            transaction = _transaction_files(native)
            freed += [_remove_file(own / file) for file in (*transaction, *version_files(version))]
    return CollectionResult(len(doomed), sum(freed), sum(map(bool, freed)) - len(doomed))


def _checkout(table: Table, version: int) -> Any:
    # A handle is locked while it reads, and this one is shared: use a copy.
    return copy.copy(table.native).checkout_version(version)


def _list_files(native: Any) -> Iterator[str]:
    """Yield the data and deletion files that a version names as its table's own."""
    for fragment in native.get_fragments():
        stored = fragment.metadata
        yield from (f"data/{file.path}" for file in stored.files if file.base_id is None)
        deleted = stored.deletion_file
        if deleted is not None and deleted.base_id is None:
            yield deleted.path(stored.id)


def _transaction_files(native: Any) -> Iterator[str]:
    try:
        made = native.read_transaction(native.version)
    except LANCE_RAISES as error:
        if classify(error) not in (TableFailureKind.NOT_FOUND, TableFailureKind.RECLAIMED):
            raise
        return  # it was removed before its version, which is too old to name it
    if made is not None:
        yield f"_transactions/{made.read_version}-{made.uuid}.txn"


def _remove_file(file: Path) -> int:
    """Remove a file and return how many bytes that freed; 0 where there was none."""
    try:
        size = os.stat(file).st_size  # noqa: PTH116
        os.unlink(file)  # noqa: PTH108
    except FileNotFoundError:
        return 0
    return size
