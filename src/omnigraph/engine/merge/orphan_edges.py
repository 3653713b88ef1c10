"""Choices about orphan edges, which a merge leaves without one of their nodes.

One branch has the edge and the node, the other has neither. So a choice of one side applies to both: edge and
node stay, or both are deleted.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import cast

import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.engine.changes.table_side import TableSide
from omnigraph.engine.constraints.stored_rows import StoredRows
from omnigraph.engine.constraints.table_change import is_among
from omnigraph.engine.graph.columns import ID, SOURCE, TARGET
from omnigraph.engine.graph.layout import table_key
from omnigraph.engine.graph.table_types import TableType
from omnigraph.engine.merge.choices import EntityChoice, MergeSide
from omnigraph.engine.merge.conflict_images import read_rows_by_id
from omnigraph.engine.merge.row_rule import MergeSides
from omnigraph.engine.merge.target_change import TargetChange
from omnigraph.lang.schema.catalog import EdgeType


def choices_for_nodes(
    target: TableType,
    choices: Sequence[EntityChoice],
    sides: MergeSides,
    changes: Mapping[str, TargetChange],
    stored: StoredRows,
) -> Iterator[EntityChoice]:
    """Yield the choices for nodes that follow from choices about orphan edges of one type."""
    for take, side in ((MergeSide.OURS, sides.target), (MergeSide.THEIRS, sides.source)):
        ids = pa.array(
            [one.entity_id for one in choices if (one.take or MergeSide.THEIRS) is take], pa.string()
        )
        for node, ends in _edge_ends(target, side, ids):
            key = table_key("node", node)
            lost = _missing_nodes(ends, changes.get(key), key, take, stored)
            for entity in lost.to_pylist():
                yield EntityChoice(key, entity, take)


def _edge_ends(target: TableType, side: TableSide, ids: pa.Array) -> Iterator[tuple[str, pa.Array]]:
    if not len(ids):
        return
    edge, rows = cast(EdgeType, target.owner), read_rows_by_id(side, ids)
    for node, end in ((edge.source, SOURCE), (edge.target, TARGET)):
        yield node, pc.unique(rows.column(end))


def _missing_nodes(
    ends: pa.Array, change: TargetChange | None, key: str, take: MergeSide, stored: StoredRows
) -> pa.Array:
    """Return the nodes that the chosen side has and the merge would lack."""
    if take is MergeSide.OURS:
        return ends.filter(pa.array(is_among(ends, change.deleted))) if change else ends.slice(0, 0)
    missing = ends.filter(pa.array(~is_among(ends, stored.existing(key, ends))))
    return missing.filter(pa.array(~is_among(missing, change.rows.column(ID)))) if change else missing
