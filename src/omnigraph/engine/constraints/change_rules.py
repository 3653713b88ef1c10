"""The rules about whole changes, in their order: for mutations and for loads.

A mutation fails with the first breach. A load reports all breaches of the first stage that has any: keys and
ids, then `@unique`, then ends of edges, then `@card`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np
import pyarrow as pa

from omnigraph.deferred_dataclass import dataclass
from omnigraph.engine.constraints.duplicates import (
    Mode,
    find_conflicting_ids,
    find_repeated_keys,
    find_unique_faults,
    keep_last_per_id,
)
from omnigraph.engine.constraints.edge_rules import (
    find_cardinality_faults,
    find_dangling_edges,
    find_missing_ends,
)
from omnigraph.engine.constraints.faults import NO_ROW, Faults, to_error
from omnigraph.engine.constraints.stored_rows import StoredRows
from omnigraph.engine.constraints.table_change import Changes, TableChange, replace_all_rows
from omnigraph.engine.graph.table_types import TableType
from omnigraph.engine.rows.row_builder import LoadRows
from omnigraph.engine.rows.value_checks import require_values
from omnigraph.engine.rows.violations import Numbers

Stage = Callable[[Changes, Mapping[str, TableType], StoredRows], Iterator[Faults]]


def check_unique(changes: Changes, _: Mapping[str, TableType], stored: StoredRows) -> Iterator[Faults]:
    """`@unique` of every changed type, nodes first."""
    for key in _nodes_first(changes):
        yield from find_unique_faults(changes[key], stored)


def check_endpoints(
    changes: Changes, targets: Mapping[str, TableType], stored: StoredRows
) -> Iterator[Faults]:
    """Edges of the change without their nodes, and stored edges that lose one."""
    for key, target in sorted(targets.items()):
        if target.kind == "edge":
            if key in changes:
                yield from find_missing_ends(changes[key], changes, stored)
            yield from find_dangling_edges(target, changes, stored)


def check_cardinality(changes: Changes, _: Mapping[str, TableType], stored: StoredRows) -> Iterator[Faults]:
    """`@card` of every changed edge type."""
    for key in sorted(changes):
        if changes[key].target.kind == "edge":
            yield from find_cardinality_faults(changes[key], changes, stored)


STAGES: tuple[Stage, ...] = (check_unique, check_endpoints, check_cardinality)


def check_mutation(changes: Changes, targets: Mapping[str, TableType], stored: StoredRows) -> None:
    """Fail with the first rule that a mutation breaks; `targets` are all types of the graph."""
    for key in _nodes_first(changes):
        require_values(changes[key].rows, changes[key].target)
    for stage in STAGES:
        for faults in stage(changes, targets, stored):
            raise to_error(faults)


@dataclass(frozen=True, slots=True)
class LoadCheckResult:
    """The outcome of a load's checks."""

    changes: Changes
    """What to write, when there are no faults."""
    faults: tuple[Faults, ...] = ()
    """All breaches of the first stage that has any; rows are those of the load."""
    dropped: tuple[Faults, ...] = ()
    """Breaches whose rows were left out on request."""


def check_load(
    load: Mapping[str, LoadRows],
    mode: Mode,
    targets: Mapping[str, TableType],
    stored: StoredRows,
    *,
    skip_bad: bool = False,
    excluded: Mapping[str, Numbers] | None = None,
) -> LoadCheckResult:
    """The changes a load makes, or why it must not; `targets` are all types of the graph.

    `excluded` are the places of rows, by table, that do not count.
    """
    state = {key: _RemainingRows.all_of(rows) for key, rows in load.items()}
    for key, rows in (excluded or {}).items():
        state[key] = state[key].without(rows)
    dropped: list[Faults] = []
    while True:
        changes, found = _first_faults(state, mode, targets, stored)
        if not found:
            return LoadCheckResult(changes, dropped=tuple(dropped))
        reported = tuple(faults.renumbered(_row_numbers(state, faults)) for faults in found)
        if not skip_bad or any(faults.final for faults in found):
            return LoadCheckResult({}, reported, tuple(dropped))
        # Without these rows stored ones may count again that others relied on to go: start over.
        dropped += reported
        for faults in reported:
            key = faults.target.key
            state[key] = state[key].without(faults.rows)


def _first_faults(
    state: dict[str, _RemainingRows], mode: Mode, targets: Mapping[str, TableType], stored: StoredRows
) -> tuple[Changes, Sequence[Faults]]:
    """The changes and the breaches of the first stage that has any."""
    found = [faults for key in _nodes_first(state) for faults in state[key].conflicts(mode, stored)]
    if found:
        return {}, found
    if mode is Mode.MERGE:
        state.update({key: kept.chosen() for key, kept in state.items() if not kept.load.target.identity})
    changes = {key: kept.change(mode, stored) for key, kept in state.items()}
    for stage in STAGES:
        found = list(stage(changes, targets, stored))
        if found:
            return changes, found
    return changes, []


def _row_numbers(state: Mapping[str, _RemainingRows], faults: Faults) -> Numbers:
    kept = state.get(faults.target.key)
    return np.full(1, NO_ROW, np.int64) if kept is None or not len(kept.numbers) else kept.numbers


@dataclass(frozen=True, slots=True)
class _RemainingRows:
    """The rows of one type that are still part of the load."""

    load: LoadRows
    numbers: Numbers
    """Their places in the load."""

    @classmethod
    def all_of(cls, load: LoadRows) -> _RemainingRows:
        return cls(load, np.arange(load.rows.num_rows, dtype=np.int64))

    @property
    def rows(self) -> pa.Table:
        """The rows that count."""
        if len(self.numbers) == self.load.rows.num_rows:
            return self.load.rows
        return self.load.rows.take(pa.array(self.numbers))

    def conflicts(self, mode: Mode, stored: StoredRows) -> Iterator[Faults]:
        target, rows, generated = self.load.target, self.rows, self.load.generated[self.numbers]
        repeated = find_repeated_keys(target, rows)
        if repeated is not None:
            yield repeated
        yield from find_conflicting_ids(target, rows, generated, mode, stored)

    def chosen(self) -> _RemainingRows:
        """Only the last of the rows with one id; the others are out for good."""
        return _RemainingRows(self.load, self.numbers[keep_last_per_id(self.rows)])

    def change(self, mode: Mode, stored: StoredRows) -> TableChange:
        if mode is Mode.OVERWRITE:
            return replace_all_rows(self.load.target, self.rows, stored)
        return TableChange(self.load.target, self.rows, adds_only=mode is Mode.APPEND)

    def without(self, numbers: Numbers) -> _RemainingRows:
        return _RemainingRows(self.load, np.setdiff1d(self.numbers, numbers))


def _nodes_first(keyed: Mapping[str, object]) -> list[str]:
    return sorted(keyed, key=lambda key: (not key.startswith("node:"), key))
