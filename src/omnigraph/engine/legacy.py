"""Commits as graphs before format 4 kept them: in two tables of their own, beside the manifest.

`_graph_commits.lance` has the graph's branches as forks. `_graph_commit_actors.lance` was never forked: it
knows the actors of all branches. Both are only ever read here.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from omnigraph import failpoints
from omnigraph.engine.lineage import Commit, head
from omnigraph.engine.manifest import MAIN, Records
from omnigraph.engine.root import Root
from omnigraph.errors import CorruptGraph, StorageFailure
from omnigraph.storage.lance_errors import Trouble
from omnigraph.storage.location import Location
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
_ACTOR_COLUMNS = ("graph_commit_id", "actor_id")


def legacy_lineage(root: Root, branch: str) -> Records:
    """The commits a branch shows, sorted by id, and its head; nothing when none were ever recorded."""
    rows = _commit_rows(root, None if branch == MAIN else branch)
    if rows is None or rows.num_rows == 0:
        return Records()
    commits = _commits(rows, _actors(root))
    newest = head(commits)
    return Records(commits=commits, heads={branch: newest.id} if newest else {})


def _commit_rows(root: Root, branch: str | None) -> pa.Table | None:
    table = _open(root, COMMITS, branch)
    if table is not None:
        return table.scan(_COMMIT_COLUMNS, ordered=False)
    # A branch that never committed may have no fork of its own: then it shows what it was forked from.
    fork = root.forks.find(root.layout.manifest, branch) if branch is not None else None
    if fork is None:
        return None
    rows = _commit_rows(root, fork.parent)
    return None if rows is None else rows.filter(pc.field("manifest_version") <= fork.parent_version)


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
        if failure.kind != Trouble.NOT_FOUND:
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
