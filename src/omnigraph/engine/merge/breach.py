"""Rules that entities break after a merge, as values."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa

from omnigraph.engine.columns import ID
from omnigraph.engine.merge.conflict import ConflictKind, Mark
from omnigraph.engine.write.blobs import is_blob
from omnigraph.engine.write.checks import value_faults
from omnigraph.engine.write.target import Target


@dataclass(frozen=True, slots=True)
class Breach:
    """A rule that an entity breaks after a merge."""

    table_key: str
    entity_id: str | None
    kind: ConflictKind
    message: str

    @property
    def mark(self) -> Mark:
        """What makes it the same when it is met again."""
        return self.table_key, self.entity_id, self.kind


def value_breaches(target: Target, rows: pa.Table) -> Iterator[Breach]:
    """Values that break a rule of their property."""
    columns = {
        field.name: rows.column(field.name).combine_chunks() for field in target.schema if not is_blob(field)
    }
    for fault in value_faults(columns, target):
        entity = rows.column(ID)[fault.row].as_py()
        yield Breach(target.key, entity, ConflictKind.VALUE_CONSTRAINT_VIOLATION, fault.reason)
