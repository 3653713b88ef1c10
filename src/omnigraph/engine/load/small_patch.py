"""A patch whose rows fit into memory, as whole rows that are checked like any other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.deferred_dataclass import dataclass
from omnigraph.engine.constraints.duplicates import find_patch_faults
from omnigraph.engine.constraints.faults import Faults
from omnigraph.engine.constraints.table_change import Changes
from omnigraph.engine.graph.table_types import ID
from omnigraph.engine.load.stored_remainder import complete_rows, find_row_ids
from omnigraph.engine.rows.row_builder import LoadRows
from omnigraph.engine.rows.violations import Numbers
from omnigraph.engine.write.transaction import Transaction


@dataclass(frozen=True, slots=True)
class CompletedPatch:
    """The rows of a patch, with what they omit from one state of the branch."""

    rows: Mapping[str, LoadRows]
    row_ids: Mapping[str, pa.Array]
    """The row id of the stored row that each row is about, by table."""
    faults: tuple[Faults, ...]
    """Rows that are about no stored row, or about the same one as an earlier row."""

    @property
    def excluded(self) -> dict[str, Numbers]:
        """The places of the rows that cannot count, by table."""
        found: dict[str, Numbers] = {}
        for faults in self.faults:
            key = faults.target.key
            found[key] = np.union1d(found.get(key, np.zeros(0, np.int64)), faults.rows)
        return found

    def replaced_rows(self, key: str, changes: Changes) -> pa.Array:
        """Return the row ids that the rows of a change replace."""
        ids = self.rows[key].rows.column(ID).combine_chunks()
        places = pc.index_in(changes[key].ids.combine_chunks(), value_set=ids)
        return self.row_ids[key].take(places)


def complete_patch(load: Mapping[str, LoadRows], transaction: Transaction) -> CompletedPatch:
    """Return the rows of a patch as whole rows; nodes first, as the faults are reported."""
    rows, row_ids = {}, {}
    faults: list[Faults] = []
    for key in _nodes_first(load):
        own = load[key]
        table, ids = transaction.table(key), own.rows.column(ID)
        row_ids[key] = found = find_row_ids(table, ids)
        faults += find_patch_faults(own.target, own.rows, ids.filter(found.is_valid()))
        rows[key] = replace(own, rows=complete_rows(table, own.rows, found, own.target))
    return CompletedPatch(rows, row_ids, tuple(faults))


def _nodes_first(load: Mapping[str, LoadRows]) -> Sequence[str]:
    return sorted(load, key=lambda key: (not key.startswith("node:"), key))
