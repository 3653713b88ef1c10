"""Opening a graph for use: what dead writers left behind is dealt with first."""

from __future__ import annotations

from omnigraph.engine.opened import OpenGraph
from omnigraph.engine.recovery import sidecar
from omnigraph.engine.recovery.sweep import Report, heal, sweep
from omnigraph.engine.root import Root
from omnigraph.engine.schema_apply.lock import clear_if_free
from omnigraph.errors import SchemaContractBroken


def open_graph(root: Root, *, read_only: bool = False) -> OpenGraph:
    """Open a graph; read-write finishes or undoes every interrupted write whose branch is free."""
    if read_only:
        return OpenGraph.open(root, read_only=True)
    opened, whole = _reached(root, read_only=False)
    recover_all(opened)
    if not whole:
        opened.schema()
    return opened


def unsettled_graph(root: Root, *, read_only: bool = False) -> OpenGraph:
    """A graph with whatever dead writers left, for those who look at that or deal with it."""
    return _reached(root, read_only=read_only)[0]


def _reached(root: Root, *, read_only: bool) -> tuple[OpenGraph, bool]:
    """The graph, and whether its schema is whole."""
    try:
        return OpenGraph.open(root, read_only=read_only), True
    except SchemaContractBroken:
        if not sidecar.operations(root):
            raise
        # A change of the schema died while its files were put in place: only its record can tell the rest.
        return OpenGraph(root, read_only=read_only), False


def recover_all(opened: OpenGraph) -> list[Report]:
    """Finish or undo every interrupted write whose branch is free, and let go what a schema change held."""
    reports = sweep(opened, only_forward=False) if sidecar.operations(opened.root) else []
    clear_if_free(opened)
    return reports


def reopen_graph(opened: OpenGraph) -> OpenGraph:
    """The same graph read anew, with the writes published that dead writers had completed."""
    opened.root.tables.forget()
    fresh = OpenGraph.open(opened.root, read_only=opened.read_only)
    if not fresh.read_only:
        heal(fresh)
    return fresh
