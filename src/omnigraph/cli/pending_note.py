"""The note about indexes that a write left unbuilt."""

from __future__ import annotations

from omnigraph.cli.output import print_note
from omnigraph.engine.upkeep.declared_indexes import PendingIndexes, describe_pending


def print_pending(pending: PendingIndexes) -> None:
    """Note the indexes that a write left unbuilt, if there are any."""
    if pending:
        remedy = "later writes or `omnigraph optimize` build them; reads are right without"
        print_note("\n".join([*describe_pending(pending), remedy]))
