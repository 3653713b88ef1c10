"""Giving up a record that recovery cannot deal with, so that its branch can be written to again."""

from __future__ import annotations

from omnigraph.engine.opened import OpenGraph
from omnigraph.engine.recovery import sidecar
from omnigraph.engine.recovery.prospects import Prospect, prospects
from omnigraph.errors import Conflict, NotFound
from omnigraph.storage.locks import Held

SUFFIX = ".abandoned"
"""What a record is called then: nobody takes it for one any more, and a person can still read it."""


def abandon(graph: OpenGraph, operation_id: str) -> Prospect:
    """Put the record of an operation aside; what it did to tables stays, and `repair` judges it.

    Refused while recovery can finish or undo the operation: nothing else may decide how it ends.
    """
    root = graph.root
    known = _found(graph, operation_id)
    # A record that does not say whom it concerns keeps everybody from writing, so all must stand still.
    with root.locks.hold([known.branch] if known.branch else graph.branch_names()) as held:
        found = _found(graph, operation_id, held)
        if not found.stuck:
            raise Conflict(
                f"operation '{operation_id}' can be recovered: `omnigraph recover` would {found.would}",
                remedy="run that, or simply write to the branch",
            )
        held.require()
        place = sidecar.place(root, operation_id)
        root.objects.rename_text(place, root.layout.recovery / f"{operation_id}{SUFFIX}")
    return found


def _found(graph: OpenGraph, operation_id: str, held: Held | None = None) -> Prospect:
    for one in prospects(graph, held):
        if one.operation_id == operation_id:
            return one
    raise NotFound(
        f"there is no operation '{operation_id}' on record",
        remedy="list them with `omnigraph recover --dry-run`",
    )
