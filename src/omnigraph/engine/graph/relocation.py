"""Rewrite forks after a graph was moved: they record the location they were written for.

Lance records the location of a table in every version of its forks. Handles do not depend on that
(`storage/base_paths.py`), so a graph that was moved or copied is read and written at once, also where nothing
may be written. Lance itself and earlier releases do depend on it. So a graph that is opened for writing has
the version files of its forks rewritten when they were written for another location.

That location is on file: a move is noticed by one read. The file is replaced last, so that an interrupted run
is continued by the next opening. Each version file is replaced atomically, under the lock of
its branch; a branch that is being written to is left to a later opening.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

from omnigraph.deferred_dataclass import dataclass
from omnigraph.engine.graph.layout import ENTITY_FOLDERS, LOCK_BRANCH
from omnigraph.engine.graph.legacy_commits import COMMITS
from omnigraph.engine.graph.root import Root
from omnigraph.errors import LockLost, StorageFailure
from omnigraph.progress import stage
from omnigraph.storage.base_paths import rewrite_fork
from omnigraph.storage.location import Location
from omnigraph.storage.references import list_fork_names

_FORMAT = 1
_AT_ONCE = 8

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class RelocationResult:
    """How many files a run rewrote, and the branches that it skipped."""

    files: int = 0
    left: tuple[str, ...] = ()


def record_place(root: Root) -> None:
    """Record that all forks of a graph are written for its current location."""
    _record(root, [root.uri])


def relocate_if_moved(root: Root) -> RelocationResult:
    """Rewrite the forks of a graph that was moved here; usually one read shows that nothing is to be done."""
    known = _read_places(root)
    if known is not None and all(_is_same(root.layout.root, place) for place in known):
        if root.uri not in known:
            # Another name of the same folder. Once one of them points elsewhere, forks are rewritten.
            _record(root, [*known, root.uri])
        return RelocationResult()
    if not root.layout.root.is_local:
        # Checksums copied from a folder would not match rewritten files: a bucket has none.
        root.objects.delete_prefix(root.layout.checksums)
    done = relocate_forks(root)
    if not done.left:
        record_place(root)
    return done


def relocate_if_seen(root: Root) -> RelocationResult:
    """Rewrite the forks if any were seen that record another location, whatever is on file.

    An earlier release, which does not write that file, may have used the graph elsewhere in between.
    """
    access = root.tables.access
    if not access.saw_moved_fork:
        return RelocationResult()
    done = relocate_forks(root)
    if not done.left:
        record_place(root)
        access.relocated.clear()
        access.saw_moved_fork = False
    return done


def relocate_forks(root: Root) -> RelocationResult:
    """Rewrite every version of a fork that records another location; skips a branch that fails."""
    forks = _forks(root)
    files, left = 0, []
    with stage("relocate", tasks=len(forks)) as relocating:
        for branch, tables in sorted(forks.items()):
            try:
                rewritten = _relocate_branch(root, branch, tables)
            except (LockLost, StorageFailure) as failure:
                _log.warning("branch '%s' still records another location: %s", branch, failure)
                rewritten = None
            if rewritten is None:
                left.append(branch)
            files += rewritten or 0
            relocating.advance(tasks=1)
    return RelocationResult(files, tuple(left))


def table_places(root: Root) -> Iterator[Location]:
    """Every table that can have forks: the manifest, those of types, and the commits of old formats."""
    yield root.layout.manifest
    yield root.layout.table(COMMITS)
    for folder in ENTITY_FOLDERS:
        at = root.layout.root / folder
        yield from (at / name for name in sorted(root.objects.list_folders(at)))


def _forks(root: Root) -> dict[str, list[Location]]:
    """The tables that each branch has forks of."""
    found: dict[str, list[Location]] = {}
    for table in table_places(root):
        for branch in list_fork_names(root.objects, table) - {LOCK_BRANCH}:
            found.setdefault(branch, []).append(table)
    return found


def _relocate_branch(root: Root, branch: str, tables: Sequence[Location]) -> int | None:
    """Return the number of rewritten files; None when the branch is locked."""
    held = root.locks.try_acquire([branch])
    if held is None:
        return None

    def rewrite(table: Location) -> int:
        held.require()
        return rewrite_fork(root.objects, root.tables.access.checksums, table, branch)

    with held, ThreadPoolExecutor(_AT_ONCE) as pool:
        return sum(pool.map(rewrite, tables))


# --- the file --------------------------------------------------------------------------------------


def _read_places(root: Root) -> list[str] | None:
    """Return the URIs by which the graph was opened where its forks were written; None if not on file."""
    text = root.objects.read_text_if_exists(root.layout.place)
    try:
        facts = None if text is None else json.loads(text)
        return [str(place) for place in facts["places"]] if facts and facts["places"] else None
    except (ValueError, KeyError, TypeError):
        return None  # derived data: an unreadable file is rewritten


def _record(root: Root, places: Sequence[str]) -> None:
    root.objects.write_text(root.layout.place, json.dumps({"format": _FORMAT, "places": list(places)}))


def _is_same(here: Location, place: str) -> bool:
    """Whether a URI is the location of a graph, maybe by another name: a link, or another mount."""
    if place == here.uri:
        return True
    if not here.is_local or not Location(place).is_local:
        return False
    try:
        return here.path.samefile(place)
    except OSError:
        return False
