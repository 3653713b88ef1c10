"""Old versions of a table in a folder, removed a few at a time.

Lance's own removal reads every version that is stored, however few are to go. This one reads those that go
and their neighbours. It is for a table that only ever moves on: no version of it is restored, so a file that
is named by two versions is named by all between them.
"""

from __future__ import annotations

import copy
import os
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

from omnigraph.storage.lance_errors import LANCE_RAISES, Trouble, classify
from omnigraph.storage.tables import Table
from omnigraph.storage.upkeep import Collected
from omnigraph.storage.version_files import version_files


@dataclass(frozen=True, slots=True)
class Run:
    """Versions that follow each other and are to go, and the ones that stay or go later on either side."""

    below: int | None
    versions: tuple[int, ...]
    above: int


def runs(stored: Sequence[int], old: Collection[int], first: int, most: int) -> Iterator[Run]:
    """The old ones of all stored versions, oldest first, at most so many in a run; the newest never goes.

    `first` are those of the first run, which may be more.
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
            yield Run(below, tuple(stored[at] for at in chosen), stored[chosen[-1] + 1])
            first = most


def collect_run(table: Table, run: Run) -> Collected:
    """Remove exactly these versions and the files that only they name; the table is in a folder.

    Fails with `NotFound` when somebody else removed some of them. Whoever still may write on one of them has
    to be kept out first, see `stage_barrier`.
    """
    own = Path(table.uri)
    with table.access.call("collect", table.uri):
        neighbours = [version for version in (run.below, run.above) if version is not None]
        needed = {file for version in neighbours for file in _files(_at(table, version))}
        doomed = {version: _at(table, version) for version in run.versions}
        files = {file for native in doomed.values() for file in _files(native)} - needed
        # As long as a version is there, whoever goes on where this was interrupted finds its files by it.
        freed = [_removed(own / file) for file in sorted(files)]
        for version, native in doomed.items():
            transaction = _transaction(native)
            freed += [_removed(own / file) for file in (*transaction, *version_files(version))]
    return Collected(len(doomed), sum(freed), sum(map(bool, freed)) - len(doomed))


def _at(table: Table, version: int) -> Any:
    # While it reads, nobody else can use the handle, and others share this one.
    return copy.copy(table.native).checkout_version(version)


def _files(native: Any) -> Iterator[str]:
    """The files with rows, and with the numbers of deleted rows, that a version names as its table's own."""
    for fragment in native.get_fragments():
        stored = fragment.metadata
        yield from (f"data/{file.path}" for file in stored.files if file.base_id is None)
        deleted = stored.deletion_file
        if deleted is not None and deleted.base_id is None:
            yield deleted.path(stored.id)


def _transaction(native: Any) -> Iterator[str]:
    try:
        made = native.read_transaction(native.version)
    except LANCE_RAISES as error:
        if classify(error) not in (Trouble.NOT_FOUND, Trouble.RECLAIMED):
            raise
        return  # it went before its version, and that is too old to tell it itself
    if made is not None:
        yield f"_transactions/{made.read_version}-{made.uuid}.txn"


def _removed(file: Path) -> int:
    """How many bytes that freed; none where there was no such file."""
    try:
        size = os.stat(file).st_size  # noqa: PTH116
        os.unlink(file)  # noqa: PTH108
    except FileNotFoundError:
        return 0
    return size
