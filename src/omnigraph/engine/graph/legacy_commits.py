"""Commits as graphs before format 4 kept them: in two tables of their own, beside the manifest.

`_graph_commits.lance` has the graph's branches as forks. `_graph_commit_actors.lance` was never forked: it
knows the actors of all branches. Both are only ever read here.

A fork is found by the name of its branch. Deleting a branch could leave its fork behind, and the next branch
of that name got no other one: so what a fork holds is compared with the manifest of the branch first.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from omnigraph import failpoints
from omnigraph.engine.graph.lineage import Commit, find_head
from omnigraph.engine.graph.manifest import KEY, MAIN, Records
from omnigraph.engine.graph.root import Root
from omnigraph.errors import CorruptGraph, StorageFailure
from omnigraph.storage.failures import TableFailureKind
from omnigraph.storage.location import Location
from omnigraph.storage.references import Fork, fork_time
from omnigraph.storage.tables import Table

COMMITS = "_graph_commits.lance"
ACTORS = "_graph_commit_actors.lance"

_COMMIT_COLUMNS = (
    "graph_commit_id",
    "manifest_branch",
    "manifest_version",
    "parent_commit_id",
    "merged_parent_commit_id",
    "created_at",
)
_ID = _COMMIT_COLUMNS[0]
_CLOCK_SKEW = 300
"""Seconds by which the clocks of two hosts may differ."""
_ACTOR_COLUMNS = ("graph_commit_id", "actor_id")


def read_legacy_commits(root: Root, branch: str) -> Records:
    """Read the commits of a branch, sorted by id, and its head; empty when none were recorded."""
    rows = _commit_rows(root, None if branch == MAIN else branch)
    if rows is None or rows.num_rows == 0:
        return Records()
    commits = _commits(rows, _actors(root))
    newest = find_head(commits)
    return Records(commits=commits, heads={branch: newest.id} if newest else {})


def _commit_rows(root: Root, branch: str | None) -> pa.Table | None:
    table = _open(root, COMMITS, branch)
    if table is not None:
        rows = table.scan(_COMMIT_COLUMNS, ordered=False)
        if branch is not None:
            _require_same_incarnation(root, branch, rows)
        return rows
    # A branch that never committed may have no fork of its own: then it shows what it was forked from.
    fork = root.forks.find(root.layout.manifest, branch) if branch is not None else None
    if fork is None:
        return None
    rows = _commit_rows(root, fork.parent)
    if rows is None:
        return None
    if _has_published(root, fork):
        raise CorruptGraph(
            f"branch '{branch}' has commits of its own, and their reference in '{COMMITS}' is missing",
            object_id=COMMITS,
            remedy=f"restore '{COMMITS}' from a backup, or delete the branch",
        )
    return rows.filter(pc.field("manifest_version") <= fork.parent_version)


# --- commits of an earlier branch of the same name -----------------------------------------------


def _require_same_incarnation(root: Root, branch: str, rows: pa.Table) -> None:
    """Raise `CorruptGraph` when commits were recorded for an earlier branch of this name."""
    fork = root.forks.find(root.layout.manifest, branch)
    mismatch = None if fork is None else _mismatch(root, fork, rows)
    if mismatch is not None:
        raise CorruptGraph(
            f"the commits of branch '{branch}' in '{COMMITS}' belong to an earlier branch of that name: "
            f"{mismatch}",
            object_id=COMMITS,
            remedy=f"restore '{COMMITS}' from a backup, or delete the branch",
        )


def _mismatch(root: Root, fork: Fork, rows: pa.Table) -> str | None:
    """What shows that commits are not those of this incarnation of a branch; None when nothing does."""
    inherited = _parent_rows(root, fork)
    is_own = pc.equal(rows.column("manifest_branch"), fork.name).fill_null(False)
    if inherited is not None:
        is_own = pc.and_not(is_own, pc.is_in(rows.column(_ID), value_set=inherited.column(_ID)))
    own, others = rows.filter(is_own), rows.filter(pc.invert(is_own))
    return (
        _wrong_version(root, fork, own)
        or (None if inherited is None else _wrong_origin(fork, others, inherited))
        or _wrong_time(root, fork, own)
    )


def _parent_rows(root: Root, fork: Fork) -> pa.Table | None:
    """Return the commits of the branch that a fork was made from; None when they are unreadable."""
    try:
        return _commit_rows(root, fork.parent)
    except CorruptGraph:
        return None  # reported where that branch is read


def _wrong_version(root: Root, fork: Fork, own: pa.Table) -> str | None:
    """Own commits name versions of the manifest that the branch has."""
    if own.num_rows == 0:
        return None
    first, last = (found.as_py() for found in pc.min_max(own.column("manifest_version")).values())
    if first < fork.parent_version:
        return f"one is of version {first} of the manifest, and the branch began at {fork.parent_version}"
    newest = root.tables.tip(root.layout.manifest, branch=fork.name).version
    if last > newest:
        return f"one is of version {last} of the manifest, and the newest is {newest}"
    if last > fork.parent_version and not _has_published(root, fork):
        return "the branch has published nothing yet"
    return None


def _wrong_origin(fork: Fork, others: pa.Table, parent: pa.Table) -> str | None:
    """The other commits are those of the parent, without at most one that was just being recorded."""
    foreign = _missing(others, parent)
    if foreign.num_rows:
        return f"commit '{foreign.column(_ID)[0]}' is not one of the branch that it was made from"
    until = parent.filter(pc.field("manifest_version") <= fork.parent_version)
    absent = _missing(until, others)
    newest = pc.max(until.column("manifest_version"))
    if pc.any(pc.less(absent.column("manifest_version"), newest)).as_py():
        return f"commit '{absent.column(_ID)[0]}', with which the branch began, is not among them"
    return None


def _missing(rows: pa.Table, among: pa.Table) -> pa.Table:
    return rows.filter(pc.invert(pc.is_in(rows.column(_ID), value_set=among.column(_ID))))


def _wrong_time(root: Root, fork: Fork, own: pa.Table) -> str | None:
    """A branch of the manifest was made first, then that of the commits, and then came commits."""
    begun = fork_time(root.objects, root.layout.manifest, fork.name)
    if begun is None:
        return None
    recorded = fork_time(root.objects, root.layout.table(COMMITS), fork.name)
    if recorded is not None and recorded < begun - _CLOCK_SKEW:
        return "their fork is older than the branch"
    first = pc.min(own.column("created_at").cast(pa.timestamp("us")).cast(pa.int64())).as_py()
    if first is not None and first < (begun - _CLOCK_SKEW) * 1_000_000:
        return "one is older than the branch"
    return None


def _has_published(root: Root, fork: Fork) -> bool:
    """Whether a branch of the manifest has rows that it was not forked with; a migration adds none."""
    manifest = root.layout.manifest
    inherited = root.tables.open(manifest, fork.parent_version, branch=fork.parent).scan([KEY])
    own = root.tables.tip(manifest, branch=fork.name).scan([KEY])
    return bool(pc.any(pc.invert(pc.is_in(own.column(KEY), value_set=inherited.column(KEY)))).as_py())


def _actors(root: Root) -> dict[str, str]:
    table = _open(root, ACTORS, None)
    if table is None:
        return {}
    rows = table.scan(_ACTOR_COLUMNS)
    return dict(zip(*(rows.column(name).to_pylist() for name in _ACTOR_COLUMNS), strict=True))


def _open(root: Root, name: str, branch: str | None) -> Table | None:
    """The table, or None when the store itself says that it is not there."""
    at = root.layout.table(name)
    try:
        failpoints.reach(failpoints.MIGRATION_V3_TO_V4_LEGACY_OPEN)
        return root.tables.tip(at, branch=branch)
    except StorageFailure as failure:
        if failure.kind != TableFailureKind.NOT_FOUND:
            raise
        if _has_traces(root, at, branch):
            raise CorruptGraph(
                f"'{failure.uri}' is damaged: it has the graph's older commits and cannot be opened",
                object_id=name,
                remedy="restore it from a backup",
            ) from failure
        return None


def _has_traces(root: Root, at: Location, branch: str | None) -> bool:
    """Whether there was a table: a damaged history must not pass for none."""
    return root.objects.exists(at) if branch is None else root.forks.find(at, branch) is not None


def _commits(rows: pa.Table, actors: dict[str, str]) -> list[Commit]:
    moments = rows.column("created_at").cast(pa.timestamp("us")).cast(pa.int64())
    columns = [rows.column(name).to_pylist() for name in _COMMIT_COLUMNS[:-1]]
    found = {}
    for commit_id, branch, version, parent, merged_parent, created_at in zip(
        *columns, moments.to_pylist(), strict=True
    ):
        if commit_id is None or version is None or created_at is None:
            raise CorruptGraph(f"a commit in '{COMMITS}' is incomplete", object_id=commit_id or COMMITS)
        found[commit_id] = Commit(
            id=commit_id,
            branch=branch or MAIN,
            version=version,
            created_at=created_at,
            parent=parent,
            merged_parent=merged_parent,
            actor=actors.get(commit_id),
        )
    return [found[commit_id] for commit_id in sorted(found)]
