"""A table that the source of a merge changed: what becomes of it, worked out in memory."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import pyarrow as pa

from omnigraph.engine.changes.equality import Mask
from omnigraph.engine.changes.pairs import Pairs
from omnigraph.engine.columns import ID
from omnigraph.engine.merge.change import TableChange, change_of
from omnigraph.engine.merge.choices import Choices, EntityChoice, Granularity
from omnigraph.engine.merge.conflict import MergeConflict
from omnigraph.engine.merge.contest import Delta, Sides, delta_of
from omnigraph.engine.merge.tell import BranchNames, row_conflicts
from omnigraph.engine.merge.verdict import Verdict, chosen_rows, decided, undecided
from omnigraph.engine.plan import Effect
from omnigraph.engine.write.target import Target


@dataclass(frozen=True, slots=True)
class Task:
    """What is asked about one table; it travels between processes."""

    target: Target
    sides: Sides
    granularity: Granularity
    choices: Choices
    branches: BranchNames


class Work(Protocol):
    """What becomes of a table."""

    @property
    def sides(self) -> Sides:
        """The table at the base and on both branches."""
        ...

    @property
    def settled(self) -> int:
        """How many entities that both branches changed were decided on."""
        ...

    def change(self) -> TableChange:
        """What happens to the target."""
        ...

    def undecided_change(self) -> TableChange:
        """What would happen without decisions."""
        ...

    def contested(self) -> set[str]:
        """The entities that the branches disagree on; all that a decision can be about."""
        ...

    def left(self) -> Iterator[MergeConflict]:
        """The contested entities that are not decided."""
        ...

    def met(self) -> Iterator[MergeConflict]:
        """All contested entities, decided or not."""
        ...

    def named(self) -> Iterator[MergeConflict]:
        """Those that decisions name."""
        ...

    def open_ids(self) -> set[str]:
        """The entities that are not decided."""
        ...

    def effect(self, change: TableChange, overruled: Mapping[str, EntityChoice] | None) -> Effect:
        """The change as a write carries it out; some of it may be what decisions about rules made it."""
        ...


@dataclass(frozen=True, slots=True)
class Worked:
    """A table, or a part of its entities, with all decisions about contested ones."""

    task: Task
    delta: Delta
    before: Verdict
    """Without decisions."""
    verdict: Verdict

    @classmethod
    def of(cls, task: Task, theirs: Pairs, ours: Pairs | None) -> Worked:
        """The row rule, and then the decisions; see `delta_of`."""
        delta = delta_of(task.sides, theirs, ours)
        before = undecided(delta.contested, task.target, task.granularity)
        return cls(task, delta, before, decided(before, task.choices))

    @property
    def sides(self) -> Sides:
        """The table at the base and on both branches."""
        return self.task.sides

    @property
    def settled(self) -> int:
        """How many entities that both branches changed were decided on."""
        return int((self.before.open & ~self.verdict.open).sum())

    def change(self) -> TableChange:
        """What happens to the target."""
        return change_of(self.task.target, self.sides, self.delta, self.verdict)

    def undecided_change(self) -> TableChange:
        """What would happen without decisions."""
        return change_of(self.task.target, self.sides, self.delta, self.before)

    def contested(self) -> set[str]:
        """The entities that the branches disagree on."""
        return _ids(self.before)

    def open_ids(self) -> set[str]:
        """The entities that are not decided."""
        return _ids(self.verdict)

    def left(self) -> Iterator[MergeConflict]:
        """The contested entities that are not decided."""
        return self.told(self.verdict.open)

    def met(self) -> Iterator[MergeConflict]:
        """All contested entities, decided or not."""
        return self.told(self.before.open)

    def named(self) -> Iterator[MergeConflict]:
        """Those that decisions name."""
        return self.told(self.are_named)

    @property
    def are_named(self) -> Mask:
        """Which of the contested entities decisions name."""
        found = np.zeros(len(self.before.presence), np.bool_)
        for _, row in chosen_rows(self.before.contested, self.task.choices.of_entities(self.task.target.key)):
            found[row] = True
        return found & self.before.open

    def told(self, wanted: Mask) -> Iterator[MergeConflict]:
        """Some contested entities as conflicts."""
        rows = np.flatnonzero(wanted)
        return row_conflicts(self.task.target.key, self.before, self.sides, rows, self.task.branches)

    def effect(self, change: TableChange, overruled: Mapping[str, EntityChoice] | None) -> Effect:
        """The change as a write carries it out."""
        return change.effect()


def _ids(verdict: Verdict) -> set[str]:
    return set(verdict.contested.places.filter(pa.array(verdict.open)).column(ID).to_pylist())
