"""Find rules that merged rows break although each branch keeps them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from omnigraph.engine.constraints.change_rules import STAGES
from omnigraph.engine.constraints.faults import NO_ROW, Faults, Rule
from omnigraph.engine.constraints.stored_rows import StoredRows
from omnigraph.engine.graph.table_types import TableType
from omnigraph.engine.merge.conflict import ConflictKey, ConflictKind
from omnigraph.engine.merge.target_change import TargetChange
from omnigraph.engine.merge.violations import RuleViolation

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
