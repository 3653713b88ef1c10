"""Rules that entities break after a merge, as values."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa

from omnigraph.engine.graph.columns import ID
from omnigraph.engine.graph.table_types import TableType
from omnigraph.engine.merge.conflict import ConflictKey, ConflictKind
from omnigraph.engine.rows.blobs import is_blob
from omnigraph.engine.rows.value_checks import find_value_faults


@dataclass(frozen=True, slots=True)
class RuleViolation:
    """A rule that an entity breaks after a merge."""

    table_key: str
    entity_id: str | None
    kind: ConflictKind
    message: str

    @property
    def mark(self) -> ConflictKey:
        """Identifies the violation when it is found again."""
        return self.table_key, self.entity_id, self.kind


def find_value_violations(target: TableType, rows: pa.Table) -> Iterator[RuleViolation]:
    """Yield values that break a rule of their property."""
    columns = {
        field.name: rows.column(field.name).combine_chunks() for field in target.schema if not is_blob(field)
    }
    for fault in find_value_faults(columns, target):
        entity = rows.column(ID)[fault.row].as_py()
        yield RuleViolation(target.key, entity, ConflictKind.VALUE_CONSTRAINT_VIOLATION, fault.reason)
