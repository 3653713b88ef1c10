"""Opening a graph for use: what dead writers left behind is dealt with first."""

from __future__ import annotations

from omnigraph.engine.opened import OpenGraph
from omnigraph.engine.recovery import sidecar
from omnigraph.engine.recovery.sweep import heal, sweep
from omnigraph.engine.root import Root
from omnigraph.engine.schema_apply.lock import clear_if_free


def open_graph(root: Root, *, read_only: bool = False) -> OpenGraph:
    """Open a graph; read-write finishes or undoes every interrupted write whose branch is free."""
    opened = OpenGraph.open(root, read_only=read_only)
    if not read_only:
        if sidecar.operations(root):
            sweep(opened, only_forward=False)
        clear_if_free(opened)
    return opened


def reopen_graph(opened: OpenGraph) -> OpenGraph:
    """The same graph read anew, with the writes published that dead writers had completed."""
    opened.root.tables.forget()
    fresh = OpenGraph.open(opened.root, read_only=opened.read_only)
    if not fresh.read_only:
        heal(fresh)
    return fresh
