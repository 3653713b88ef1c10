"""Open a graph; interrupted writes are recovered first."""

from __future__ import annotations

from typing import TYPE_CHECKING

from omnigraph.engine.graph.open_graph import OpenGraph
from omnigraph.engine.graph.root import Root
from omnigraph.errors import SchemaContractBroken

if TYPE_CHECKING:
    from omnigraph.engine.commit.recovery.sweep import RecoveryReport


def open_graph(root: Root, *, read_only: bool = False) -> OpenGraph:
    """Open a graph; read-write finishes or undoes every interrupted write whose branch is free."""
    if read_only:
        return OpenGraph.open(root, read_only=True)
    from omnigraph.engine.commit.schema_staging import upgrade_if_free

    opened, whole = _open(root, read_only=False)
    recover_all(opened)
    if not whole:
        opened.schema()
    if not opened.has_current_schema_files:
        upgrade_if_free(opened)
    return opened


def open_without_recovery(root: Root, *, read_only: bool = False) -> OpenGraph:
    """Open a graph without recovering interrupted writes, for inspection and recovery itself."""
    return _open(root, read_only=read_only)[0]


def _open(root: Root, *, read_only: bool) -> tuple[OpenGraph, bool]:
    """Return the graph and whether its schema is complete; read-write relocates its forks if needed."""
    from omnigraph.engine.commit.recovery import sidecar
    from omnigraph.engine.graph.relocation import relocate_if_moved

    try:
        found = OpenGraph.open(root, read_only=read_only), True
    except SchemaContractBroken:
        if not sidecar.operations(root):
            raise
        # A schema change was interrupted while its files were promoted: its recovery finishes that.
        found = OpenGraph(root, read_only=read_only), False
    if not read_only:
        relocate_if_moved(root)
    return found


def recover_all(opened: OpenGraph) -> list[RecoveryReport]:
    """Finish or undo every interrupted write whose branch is free, and remove a stale schema lock."""
    from omnigraph.engine.commit.recovery.sweep import has_leftovers, sweep
    from omnigraph.engine.commit.schema_lock import recover_stale_lock_if_free

    reports = sweep(opened, only_forward=False) if has_leftovers(opened.root) else []
    recover_stale_lock_if_free(opened)
    return reports


def reopen_graph(opened: OpenGraph) -> OpenGraph:
    """Re-open a graph, publishing interrupted writes that were complete."""
    from omnigraph.engine.commit.recovery.sweep import finish_completed_writes

    opened.root.tables.forget()
    fresh = OpenGraph.open(opened.root, read_only=opened.read_only)
    fresh.permissions, fresh.embedding = opened.permissions, opened.embedding
    if not fresh.read_only:
        finish_completed_writes(fresh)
    return fresh
