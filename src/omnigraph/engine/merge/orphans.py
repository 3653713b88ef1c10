"""Decisions about edges that a merge leaves without one of their nodes.

One branch has such an edge and the node, the other has neither. So a decision for one side is one about both:
the edge stays and the node with it, or both go.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import cast

import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.engine.changes.side import Side
from omnigraph.engine.columns import ID, SOURCE, TARGET
from omnigraph.engine.layout import table_key
from omnigraph.engine.merge.change import TableChange
from omnigraph.engine.merge.choices import EntityChoice, Take
from omnigraph.engine.merge.contest import Sides
from omnigraph.engine.merge.images import rows_with
from omnigraph.engine.write.change import within
from omnigraph.engine.write.stored import Stored
from omnigraph.engine.write.target import Target
from omnigraph.lang.schema.catalog import EdgeType


def nodes_to_go_with(
    target: Target,
    choices: Sequence[EntityChoice],
    sides: Sides,
    changes: Mapping[str, TableChange],
    stored: Stored,
) -> Iterator[EntityChoice]:
    """What the decisions about orphaned edges of one type mean for nodes."""
    for take, side in ((Take.OURS, sides.target), (Take.THEIRS, sides.source)):
        ids = pa.array([one.entity_id for one in choices if (one.take or Take.THEIRS) is take], pa.string())
        for node, ends in _ends(target, side, ids):
            key = table_key("node", node)
            lost = _lost(ends, changes.get(key), key, take, stored)
            for entity in lost.to_pylist():
                yield EntityChoice(key, entity, take)


def _ends(target: Target, side: Side, ids: pa.Array) -> Iterator[tuple[str, pa.Array]]:
    if not len(ids):
        return
    edge, rows = cast(EdgeType, target.owner), rows_with(side, ids)
    for node, end in ((edge.source, SOURCE), (edge.target, TARGET)):
        yield node, pc.unique(rows.column(end))


def _lost(ends: pa.Array, change: TableChange | None, key: str, take: Take, stored: Stored) -> pa.Array:
    """The nodes that the chosen side has and that would not be there."""
    if take is Take.OURS:
        return ends.filter(pa.array(within(ends, change.deleted))) if change else ends.slice(0, 0)
    missing = ends.filter(pa.array(~within(ends, stored.existing(key, ends))))
    return missing.filter(pa.array(~within(missing, change.rows.column(ID)))) if change else missing
