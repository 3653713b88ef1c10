"""Create branches at old commits.

A branch is a fork of its source's manifest at the newest version: versions of the manifest are collected, so
that of an old commit is mostly gone. One write to the fork then deletes the rows that are younger than the
commit, which leaves the manifest as the commit left it. Until that is done the fork has no reference, so it
does not exist. Its reference says that it began at an old commit, for cleanups that run meanwhile.

Only Lance can make the fork, and it writes a reference: for a moment the branch shows the newest commit. A
process that dies then leaves a record, `__recovery/<ULID>.branch`, and the next writer removes the branch.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from contextlib import suppress

from omnigraph import failpoints
from omnigraph.ctrl_c import postpone_ctrl_c
from omnigraph.deferred_dataclass import dataclass
from omnigraph.engine.branches.tags import require_readable
from omnigraph.engine.commit.recovery.creations import delete_creation, store_creation
from omnigraph.engine.graph.coordinator import LoadedBranch
from omnigraph.engine.graph.lineage import Commit, find_head
from omnigraph.engine.graph.manifest import COMMIT, CREATED_AT, HEAD, KEY, Records, encode
from omnigraph.engine.graph.open_graph import AtVersion, OpenGraph
from omnigraph.engine.graph.snapshot import Snapshot
from omnigraph.engine.graph.table_forks import remove_fork
from omnigraph.engine.rows.predicate import one_of
from omnigraph.errors import BranchNotFound, Conflict, OmnigraphError
from omnigraph.storage.cas import replace_rows
from omnigraph.storage.location import Location
from omnigraph.storage.locks import HeldLocks
from omnigraph.storage.references import Fork
from omnigraph.storage.tables import Table

PAST = "omnigraph:began_at"
"""The note in the reference of a branch that began at an old commit."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class OldCommit:
    """A commit at which a branch is to begin, and a branch that shows it."""

    commit: Commit
    snapshot: Snapshot

    @property
    def source(self) -> str:
        """The branch that the new one is made from."""
        return self.snapshot.branch


def find_old_commit(graph: OpenGraph, at: Snapshot, commit: Commit) -> OldCommit:
    """Return the state of a commit on the branch it was made on, or on another one that shows it."""
    for branch in dict.fromkeys([commit.branch, at.branch]):
        with suppress(BranchNotFound):
            if commit.id in graph.load(branch).state.commits:
                return OldCommit(commit, graph.snapshot(AtVersion(branch, commit.version)))
    raise Conflict(
        f"no branch shows commit '{commit.id}' any more: branch '{commit.branch}' was deleted",
        remedy="create a branch from main, and give it the content of that commit with `omnigraph reset`",
    )


def require_same_schema(graph: OpenGraph, old: OldCommit) -> None:
    """Refuse a commit of another schema: all branches have the accepted one."""
    if graph.catalog_at(old.snapshot).fingerprint != graph.schema().catalog.fingerprint:
        raise Conflict(
            f"commit '{old.commit.id}' has another schema than the graph has now",
            remedy="export its rows and load them, or apply the schema of that commit first",
        )


def fork_at_commit(
    graph: OpenGraph, held: HeldLocks, source: LoadedBranch, table: Table, old: OldCommit, name: str
) -> Fork:
    """Create a branch that shows what its source showed at a commit; callers hold the locks of all owners.

    `table` is the newest manifest of the source, in the current format.
    """
    if not table.has_stable_row_ids:
        raise Conflict(
            f"branch '{old.source}' has a manifest of an early release, which does not show its past",
            remedy="export the rows of that commit, and load them into a new graph",
        )
    require_readable(graph, old.snapshot)
    root, manifest = graph.root, graph.root.layout.manifest
    held.require()
    with postpone_ctrl_c():
        record = store_creation(root, name, table.version)
        try:
            made = root.forks.create(table, name)
            failpoints.reach(failpoints.BRANCH_CREATE_BEFORE_REWIND)
            hidden = root.forks.hide(manifest, name, held)
            _rewind(made, source, old)
            held.require()
            found = root.forks.show(hidden, {PAST: old.commit.id})
        except BaseException:
            _undo(graph, held, name, record)
            raise
        delete_creation(root, record)
    return found


def _rewind(made: Table, source: LoadedBranch, old: OldCommit) -> None:
    """Remove what is younger than a commit from the manifest of a new branch."""
    commits = {one.id: one for one in source.state.commits.values() if one.version <= old.commit.version}
    younger = f"{CREATED_AT} > {old.commit.version}"
    found = made.scan([KEY], where=f"object_type = '{COMMIT}' AND {younger}", ordered=False)
    # Commits that a migration copied in are older than their rows.
    stay = [one for one in found.column(KEY).to_pylist() if one in commits]
    if stay:
        younger = f"{younger} AND NOT {one_of(KEY, stay)}"
    heads = {branch: _find_newest(commits.values(), branch) for branch in source.state.heads}
    known = {branch: head for branch, head in heads.items() if head is not None}
    replace_rows(made, f"({younger}) OR object_type = '{HEAD}'", encode(Records(heads=known), {}, commits))


def _find_newest(commits: Iterable[Commit], branch: str) -> str | None:
    found = find_head(one for one in commits if one.branch == branch)
    return None if found is None else found.id


def _undo(graph: OpenGraph, held: HeldLocks, name: str, record: Location) -> None:
    """Remove a branch whose creation failed; what cannot be removed now is removed by the next writer."""
    try:
        remove_fork(graph.root, held, graph.root.layout.manifest, name)
        delete_creation(graph.root, record)
    except OmnigraphError as error:
        _log.warning("branch '%s' was not created, and is left to recovery: %s", name, error)
    finally:
        graph.forget(name)
