"""Find rules that merged rows break although each branch keeps them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import cast

import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.engine.changes.table_side import TableSide
from omnigraph.engine.constraints.change_rules import STAGES
from omnigraph.engine.constraints.faults import NO_ROW, Faults, Rule
from omnigraph.engine.constraints.stored_rows import StoredRows
from omnigraph.engine.constraints.table_change import is_among
from omnigraph.engine.graph.layout import table_key
from omnigraph.engine.graph.table_types import ID, SOURCE, TARGET, TableType
from omnigraph.engine.merge.choices import EntityChoice, MergeSide
from omnigraph.engine.merge.conflict import ConflictKey, ConflictKind, RuleViolation
from omnigraph.engine.merge.patched_side import read_rows_by_id
from omnigraph.engine.merge.row_rule import MergeSides
from omnigraph.engine.merge.target_change import TargetChange
from omnigraph.lang.schema.catalog import EdgeType

_KINDS: Mapping[Rule, ConflictKind] = {
    "unique": ConflictKind.UNIQUE_VIOLATION,
    "endpoint": ConflictKind.ORPHAN_EDGE,
    "cardinality": ConflictKind.CARDINALITY_VIOLATION,
}


def find_violations(
    changes: Mapping[str, TargetChange], targets: Mapping[str, TableType], stored: StoredRows
) -> list[RuleViolation]:
    """Return the violations in the target after these changes, one for each entity and kind."""
    found: dict[tuple[ConflictKey, str], RuleViolation] = {}
    for violation in _iter_violations(changes, targets, stored):
        # Violations without an entity are reported one by one.
        known = (violation.mark, "" if violation.entity_id is not None else violation.message)
        before = found.get(known)
        found[known] = violation if before is None else _join_messages(before, violation)
    return list(found.values())


def _join_messages(one: RuleViolation, other: RuleViolation) -> RuleViolation:
    return RuleViolation(one.table_key, one.entity_id, one.kind, f"{one.message}; {other.message}")


def _iter_violations(
    changes: Mapping[str, TargetChange], targets: Mapping[str, TableType], stored: StoredRows
) -> Iterator[RuleViolation]:
    for key in sorted(changes):
        yield from changes[key].value_violations()
    checked = {key: one.as_constraint_change() for key, one in changes.items()}
    for stage in STAGES:
        for faults in stage(checked, targets, stored):
            yield from _from_faults(faults)


def _from_faults(faults: Faults) -> Iterator[RuleViolation]:
    kind, target = _KINDS[faults.rule], faults.target
    ids, reasons = faults.ids.to_pylist(), faults.reasons.to_pylist()
    for row, entity, reason in zip(faults.rows.tolist(), ids, reasons, strict=True):
        if faults.rule == "endpoint":
            yield RuleViolation(target.key, entity, kind, f"edge {target.name} '{entity}': {reason}")
        elif faults.rule == "cardinality" and row == NO_ROW:
            # About the node with too many or too few edges, which is not an entity of this table.
            yield RuleViolation(target.key, None, kind, reason)
        else:
            yield RuleViolation(target.key, entity, kind, reason)


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
