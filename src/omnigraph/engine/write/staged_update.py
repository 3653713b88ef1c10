"""Updates of more rows than a mutation holds in memory: the new rows wait in pieces until the commit.

An update sets the same values in all rows that match. So single values are checked once, ends of edges stay
where they are, and only rules of `@unique` with a property that is assigned need the rows themselves.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from omnigraph.engine.constraints.duplicates import find_shared_values
from omnigraph.engine.constraints.faults import to_error
from omnigraph.engine.constraints.stored_rows import StoredRows
from omnigraph.engine.constraints.table_change import TableChange
from omnigraph.engine.graph.table_types import ID, TableType
from omnigraph.engine.rows.blobs import is_blob, to_writable
from omnigraph.engine.rows.value_checks import require_values
from omnigraph.engine.write.pending_rows import Values, assign_values, repeat_value
from omnigraph.lang.schema.catalog import UniqueRule
from omnigraph.storage.location import Location
from omnigraph.storage.pieces import Pieces, write_pieces
from omnigraph.storage.tables import Table

_ROWS_AT_ONCE, _BLOBS_AT_ONCE = 8192, 256


def stage_update(
    table: Table, target: TableType, where: str, values: Values, place: Location, stored: StoredRows
) -> Pieces:
    """Write the rows that match, with some properties set to the same value in all of them."""
    kept = [name for name in target.schema.names if name not in values]
    schema = pa.schema([target.schema.field(name) for name in kept])

    def assign(rows: pa.Table) -> pa.Table:
        return assign_values(to_writable(rows, schema), target, values)

    # Before anything is written: what fails while Lance asks for rows is reported as its failure.
    require_values(assign(table.scan(kept, where=where, limit=1, blob_bytes=True)), target)
    _require_unique(table, target, where, values, stored)
    size = _BLOBS_AT_ONCE if any(map(is_blob, schema)) else _ROWS_AT_ONCE
    found = table.batches(kept, where=where, batch_size=size, blob_bytes=True)
    batches = (
        batch
        for rows in found
        for batch in assign(pa.Table.from_batches([rows])).combine_chunks().to_batches()
    )
    rows = pa.RecordBatchReader.from_batches(target.schema, batches)
    return Pieces(place, target.schema, write_pieces(table.access, place, rows))


def _require_unique(table: Table, target: TableType, where: str, values: Values, stored: StoredRows) -> None:
    """Fail when rows that match would have the same values as another row; many rows match."""
    for rule in target.owner.uniques:
        assigned = [name for name in rule.columns if name in values]
        if not assigned or any(values[name] is None for name in assigned):
            continue
        rows = _read_rule_columns(table, target, where, values, rule)
        faults = find_shared_values(TableChange(target, rows), stored, rule)
        if faults is not None:
            raise to_error(faults)


def _read_rule_columns(
    table: Table, target: TableType, where: str, values: Values, rule: UniqueRule
) -> pa.Table:
    """The ids and the new values of a rule; where all are the same, two rows show it."""
    read: Sequence[str] = [ID, *(name for name in rule.columns if name not in values)]
    rows = table.scan(read, where=where, limit=2 if len(read) == 1 else None)
    for name in rule.columns:
        if name in values:
            column = repeat_value(target, name, values[name], rows.num_rows)
            rows = rows.append_column(target.schema.field(name), column)
    return rows
