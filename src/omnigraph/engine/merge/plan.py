"""A merge worked out on one state of the target: what it changes, and what stands in its way."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache

import numpy as np
import pyarrow as pa

from omnigraph.engine.changes.change import Stat
from omnigraph.engine.changes.diff import table_order
from omnigraph.engine.changes.equality import Mask
from omnigraph.engine.changes.pairs import pairs_of
from omnigraph.engine.changes.side import Side
from omnigraph.engine.columns import ID
from omnigraph.engine.coordinator import lance_branch
from omnigraph.engine.merge.change import TableChange, change_of, overruled
from omnigraph.engine.merge.choices import Choices, EntityChoice, Granularity
from omnigraph.engine.merge.conflict import ConflictKind, Mark, MergeConflict
from omnigraph.engine.merge.contest import Delta, Sides, delta_of
from omnigraph.engine.merge.freshness import Freshness
from omnigraph.engine.merge.history import MergeOutcome, Parting
from omnigraph.engine.merge.orphans import nodes_to_go_with
from omnigraph.engine.merge.rules import Breach, breaches
from omnigraph.engine.merge.standing import Way, untouched, way_of
from omnigraph.engine.merge.tell import Branches, row_conflicts, rule_conflicts
from omnigraph.engine.merge.verdict import Verdict, chosen_rows, decided, outcome_of, undecided
from omnigraph.engine.plan import Adopt, Effect
from omnigraph.engine.snapshot import Snapshot
from omnigraph.engine.write.stored import StoredTables
from omnigraph.engine.write.target import Target
from omnigraph.engine.write.transaction import Transaction
from omnigraph.errors import Conflict


@dataclass(frozen=True, slots=True)
class MergePlan:
    """What a merge comes to."""

    outcome: MergeOutcome
    effects: Mapping[str, Effect]
    stats: Mapping[str, Stat]
    """How many entities come, change and go, by table."""
    conflicts: tuple[MergeConflict, ...] = ()
    """What is not decided."""
    settled: int = 0
    """How many entities that both branches changed were decided on."""
    met: tuple[MergeConflict, ...] = ()
    """With a preview: every conflict, decided or not."""


@dataclass(frozen=True, slots=True)
class _Work:
    """A table that the source changed."""

    target: Target
    sides: Sides
    way: Way
    delta: Delta
    before: Verdict
    """Without decisions."""
    verdict: Verdict


@dataclass(slots=True)
class _Settled:
    """Changes that all decisions were applied to, and the rules that they break."""

    changes: dict[str, TableChange]
    overruled: dict[str, dict[str, EntityChoice]] = field(default_factory=dict)
    left: list[Breach] = field(default_factory=list)
    seen: dict[tuple[Mark, str], Breach] = field(default_factory=dict)
    """Everything that was broken on the way, by what it is and how it was told."""


class Merging:
    """One merge on one state of the target."""

    def __init__(
        self, transaction: Transaction, parting: Parting, choices: Choices, granularity: Granularity
    ) -> None:
        self._transaction = transaction
        self._graph = transaction.graph
        self._parting = parting
        self._choices = choices
        self._granularity = granularity
        self._branches = Branches(parting.source.branch, parting.target.branch)
        self._stored = StoredTables(cache(transaction.table), transaction.targets)
        self._sides: dict[str, Sides] = {}
        self._contested: dict[str, set[str]] = {}
        """The entities that the branches disagree on, by table."""

    def plan(self, *, preview: bool = False) -> MergePlan:
        """What the merge does; `preview` also tells the conflicts that were decided."""
        if self._parting.outcome is MergeOutcome.ALREADY_UP_TO_DATE:
            return MergePlan(self._parting.outcome, {}, {})
        works = self._works()
        self._contested = {key: _ids(one.before) for key, one in works.items()}
        settled = self._settled({key: _changes(one, one.verdict) for key, one in works.items()})
        self._refuse_stale(works, settled)
        changes = {key: one for key, one in settled.changes.items() if not one.is_nothing}
        left = self._rules(settled.left)
        met = self._met(works, settled, left) if preview else ()
        rows = self._still_open(met, works) if preview else self._open(works)
        return MergePlan(
            self._parting.outcome,
            {key: self._effect(key, one, works, settled) for key, one in changes.items()},
            {key: changes[key].stat for key in sorted(changes, key=table_order)},
            _sorted([*rows, *left]),
            sum(int((one.before.open & ~one.verdict.open).sum()) for one in works.values()),
            met,
        )

    # --- tables ----------------------------------------------------------------------------------

    def _works(self) -> dict[str, _Work]:
        at = self._parting
        if not at.base.entries.keys() == at.source.entries.keys() == at.target.entries.keys():
            raise Conflict(
                f"'{at.source.branch}' and '{at.target.branch}' have different types",
                remedy="a schema change lies between them; make the branch anew and repeat its changes",
            )
        found = ((key, self._work(key)) for key in sorted(at.source.entries, key=table_order))
        return {key: work for key, work in found if work is not None}

    def _work(self, key: str) -> _Work | None:
        at = self._parting
        base, source, target = (one.entries[key] for one in (at.base, at.source, at.target))
        way = way_of(base, source, target, lance_branch(at.target.branch))
        if way is Way.NOTHING:
            return None
        sides = self._sides_of(key)
        theirs = pairs_of(sides.base, sides.source)
        if not theirs.table.num_rows:
            return None
        ours = None if untouched(base, target) else pairs_of(sides.base, sides.target)
        delta = delta_of(sides, theirs, ours)
        before = undecided(delta.contested, self._transaction.targets[key], self._granularity)
        verdict = decided(before, self._choices)
        return _Work(self._transaction.targets[key], sides, way, delta, before, verdict)

    def _sides_of(self, key: str) -> Sides:
        if key not in self._sides:
            at = self._parting
            self._sides[key] = Sides(*(self._side(one, key) for one in (at.base, at.source, at.target)))
        return self._sides[key]

    def _side(self, snapshot: Snapshot, key: str) -> Side:
        found = Side.of(self._graph, snapshot, key, self._transaction.schema.catalog)
        if found is None:
            raise Conflict(f"'{snapshot.branch}' has no table '{key}' at version {snapshot.version}")
        return found

    def _effect(self, key: str, change: TableChange, works: Mapping[str, _Work], settled: _Settled) -> Effect:
        work = works.get(key)
        if work is None or work.way is not Way.ADOPT or key in settled.overruled:
            return change.effect()
        entry = self._parting.source.entries[key]
        rows = entry.row_count
        return Adopt(entry.version, work.sides.source.table.count() if rows is None else rows)

    # --- rules -----------------------------------------------------------------------------------

    def _settled(self, before: Mapping[str, TableChange], *, decide: bool = True) -> _Settled:
        """Check the changes, apply what was decided about broken rules, and so on until nothing is new."""
        found, applied = _Settled(dict(before)), set[Mark]()
        while True:
            found.left = self._breaches(found.changes)
            found.seen.update({(one.mark, one.message): one for one in found.left})
            fresh = [one for one in found.left if one.mark not in applied and self._choice(one)]
            if not decide or not fresh:
                return found
            applied.update(one.mark for one in fresh)
            self._overrule(found, fresh)
            for key, chosen in found.overruled.items():
                change = before.get(key) or TableChange.nothing(self._transaction.targets[key])
                found.changes[key] = overruled(change, chosen, self._sides_of(key))

    def _breaches(self, changes: Mapping[str, TableChange]) -> list[Breach]:
        real = {key: one.checked() for key, one in changes.items() if not one.is_nothing}
        return breaches(real, self._transaction.targets, self._stored)

    def _choice(self, breach: Breach) -> EntityChoice | None:
        found = self._choices.about(breach.table_key, breach.entity_id, breach.kind)
        if found is not None and found.kind is None and self._is_contested(breach):
            return None  # it was meant for what the branches disagree on, and has done its part there
        return found

    def _is_contested(self, breach: Breach) -> bool:
        return breach.entity_id in self._contested.get(breach.table_key, ())

    def _overrule(self, settled: _Settled, fresh: Sequence[Breach]) -> None:
        orphans: dict[str, list[EntityChoice]] = {}
        for breach in fresh:
            choice = self._choice(breach)
            assert choice is not None
            settled.overruled.setdefault(breach.table_key, {}).setdefault(choice.entity_id, choice)
            if breach.kind is ConflictKind.ORPHAN_EDGE:
                orphans.setdefault(breach.table_key, []).append(choice)
        for key, chosen in orphans.items():
            target, sides = self._transaction.targets[key], self._sides_of(key)
            for node in nodes_to_go_with(target, chosen, sides, settled.changes, self._stored):
                settled.overruled.setdefault(node.table_key, {}).setdefault(node.entity_id, node)

    # --- decisions that are out of date ----------------------------------------------------------

    def _refuse_stale(self, works: Mapping[str, _Work], settled: _Settled) -> None:
        """Fail when a decision is about an entity that is not in conflict, or not in that one."""
        fresh = Freshness(self._choices)
        for key, work in works.items():
            fresh.meet(self._named(key, work))
        fresh.meet(self._rules([one for one in settled.seen.values() if fresh.names(one)]))
        if fresh.is_left:
            # Decisions about entities may have settled a broken rule before it was met.
            before = {key: _changes(one, one.before) for key, one in works.items()}
            fresh.meet(self._rules(self._settled(before, decide=False).left))
        fresh.require_none()

    def _named(self, key: str, work: _Work) -> Iterator[MergeConflict]:
        """The conflicts of entities that decisions name."""
        named = np.zeros(len(work.before.presence), np.bool_)
        for _, row in chosen_rows(work.before.contested, self._choices.of_entities(key)):
            named[row] = True
        return self._told(key, work, named & work.before.open)

    # --- telling ---------------------------------------------------------------------------------

    def _told(self, key: str, work: _Work, wanted: Mask) -> Iterator[MergeConflict]:
        rows = np.flatnonzero(wanted)
        return row_conflicts(key, work.before, work.sides, rows, self._branches)

    def _rules(self, found: Sequence[Breach]) -> list[MergeConflict]:
        by_table: dict[str, list[Breach]] = {}
        for breach in found:
            by_table.setdefault(breach.table_key, []).append(breach)
        return [
            told for key, some in by_table.items() for told in rule_conflicts(key, some, self._sides_of(key))
        ]

    def _open(self, works: Mapping[str, _Work]) -> Iterator[MergeConflict]:
        """The contested entities that are not decided."""
        return (told for key, one in works.items() for told in self._told(key, one, one.verdict.open))

    def _met(
        self, works: Mapping[str, _Work], settled: _Settled, left: Sequence[MergeConflict]
    ) -> tuple[MergeConflict, ...]:
        """Every conflict, decided or not; of a broken rule the way in which it was told last."""
        rows = (told for key, one in works.items() for told in self._told(key, one, one.before.open))
        still = {one.mark for one in left}
        gone = {one.mark: one for one in settled.seen.values() if one.mark not in still}
        return _sorted([*rows, *self._rules(list(gone.values())), *left])

    def _still_open(
        self, met: Sequence[MergeConflict], works: Mapping[str, _Work]
    ) -> Iterator[MergeConflict]:
        ids = {key: _ids(one.verdict) for key, one in works.items()}
        return (one for one in met if one.kind.is_about_one_row and one.entity_id in ids[one.table_key])


def _ids(verdict: Verdict) -> set[str]:
    """The entities that are not decided."""
    return set(verdict.contested.places.filter(pa.array(verdict.open)).column(ID).to_pylist())


def _changes(work: _Work, verdict: Verdict) -> TableChange:
    return change_of(work.target, work.sides, work.delta, outcome_of(verdict, work.sides))


def _sorted(conflicts: Sequence[MergeConflict]) -> tuple[MergeConflict, ...]:
    return tuple(
        sorted(conflicts, key=lambda one: (table_order(one.table_key), one.entity_id or "", one.kind))
    )
