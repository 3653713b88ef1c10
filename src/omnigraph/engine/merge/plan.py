"""Plan a merge on one state of the target: what it changes, and what conflicts."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field, replace
from functools import cache, cached_property

from omnigraph.deferred_dataclass import dataclass
from omnigraph.engine.changes.change import ChangeCounts
from omnigraph.engine.changes.comparison import RunnerChoice, TableComparison
from omnigraph.engine.changes.diff import table_order
from omnigraph.engine.changes.table_side import TableSide
from omnigraph.engine.commit.plan import AdoptVersion, Effect
from omnigraph.engine.constraints.stored_rows import StoredTables
from omnigraph.engine.graph.coordinator import lance_branch
from omnigraph.engine.graph.lineage import Commit
from omnigraph.engine.graph.root import Root
from omnigraph.engine.graph.snapshot import Snapshot
from omnigraph.engine.merge.bucketed_merge import BucketedMerge, BucketJob
from omnigraph.engine.merge.choices import (
    EntityChoice,
    MergeChoices,
    MergeGranularity,
    PendingChoices,
    choose_granularity,
)
from omnigraph.engine.merge.conflict import (
    ConflictKey,
    ConflictKind,
    GivenUpSummary,
    MergeConflict,
    RuleViolation,
)
from omnigraph.engine.merge.conflict_builder import BranchNames, build_rule_conflicts
from omnigraph.engine.merge.merge_inputs import (
    MergeInputs,
    MergeOutcome,
    TableStrategy,
    choose_strategy,
    is_untouched,
)
from omnigraph.engine.merge.patched_side import compare_merge_sides, plain_side, with_disputed
from omnigraph.engine.merge.row_rule import MergeSides
from omnigraph.engine.merge.rule_checks import choices_for_nodes, find_violations
from omnigraph.engine.merge.table_merge import BranchChanges, InMemoryMerge, MergeTask, TableMerge
from omnigraph.engine.merge.target_change import TargetChange, override_entities
from omnigraph.engine.write.transaction import Transaction
from omnigraph.errors import Conflict, OmnigraphError

_log = logging.getLogger(__name__)


class Scratch:
    """The folder; it gets its name at the first use."""

    def __init__(self, root: Root) -> None:
        self._root = root

    @cached_property
    def name(self) -> str:
        """The name below the staging folder; all files in it belong to this merge."""
        return self._root.new_id()

    def clear(self) -> None:
        """Remove every file that did not become part of a table, after the merge."""
        if "name" not in self.__dict__:
            return
        place = self._root.layout.staging / self.name
        try:
            self._root.objects.delete_prefix(place)
        except OmnigraphError as failure:
            _log.warning("could not remove the files of a merge in '%s'; cleanup will: %s", place, failure)


@dataclass(frozen=True, slots=True)
class MergePlan:
    """What a merge changes, and its conflicts."""

    outcome: MergeOutcome
    effects: Mapping[str, Effect]
    stats: Mapping[str, ChangeCounts]
    """How many entities come, change and go, by table."""
    conflicts: tuple[MergeConflict, ...] = ()
    """The undecided conflicts."""
    resolved_count: int = 0
    """How many entities that both branches changed were decided on."""
    conflicts_seen: tuple[MergeConflict, ...] = ()
    """With a preview: every conflict, decided or not."""
    merged_commits: tuple[Commit, ...] = ()
    """The commits that the target has to record."""
    given_up: GivenUpSummary = field(default_factory=GivenUpSummary)
    """What decisions about whole entities dropped although only one branch had changed it."""
    by_branch: Mapping[str, BranchChanges] = field(default_factory=dict)
    """What each branch did, by table, of the tables that the source changed."""


@dataclass(slots=True)
class _DecidedChanges:
    """Changes after all choices were applied, and the rules that they break."""

    changes: dict[str, TargetChange]
    overruled: dict[str, dict[str, EntityChoice]] = field(default_factory=dict)
    left: list[RuleViolation] = field(default_factory=list)
    seen: dict[tuple[ConflictKey, str], RuleViolation] = field(default_factory=dict)
    """Every violation found so far, by id and message."""


class MergePlanner:
    """One merge on one state of the target."""

    def __init__(
        self,
        transaction: Transaction,
        inputs: MergeInputs,
        choices: MergeChoices,
        granularity: MergeGranularity | None,
        runner_choice: RunnerChoice,
    ) -> None:
        self._transaction = transaction
        self._graph = transaction.graph
        self._inputs = inputs
        self._choices = choices
        self._granularity = granularity
        self._runner_choice = runner_choice
        self._branches = inputs.names or BranchNames(inputs.source.branch, inputs.target.branch)
        self._stored = StoredTables(cache(transaction.table), transaction.targets)
        self._sides: dict[str, MergeSides] = {}
        self._contested: dict[str, set[str]] = {}
        """The entities that the branches disagree on, by table."""

    def plan(self, scratch: Scratch | None = None) -> MergePlan:
        """Plan the merge; without a scratch folder (a preview), return decided conflicts too."""
        if self._inputs.outcome is MergeOutcome.ALREADY_UP_TO_DATE:
            return MergePlan(self._inputs.outcome, {}, {})
        preview = scratch is None
        merges = self._merge_tables(scratch)
        self._contested = {key: one.contested_ids() for key, one in merges.items()}
        decided = self._decide({key: one.change() for key, one in merges.items()})
        self._refuse_stale(merges, decided)
        changes = {key: one for key, one in decided.changes.items() if not one.is_empty}
        left = self._build_rule_conflicts(decided.left)
        conflicts_seen = self._all_conflicts(merges, decided, left) if preview else ()
        rows = self._keep_open(conflicts_seen, merges) if preview else self._open_conflicts(merges)
        conflicts = _sort_conflicts([*rows, *left])
        written = {} if preview or conflicts else changes
        return MergePlan(
            self._inputs.outcome,
            {key: self._effect(key, one, merges, decided) for key, one in written.items()},
            {key: changes[key].stat for key in sorted(changes, key=table_order)},
            conflicts,
            sum(one.resolved_count for one in merges.values()),
            conflicts_seen,
            self._inputs.merged_commits,
            GivenUpSummary.of(one.given_up() for one in merges.values() if one.resolved_count),
            {key: merges[key].by_branch for key in sorted(merges, key=table_order)},
        )

    # --- tables ----------------------------------------------------------------------------------

    def _merge_tables(self, scratch: Scratch | None) -> dict[str, TableMerge]:
        at = self._inputs
        if not at.base.keys == at.source.entries.keys() == at.target.entries.keys():
            raise Conflict(
                f"'{at.source.branch}' and '{at.target.branch}' have different types",
                remedy="a schema change lies between them; create the branch again and repeat its changes",
            )
        found = ((key, self._merge_table(key, scratch)) for key in sorted(at.source.entries, key=table_order))
        return {key: merge for key, merge in found if merge is not None}

    def _merge_table(self, key: str, scratch: Scratch | None) -> TableMerge | None:
        strategy = self._strategy(key)
        if strategy is TableStrategy.NOTHING:
            return None
        sides, at = self._merge_sides(key), self._inputs
        base, entry = sides.base, at.base.entry(key)
        still = entry is not None and is_untouched(entry, at.target.entries[key])
        theirs = TableComparison(plain_side(base), sides.source, by_place=base is plain_side(base))
        ours = None if still else replace(theirs, right=sides.target)
        stable = sides.target.table.has_stable_row_ids and base is plain_side(base)
        sides = replace(sides, same_rows=stable and (ours is None or ours.is_linear))
        task = MergeTask(
            self._transaction.targets[key], sides, self._granularity_of(key), self._choices, self._branches
        )
        runner = self._runner_choice.choose_runner(theirs, *([] if ours is None else [ours]))
        if runner is not None:
            place = None if scratch is None else scratch.name
            # Where the target adopts a version of the source, no rows are written.
            job = BucketJob(
                task, theirs, ours, scratch is None, None if strategy is TableStrategy.ADOPT else place
            )
            merge = BucketedMerge.of(job, runner, place)
            return None if merge.is_empty else merge
        found = compare_merge_sides(base, sides.source)
        if not found.table.num_rows:
            return None
        return InMemoryMerge.of(
            task, found, None if ours is None else compare_merge_sides(base, sides.target)
        )

    def _granularity_of(self, key: str) -> MergeGranularity:
        declared = self._transaction.targets[key].owner.merge
        return choose_granularity(self._granularity, declared, self._graph.merge_granularity)

    def _strategy(self, key: str) -> TableStrategy:
        at = self._inputs
        found = choose_strategy(
            at.base.entry(key), at.source.entries[key], at.target.entries[key], lance_branch(at.target.branch)
        )
        return found if at.may_adopt or found is not TableStrategy.ADOPT else TableStrategy.REPLAY

    def _merge_sides(self, key: str) -> MergeSides:
        if key not in self._sides:
            at = self._inputs
            base = at.base.side(key, self._transaction.schema.catalog)
            source, target = (self._side(one, key) for one in (at.source, at.target))
            disputed = at.unseen.find_disputed(
                self._graph, (base, source, target), at.target, at.source, self._transaction.schema.catalog
            )
            self._sides[key] = MergeSides(with_disputed(base, disputed), source, target)
        return self._sides[key]

    def _side(self, snapshot: Snapshot, key: str) -> TableSide:
        found = TableSide.of(self._graph, snapshot, key, self._transaction.schema.catalog)
        if found is None:
            raise Conflict(f"'{snapshot.branch}' has no table '{key}' at version {snapshot.version}")
        return found

    def _effect(
        self, key: str, change: TargetChange, merges: Mapping[str, TableMerge], decided: _DecidedChanges
    ) -> Effect:
        merge, chosen = merges.get(key), decided.overruled.get(key)
        if merge is None:
            return change.effect()
        if chosen or self._strategy(key) is not TableStrategy.ADOPT:
            return merge.effect(change, chosen)
        entry = self._inputs.source.entries[key]
        rows = entry.row_count
        return AdoptVersion(entry.version, merge.sides.source.table.count() if rows is None else rows)

    # --- rules -----------------------------------------------------------------------------------

    def _decide(self, before: Mapping[str, TargetChange], *, decide: bool = True) -> _DecidedChanges:
        """Check the changes and apply choices about violations, until there are no new ones."""
        found, applied = _DecidedChanges(dict(before)), set[ConflictKey]()
        while True:
            found.left = self._find_violations(found.changes)
            found.seen.update({(one.mark, one.message): one for one in found.left})
            fresh = [one for one in found.left if one.mark not in applied and self._choice(one)]
            if not decide or not fresh:
                return found
            applied.update(one.mark for one in fresh)
            self._overrule(found, fresh)
            for key, chosen in found.overruled.items():
                change = before.get(key) or TargetChange.empty(self._transaction.targets[key])
                found.changes[key] = override_entities(change, chosen, self._merge_sides(key))

    def _find_violations(self, changes: Mapping[str, TargetChange]) -> list[RuleViolation]:
        real = {key: one for key, one in changes.items() if not one.is_empty}
        return find_violations(real, self._transaction.targets, self._stored)

    def _choice(self, violation: RuleViolation) -> EntityChoice | None:
        found = self._choices.about(violation.table_key, violation.entity_id, violation.kind)
        if found is not None and found.kind is None and self._is_contested(violation):
            return None  # it is about what the branches disagree on, and was applied there
        return found

    def _is_contested(self, violation: RuleViolation) -> bool:
        return violation.entity_id in self._contested.get(violation.table_key, ())

    def _overrule(self, decided: _DecidedChanges, fresh: Sequence[RuleViolation]) -> None:
        orphans: dict[str, list[EntityChoice]] = {}
        for violation in fresh:
            choice = self._choice(violation)
            assert choice is not None
            decided.overruled.setdefault(violation.table_key, {}).setdefault(choice.entity_id, choice)
            if violation.kind is ConflictKind.ORPHAN_EDGE:
                orphans.setdefault(violation.table_key, []).append(choice)
        for key, chosen in orphans.items():
            target, sides = self._transaction.targets[key], self._merge_sides(key)
            for node in choices_for_nodes(target, chosen, sides, decided.changes, self._stored):
                decided.overruled.setdefault(node.table_key, {}).setdefault(node.entity_id, node)

    # --- decisions that are out of date ----------------------------------------------------------

    def _refuse_stale(self, merges: Mapping[str, TableMerge], decided: _DecidedChanges) -> None:
        """Fail when a choice is about an entity that is not in conflict, or in another conflict."""
        pending = PendingChoices(self._choices)
        for merge in merges.values():
            pending.match(merge.named_conflicts())
        pending.match(
            self._build_rule_conflicts([one for one in decided.seen.values() if pending.waits_for(one)])
        )
        if pending.has_pending:
            # Choices about entities may have fixed a violation before it was found.
            before = {key: one.undecided_change() for key, one in merges.items()}
            pending.match(self._build_rule_conflicts(self._decide(before, decide=False).left))
        pending.require_all_matched()

    # --- conflicts -------------------------------------------------------------------------------

    def _build_rule_conflicts(self, found: Sequence[RuleViolation]) -> list[MergeConflict]:
        by_table: dict[str, list[RuleViolation]] = {}
        for violation in found:
            by_table.setdefault(violation.table_key, []).append(violation)
        return [
            conflict
            for key, some in by_table.items()
            for conflict in build_rule_conflicts(key, some, self._merge_sides(key))
        ]

    def _open_conflicts(self, merges: Mapping[str, TableMerge]) -> Iterator[MergeConflict]:
        """The contested entities that are not decided."""
        return (conflict for one in merges.values() for conflict in one.open_conflicts())

    def _all_conflicts(
        self, merges: Mapping[str, TableMerge], decided: _DecidedChanges, left: Sequence[MergeConflict]
    ) -> tuple[MergeConflict, ...]:
        """Return every conflict, decided or not; of a violation the last message."""
        rows = (conflict for one in merges.values() for conflict in one.all_conflicts())
        still = {one.mark for one in left}
        gone = {one.mark: one for one in decided.seen.values() if one.mark not in still}
        return _sort_conflicts([*rows, *self._build_rule_conflicts(list(gone.values())), *left])

    def _keep_open(
        self, conflicts_seen: Sequence[MergeConflict], merges: Mapping[str, TableMerge]
    ) -> Iterator[MergeConflict]:
        ids = {key: one.open_ids() for key, one in merges.items()}
        return (
            one for one in conflicts_seen if one.kind.is_about_one_row and one.entity_id in ids[one.table_key]
        )


def _sort_conflicts(conflicts: Sequence[MergeConflict]) -> tuple[MergeConflict, ...]:
    return tuple(
        sorted(conflicts, key=lambda one: (table_order(one.table_key), one.entity_id or "", one.kind))
    )
