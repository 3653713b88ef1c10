"""The rules that a merge breaks although each of its branches keeps them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from omnigraph.engine.merge.breach import Breach
from omnigraph.engine.merge.change import TableChange
from omnigraph.engine.merge.conflict import ConflictKind, Mark
from omnigraph.engine.write.faults import NO_ROW, Faults, Rule
from omnigraph.engine.write.sets import STAGES
from omnigraph.engine.write.stored import Stored
from omnigraph.engine.write.target import Target

_KINDS: Mapping[Rule, ConflictKind] = {
    "unique": ConflictKind.UNIQUE_VIOLATION,
    "endpoint": ConflictKind.ORPHAN_EDGE,
    "cardinality": ConflictKind.CARDINALITY_VIOLATION,
}


def breaches(
    changes: Mapping[str, TableChange], targets: Mapping[str, Target], stored: Stored
) -> list[Breach]:
    """Everything that is wrong with the target after these changes, once for each entity and kind."""
    found: dict[tuple[Mark, str], Breach] = {}
    for breach in _every(changes, targets, stored):
        # What is about no single entity is told one by one.
        known = (breach.mark, "" if breach.entity_id is not None else breach.message)
        before = found.get(known)
        found[known] = breach if before is None else _together(before, breach)
    return list(found.values())


def _together(one: Breach, other: Breach) -> Breach:
    return Breach(one.table_key, one.entity_id, one.kind, f"{one.message}; {other.message}")


def _every(
    changes: Mapping[str, TableChange], targets: Mapping[str, Target], stored: Stored
) -> Iterator[Breach]:
    for key in sorted(changes):
        yield from changes[key].broken_values()
    checked = {key: one.checked() for key, one in changes.items()}
    for stage in STAGES:
        for faults in stage(checked, targets, stored):
            yield from _of_rows(faults)


def _of_rows(faults: Faults) -> Iterator[Breach]:
    kind, target = _KINDS[faults.rule], faults.target
    ids, reasons = faults.ids.to_pylist(), faults.reasons.to_pylist()
    for row, entity, reason in zip(faults.rows.tolist(), ids, reasons, strict=True):
        if faults.rule == "endpoint":
            yield Breach(target.key, entity, kind, f"edge {target.name} '{entity}': {reason}")
        elif faults.rule == "cardinality" and row == NO_ROW:
            # Told of the node that has too many edges or too few, which is no entity of this table.
            yield Breach(target.key, None, kind, reason)
        else:
            yield Breach(target.key, entity, kind, reason)
