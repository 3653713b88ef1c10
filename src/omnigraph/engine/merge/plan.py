"""A merge worked out on one state of the target: what it changes, and what stands in its way."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache

from omnigraph.engine.changes.change import Stat
from omnigraph.engine.changes.diff import table_order
from omnigraph.engine.changes.hands import Hands
from omnigraph.engine.changes.meeting import Meeting
from omnigraph.engine.changes.side import Side
from omnigraph.engine.coordinator import lance_branch
from omnigraph.engine.merge.breach import Breach
from omnigraph.engine.merge.change import TableChange, overruled
from omnigraph.engine.merge.choices import Choices, EntityChoice, Granularity
from omnigraph.engine.merge.conflict import ConflictKind, Mark, MergeConflict
from omnigraph.engine.merge.contest import Sides
from omnigraph.engine.merge.freshness import Freshness
from omnigraph.engine.merge.history import MergeOutcome, Parting
from omnigraph.engine.merge.large import Job, LargeWork
from omnigraph.engine.merge.orphans import nodes_to_go_with
from omnigraph.engine.merge.rules import breaches
from omnigraph.engine.merge.scratch import Scratch
from omnigraph.engine.merge.standing import Way, untouched, way_of
from omnigraph.engine.merge.tell import BranchNames, rule_conflicts
from omnigraph.engine.merge.work import Task, Work, Worked
from omnigraph.engine.plan import Adopt, Effect
from omnigraph.engine.snapshot import Snapshot
from omnigraph.engine.write.stored import StoredTables
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
        self,
        transaction: Transaction,
        parting: Parting,
        choices: Choices,
        granularity: Granularity,
        hands: Hands,
    ) -> None:
        self._transaction = transaction
        self._graph = transaction.graph
        self._parting = parting
        self._choices = choices
        self._granularity = granularity
        self._hands = hands
        self._branches = BranchNames(parting.source.branch, parting.target.branch)
        self._stored = StoredTables(cache(transaction.table), transaction.targets)
        self._sides: dict[str, Sides] = {}
        self._contested: dict[str, set[str]] = {}
        """The entities that the branches disagree on, by table."""

    def plan(self, scratch: Scratch | None = None) -> MergePlan:
        """What the merge does; without a place for its rows, also the conflicts that were decided."""
        if self._parting.outcome is MergeOutcome.ALREADY_UP_TO_DATE:
            return MergePlan(self._parting.outcome, {}, {})
        preview = scratch is None
        works = self._works(scratch)
        self._contested = {key: one.contested() for key, one in works.items()}
        settled = self._settled({key: one.change() for key, one in works.items()})
        self._refuse_stale(works, settled)
        changes = {key: one for key, one in settled.changes.items() if not one.is_nothing}
        left = self._rules(settled.left)
        met = self._met(works, settled, left) if preview else ()
        rows = self._still_open(met, works) if preview else self._open(works)
        conflicts = _sorted([*rows, *left])
        written = {} if preview or conflicts else changes
        return MergePlan(
            self._parting.outcome,
            {key: self._effect(key, one, works, settled) for key, one in written.items()},
            {key: changes[key].stat for key in sorted(changes, key=table_order)},
            conflicts,
            sum(one.settled for one in works.values()),
            met,
        )

    # --- tables ----------------------------------------------------------------------------------

    def _works(self, scratch: Scratch | None) -> dict[str, Work]:
        at = self._parting
        if not at.base.entries.keys() == at.source.entries.keys() == at.target.entries.keys():
            raise Conflict(
                f"'{at.source.branch}' and '{at.target.branch}' have different types",
                remedy="a schema change lies between them; make the branch anew and repeat its changes",
            )
        found = ((key, self._work(key, scratch)) for key in sorted(at.source.entries, key=table_order))
        return {key: work for key, work in found if work is not None}

    def _work(self, key: str, scratch: Scratch | None) -> Work | None:
        way = self._way(key)
        if way is Way.NOTHING:
            return None
        sides = self._sides_of(key)
        theirs = Meeting(sides.base, sides.source)
        still = untouched(self._parting.base.entries[key], self._parting.target.entries[key])
        ours = None if still else Meeting(sides.base, sides.target)
        stable = sides.target.table.has_stable_row_ids
        sides = replace(sides, same_rows=stable and (ours is None or ours.goes_on))
        task = Task(self._transaction.targets[key], sides, self._granularity, self._choices, self._branches)
        runner = self._hands.runner(theirs, *([] if ours is None else [ours]))
        if runner is not None:
            place = None if scratch is None else scratch.name
            # Where the target will only point at a version, its rows are not written anew.
            job = Job(task, theirs, ours, scratch is None, None if way is Way.ADOPT else place)
            work = LargeWork.of(job, runner, place)
            return None if work.is_nothing else work
        found = theirs.together(late=True)
        if not found.table.num_rows:
            return None
        return Worked.of(task, found, None if ours is None else ours.together(late=True))

    def _way(self, key: str) -> Way:
        at = self._parting
        base, source, target = (one.entries[key] for one in (at.base, at.source, at.target))
        return way_of(base, source, target, lance_branch(at.target.branch))

    def _sides_of(self, key: str) -> Sides:
        if key not in self._sides:
            at = self._parting
            base, source, target = (self._side(one, key) for one in (at.base, at.source, at.target))
            self._sides[key] = Sides(base, source, target)
        return self._sides[key]

    def _side(self, snapshot: Snapshot, key: str) -> Side:
        found = Side.of(self._graph, snapshot, key, self._transaction.schema.catalog)
        if found is None:
            raise Conflict(f"'{snapshot.branch}' has no table '{key}' at version {snapshot.version}")
        return found

    def _effect(self, key: str, change: TableChange, works: Mapping[str, Work], settled: _Settled) -> Effect:
        work, chosen = works.get(key), settled.overruled.get(key)
        if work is None:
            return change.effect()
        if chosen or self._way(key) is not Way.ADOPT:
            return work.effect(change, chosen)
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
        real = {key: one for key, one in changes.items() if not one.is_nothing}
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

    def _refuse_stale(self, works: Mapping[str, Work], settled: _Settled) -> None:
        """Fail when a decision is about an entity that is not in conflict, or not in that one."""
        fresh = Freshness(self._choices)
        for work in works.values():
            fresh.meet(work.named())
        fresh.meet(self._rules([one for one in settled.seen.values() if fresh.names(one)]))
        if fresh.is_left:
            # Decisions about entities may have settled a broken rule before it was met.
            before = {key: one.undecided_change() for key, one in works.items()}
            fresh.meet(self._rules(self._settled(before, decide=False).left))
        fresh.require_none()

    # --- telling ---------------------------------------------------------------------------------

    def _rules(self, found: Sequence[Breach]) -> list[MergeConflict]:
        by_table: dict[str, list[Breach]] = {}
        for breach in found:
            by_table.setdefault(breach.table_key, []).append(breach)
        return [
            told for key, some in by_table.items() for told in rule_conflicts(key, some, self._sides_of(key))
        ]

    def _open(self, works: Mapping[str, Work]) -> Iterator[MergeConflict]:
        """The contested entities that are not decided."""
        return (told for one in works.values() for told in one.left())

    def _met(
        self, works: Mapping[str, Work], settled: _Settled, left: Sequence[MergeConflict]
    ) -> tuple[MergeConflict, ...]:
        """Every conflict, decided or not; of a broken rule the way in which it was told last."""
        rows = (told for one in works.values() for told in one.met())
        still = {one.mark for one in left}
        gone = {one.mark: one for one in settled.seen.values() if one.mark not in still}
        return _sorted([*rows, *self._rules(list(gone.values())), *left])

    def _still_open(self, met: Sequence[MergeConflict], works: Mapping[str, Work]) -> Iterator[MergeConflict]:
        ids = {key: one.open_ids() for key, one in works.items()}
        return (one for one in met if one.kind.is_about_one_row and one.entity_id in ids[one.table_key])


def _sorted(conflicts: Sequence[MergeConflict]) -> tuple[MergeConflict, ...]:
    return tuple(
        sorted(conflicts, key=lambda one: (table_order(one.table_key), one.entity_id or "", one.kind))
    )
