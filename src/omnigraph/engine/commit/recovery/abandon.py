"""Abandon a record that cannot be recovered, so that its branch can be written to again."""

from __future__ import annotations

from omnigraph.engine.commit.recovery import sidecar
from omnigraph.engine.commit.recovery.forecast import RecoveryForecast, forecast_recovery
from omnigraph.engine.graph.open_graph import OpenGraph
from omnigraph.errors import Conflict, NotFound
from omnigraph.storage.locks import HeldLocks

SUFFIX = ".abandoned"
"""The suffix of an abandoned record: it is ignored, and a person can still read it."""


def abandon_record(graph: OpenGraph, operation_id: str) -> RecoveryForecast:
    """Rename the record of an operation; its changes to tables stay, and `repair` judges them.

    Refused while recovery can finish or undo the operation.
    """
    root = graph.root
    known = _found(graph, operation_id)
    # A record of an unknown branch blocks all writers, so all branches are locked.
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


def _found(graph: OpenGraph, operation_id: str, held: HeldLocks | None = None) -> RecoveryForecast:
    for one in forecast_recovery(graph, held):
        if one.operation_id == operation_id:
            return one
    raise NotFound(
        f"there is no operation '{operation_id}' on record",
        remedy="list them with `omnigraph recover --dry-run`",
    )
