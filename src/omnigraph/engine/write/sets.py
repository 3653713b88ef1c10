"""The rules about whole changes, in their order: for mutations and for loads.

A mutation fails with the first breach. A load tells all breaches of the first stage that has any: keys and
ids, then `@unique`, then ends of edges, then `@card`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from omnigraph.engine.write.cardinality import cardinality_faults
from omnigraph.engine.write.change import Change, Changes, overwrite
from omnigraph.engine.write.checks import require_values
from omnigraph.engine.write.duplicates import Mode, conflicting_ids, repeated_keys, winners
from omnigraph.engine.write.endpoints import missing_ends, stranded_edges
from omnigraph.engine.write.faults import NO_ROW, Faults, error_of
from omnigraph.engine.write.read import LoadRows
from omnigraph.engine.write.stored import Stored
from omnigraph.engine.write.target import Target
from omnigraph.engine.write.unique import unique_faults
from omnigraph.engine.write.violations import Numbers

Stage = Callable[[Changes, Mapping[str, Target], Stored], Iterator[Faults]]


def unique_stage(changes: Changes, _: Mapping[str, Target], stored: Stored) -> Iterator[Faults]:
    """`@unique` of every changed type, nodes first."""
    for key in _nodes_first(changes):
        yield from unique_faults(changes[key], stored)


def endpoint_stage(changes: Changes, targets: Mapping[str, Target], stored: Stored) -> Iterator[Faults]:
    """Edges of the change without their nodes, and stored edges that lose one."""
    for key, target in sorted(targets.items()):
        if target.kind == "edge":
            if key in changes:
                yield from missing_ends(changes[key], changes, stored)
            yield from stranded_edges(target, changes, stored)


def cardinality_stage(changes: Changes, _: Mapping[str, Target], stored: Stored) -> Iterator[Faults]:
    """`@card` of every changed edge type."""
    for key in sorted(changes):
        if changes[key].target.kind == "edge":
            yield from cardinality_faults(changes[key], changes, stored)


STAGES: tuple[Stage, ...] = (unique_stage, endpoint_stage, cardinality_stage)


def check_mutation(changes: Changes, targets: Mapping[str, Target], stored: Stored) -> None:
    """Fail with the first rule that a mutation breaks; `targets` are all types of the graph."""
    for key in _nodes_first(changes):
        require_values(changes[key].rows, changes[key].target)
    for stage in STAGES:
        for faults in stage(changes, targets, stored):
            raise error_of(faults)


@dataclass(frozen=True, slots=True)
class LoadChecked:
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
    targets: Mapping[str, Target],
    stored: Stored,
    *,
    skip_bad: bool = False,
) -> LoadChecked:
    """The changes a load makes, or why it must not; `targets` are all types of the graph."""
    state = {key: _Kept.all_of(rows) for key, rows in load.items()}
    dropped: list[Faults] = []
    while True:
        changes, found = _first_faults(state, mode, targets, stored)
        if not found:
            return LoadChecked(changes, dropped=tuple(dropped))
        told = tuple(faults.renumbered(_numbers(state, faults)) for faults in found)
        if not skip_bad or any(faults.final for faults in found):
            return LoadChecked({}, told, tuple(dropped))
        # Without these rows stored ones may count again that others relied on to go: start over.
        dropped += told
        for faults in told:
            key = faults.target.key
            state[key] = state[key].without(faults.rows)


def _first_faults(
    state: dict[str, _Kept], mode: Mode, targets: Mapping[str, Target], stored: Stored
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


def _numbers(state: Mapping[str, _Kept], faults: Faults) -> Numbers:
    kept = state.get(faults.target.key)
    return np.full(1, NO_ROW, np.int64) if kept is None or not len(kept.numbers) else kept.numbers


@dataclass(frozen=True, slots=True)
class _Kept:
    """The rows of one type that are still part of the load."""

    load: LoadRows
    numbers: Numbers
    """Their places in the load."""

    @classmethod
    def all_of(cls, load: LoadRows) -> _Kept:
        return cls(load, np.arange(load.rows.num_rows, dtype=np.int64))

    @property
    def rows(self) -> pa.Table:
        """The rows that count."""
        if len(self.numbers) == self.load.rows.num_rows:
            return self.load.rows
        return self.load.rows.take(pa.array(self.numbers))

    def conflicts(self, mode: Mode, stored: Stored) -> Iterator[Faults]:
        target, rows, generated = self.load.target, self.rows, self.load.generated[self.numbers]
        repeated = repeated_keys(target, rows)
        if repeated is not None:
            yield repeated
        yield from conflicting_ids(target, rows, generated, mode, stored)

    def chosen(self) -> _Kept:
        """Only the last of the rows with one id; the others are out for good."""
        return _Kept(self.load, self.numbers[winners(self.rows)])

    def change(self, mode: Mode, stored: Stored) -> Change:
        if mode is Mode.OVERWRITE:
            return overwrite(self.load.target, self.rows, stored)
        return Change(self.load.target, self.rows, adds_only=mode is Mode.APPEND)

    def without(self, numbers: Numbers) -> _Kept:
        return _Kept(self.load, np.setdiff1d(self.numbers, numbers))


def _nodes_first(keyed: Mapping[str, object]) -> list[str]:
    return sorted(keyed, key=lambda key: (not key.startswith("node:"), key))
