"""Merge one table that the source changed, in memory."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import field
from typing import Any, Protocol

import numpy as np
import pyarrow as pa

from omnigraph.deferred_dataclass import dataclass
from omnigraph.engine.changes.change import ChangeCounts
from omnigraph.engine.changes.equality import Mask
from omnigraph.engine.changes.row_pairs import RowPairs
from omnigraph.engine.commit.plan import Effect
from omnigraph.engine.graph.table_types import ID, TableType
from omnigraph.engine.merge.cell_decisions import (
    CellDecisions,
    apply_choices,
    decide_by_granularity,
    match_choices,
)
from omnigraph.engine.merge.choices import EntityChoice, MergeChoices, MergeGranularity
from omnigraph.engine.merge.conflict import MAX_GIVEN_UP, GivenUpSummary, MergeConflict
from omnigraph.engine.merge.conflict_builder import BranchNames, build_given_up, build_row_conflicts
from omnigraph.engine.merge.row_rule import MergeSides, SourceDelta, apply_row_rule
from omnigraph.engine.merge.target_change import TargetChange, build_target_change


@dataclass(frozen=True, slots=True)
class MergeTask:
    """The input of the merge of one table; it is pickled."""

    target: TableType
    sides: MergeSides
    granularity: MergeGranularity
    choices: MergeChoices
    branches: BranchNames


@dataclass(frozen=True, slots=True)
class BranchChanges:
    """How many entities of a type each branch changed since their histories parted."""

    source: ChangeCounts = field(default_factory=ChangeCounts)
    target: ChangeCounts = field(default_factory=ChangeCounts)

    def __add__(self, other: BranchChanges) -> BranchChanges:
        """Return the sums of two parts of a type."""
        return BranchChanges(_sum(self.source, other.source), _sum(self.target, other.target))

    def to_json(self) -> dict[str, Any]:
        """Return both counts as JSON."""
        return {"source": self.source.to_json(), "target": self.target.to_json()}


def _sum(one: ChangeCounts, other: ChangeCounts) -> ChangeCounts:
    return ChangeCounts(
        one.inserted + other.inserted, one.updated + other.updated, one.deleted + other.deleted
    )


class TableMerge(Protocol):
    """The merge of one table."""

    @property
    def sides(self) -> MergeSides:
        """The table at the base and on both branches."""
        ...

    @property
    def resolved_count(self) -> int:
        """How many entities that both branches changed were decided on."""
        ...

    @property
    def by_branch(self) -> BranchChanges:
        """How many entities each branch changed."""
        ...

    def change(self) -> TargetChange:
        """Return the change to the target."""
        ...

    def undecided_change(self) -> TargetChange:
        """Return the change without choices."""
        ...

    def contested_ids(self) -> set[str]:
        """Return the ids that the branches disagree on, as far as a choice can be about them."""
        ...

    def open_conflicts(self) -> Iterator[MergeConflict]:
        """The contested entities that are not decided."""
        ...

    def all_conflicts(self) -> Iterator[MergeConflict]:
        """All contested entities, decided or not."""
        ...

    def named_conflicts(self) -> Iterator[MergeConflict]:
        """Yield the conflicts that choices name."""
        ...

    def open_ids(self) -> set[str]:
        """The entities that are not decided."""
        ...

    def given_up(self) -> GivenUpSummary:
        """What decisions about whole entities dropped although only one branch had changed it."""
        ...

    def effect(self, change: TargetChange, overruled: Mapping[str, EntityChoice] | None) -> Effect:
        """Return the effect of a commit; `overruled` are the choices that changed it afterwards."""
        ...


@dataclass(frozen=True, slots=True)
class InMemoryMerge:
    """A table, or a part of its entities, with all decisions about contested ones."""

    task: MergeTask
    delta: SourceDelta
    undecided: CellDecisions
    """The decisions before choices are applied."""
    decisions: CellDecisions
    by_branch: BranchChanges
    """How many entities each branch changed."""

    @classmethod
    def of(cls, task: MergeTask, theirs: RowPairs, ours: RowPairs | None) -> InMemoryMerge:
        """Apply the row rule, then the choices; see `apply_row_rule`."""
        delta = apply_row_rule(task.sides, theirs, ours)
        before = decide_by_granularity(delta.contested, task.target, task.granularity)
        changes = BranchChanges(theirs.stat, ChangeCounts() if ours is None else ours.stat)
        return cls(task, delta, before, apply_choices(before, task.choices), changes)

    @property
    def sides(self) -> MergeSides:
        """The table at the base and on both branches."""
        return self.task.sides

    @property
    def resolved_count(self) -> int:
        """How many entities that both branches changed were decided on."""
        return int((self.undecided.open & ~self.decisions.open).sum())

    def change(self) -> TargetChange:
        """Return the change to the target."""
        return build_target_change(self.task.target, self.sides, self.delta, self.decisions)

    def undecided_change(self) -> TargetChange:
        """Return the change without choices."""
        return build_target_change(self.task.target, self.sides, self.delta, self.undecided)

    def contested_ids(self) -> set[str]:
        """The entities that the branches disagree on."""
        return _open_ids(self.undecided)

    def open_ids(self) -> set[str]:
        """The entities that are not decided."""
        return _open_ids(self.decisions)

    def open_conflicts(self) -> Iterator[MergeConflict]:
        """The contested entities that are not decided."""
        return self.build_conflicts(self.decisions.open)

    def all_conflicts(self) -> Iterator[MergeConflict]:
        """All contested entities, decided or not."""
        return self.build_conflicts(self.undecided.open)

    def named_conflicts(self) -> Iterator[MergeConflict]:
        """Yield the conflicts that choices name."""
        return self.build_conflicts(self.is_named_mask)

    def given_up(self) -> GivenUpSummary:
        """What decisions about whole entities dropped although only one branch had changed it."""
        theirs, ours = self.decisions.find_given_up(self.undecided)
        rows = np.flatnonzero((theirs | ours).any(axis=1))
        wanted = np.zeros(len(theirs), np.bool_)
        wanted[rows[:MAX_GIVEN_UP]] = True
        names = np.array(self.undecided.contested.columns)
        first = (
            build_given_up(found, names[theirs[row]].tolist(), names[ours[row]].tolist())
            for found, row in zip(self.build_conflicts(wanted), rows[:MAX_GIVEN_UP].tolist(), strict=True)
        )
        return GivenUpSummary(len(rows), tuple(first))

    @property
    def is_named_mask(self) -> Mask:
        """Which contested entities are named by choices."""
        found = np.zeros(len(self.undecided.presence), np.bool_)
        for _, row in match_choices(
            self.undecided.contested, self.task.choices.of_entities(self.task.target.key)
        ):
            found[row] = True
        return found & self.undecided.open

    def build_conflicts(self, wanted: Mask) -> Iterator[MergeConflict]:
        """Yield some contested entities as conflicts."""
        rows = np.flatnonzero(wanted)
        return build_row_conflicts(self.task.target.key, self.undecided, self.sides, rows, self.task.branches)

    def effect(self, change: TargetChange, overruled: Mapping[str, EntityChoice] | None) -> Effect:
        """Return the effect of a commit."""
        return change.effect()


def _open_ids(decisions: CellDecisions) -> set[str]:
    return set(decisions.contested.places.filter(pa.array(decisions.open)).column(ID).to_pylist())
