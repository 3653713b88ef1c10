"""Merging one branch into another: all of it, in one commit, or nothing."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import field, replace
from functools import partial
from typing import Literal, TypedDict

from omnigraph import failpoints
from omnigraph.deferred_dataclass import dataclass
from omnigraph.engine.branches.manage import delete_branch
from omnigraph.engine.branches.saved_bases import record_taken_commit
from omnigraph.engine.changes.comparison import RunnerChoice
from omnigraph.engine.commit.plan import PhaseFailpoints
from omnigraph.engine.commit.protocol import Receipt
from omnigraph.engine.commit.recovery.sweep import finish_completed_writes
from omnigraph.engine.graph.lineage import Commit
from omnigraph.engine.graph.merge_pins import pin_head
from omnigraph.engine.graph.open_graph import OpenGraph
from omnigraph.engine.graph.snapshot import Snapshot
from omnigraph.engine.merge.choices import (
    GranularityByType,
    MergeChoices,
    MergeGranularity,
    Strategies,
    choose_granularity,
    with_strategies,
)
from omnigraph.engine.merge.merge_inputs import MergeSource, capture_source, find_merge_inputs, source_from
from omnigraph.engine.merge.plan import MergePlan, MergePlanner, Scratch
from omnigraph.engine.merge.resolutions import ResolutionsInput, read_resolutions
from omnigraph.engine.merge.result import MergePreview, MergeResult
from omnigraph.engine.tasks.runner import EngineName
from omnigraph.engine.write.transaction import Author, PreparedWrite, Transaction, begin, commit_write
from omnigraph.errors import BadRequest, MergeConflicts, OmnigraphError

_PHASES = PhaseFailpoints(
    before_confirm=failpoints.BRANCH_MERGE_POST_EFFECTS_PRE_CONFIRM,
    before_publish=failpoints.BRANCH_MERGE_POST_PHASE_B_PRE_MANIFEST_COMMIT,
)


class MergeOptions(TypedDict, total=False):
    """The options of a merge besides its branches."""

    actor: str | None
    message: str | None
    strategy: Literal["ours", "theirs"] | Mapping[str, Literal["ours", "theirs"]] | list[str] | None
    resolutions: ResolutionsInput | None
    granularity: Literal["row", "property"] | None
    delete_branch: bool
    engine: EngineName


@dataclass(frozen=True, slots=True)
class MergeRequest:
    """Which branch to merge, and how to decide conflicts."""

    source: str
    strategies: Strategies = field(default_factory=Strategies)
    resolutions: ResolutionsInput | None = None
    granularity: MergeGranularity | None = None
    """None leaves it to the types and the default of the graph."""
    delete_branch: bool = False
    runner_choice: RunnerChoice = field(default_factory=RunnerChoice, repr=False, compare=False)
    """Which runner merges, chosen by how much changed."""


def merge(graph: OpenGraph, request: MergeRequest, author: Author) -> MergeResult:
    """Merge a branch into another one; raises `MergeConflicts` and changes nothing when they conflict.

    The source counts as it is now. The target counts as it is at the commit: when another writer commits
    meanwhile, the merge is planned again.
    """
    graph.permissions.require("branch_merge", branch=request.source, target=author.branch, actor=author.actor)
    if request.delete_branch:
        graph.permissions.require("branch_delete", target=request.source, actor=author.actor)
    refuse_self_merge(request.source, author.branch)
    with pin_head(graph, request.source, partial(finish_completed_writes, graph)) as loaded:
        result = _Merge(graph, request, author, source_from(request.source, loaded)).run()
    return _delete_source(graph, result, author) if request.delete_branch else result


class _Merge:
    """A merge, planned on the state of the target that each attempt finds."""

    def __init__(self, graph: OpenGraph, request: MergeRequest, author: Author, source: MergeSource) -> None:
        self._graph = graph
        self._request = request
        self._author = author
        self._source = source
        self._plan: MergePlan | None = None
        self._scratches: list[Scratch] = []

    def run(self) -> MergeResult:
        failpoints.reach(failpoints.BRANCH_MERGE_POST_AUTHORITY_CAPTURE)
        try:
            receipt = commit_write(self._graph, self._author, self)
        finally:
            for one in self._scratches:
                one.clear()
        return self._result(receipt)

    def prepare(self, transaction: Transaction) -> PreparedWrite:
        source, target = self._request.source, self._author.branch
        self._scratches.append(Scratch(self._graph.root))
        plan = _planner(transaction, self._source, self._request, target).plan(self._scratches[-1])
        if plan.conflicts:
            raise MergeConflicts(source, target, plan.conflicts)
        self._plan = plan
        failpoints.reach(failpoints.BRANCH_MERGE_POST_CANDIDATE_VALIDATION)
        _record_taken(transaction, plan, self._source)
        return _prepare_commit(plan, self._source)

    def _result(self, receipt: Receipt | None) -> MergeResult:
        plan = self._plan
        assert plan is not None, "a write is prepared before it ends"
        return MergeResult(
            self._request.source,
            self._author.branch,
            plan.outcome,
            receipt.commit if receipt else None,
            plan.stats,
            plan.resolved_count,
            given_up=plan.given_up.first,
            given_up_count=plan.given_up.count,
            pending_indexes=receipt.indexes.pending if receipt else {},
            by_branch=plan.by_branch,
        )


def preview(graph: OpenGraph, request: MergeRequest, target: str) -> MergePreview:
    """Return what a merge would do now."""
    refuse_self_merge(request.source, target)
    source = capture_source(graph, request.source)
    transaction = begin(graph, Author(target))
    plan = _planner(transaction, source, request, target).plan()
    return MergePreview(
        request.source,
        target,
        plan.outcome,
        plan.stats,
        plan.conflicts,
        plan.resolved_count,
        _describe_granularity(transaction, request, {one.table_key for one in plan.conflicts_seen}),
        _read_choices(transaction, request, target),
        plan.conflicts_seen,
        plan.given_up.first,
        plan.given_up.count,
        plan.by_branch,
    )


def refuse_self_merge(source: str, target: str) -> None:
    """Fail when a branch would be merged into itself."""
    if source == target:
        raise BadRequest(f"branch '{source}' cannot be merged into itself", remedy="name two branches")


def _planner(
    transaction: Transaction, source: MergeSource, request: MergeRequest, target: str
) -> MergePlanner:
    inputs = find_merge_inputs(transaction.graph, source, target_snapshot(transaction, target))
    choices = _read_choices(transaction, request, target)
    return MergePlanner(transaction, inputs, choices, request.granularity, request.runner_choice)


def _read_choices(transaction: Transaction, request: MergeRequest, target: str) -> MergeChoices:
    if request.resolutions is None:
        return with_strategies(MergeChoices(), request.strategies, transaction.targets)
    found = read_resolutions(request.resolutions, transaction.targets)
    found.require_for(request.source, target, partial(_find_granularity, transaction, request))
    return with_strategies(found.choices, request.strategies, transaction.targets)


def _find_granularity(transaction: Transaction, request: MergeRequest, key: str | None) -> MergeGranularity:
    """Return what counts for a type; None stands for one that declares nothing."""
    declared = None if key is None else transaction.targets[key].owner.merge
    return choose_granularity(request.granularity, declared, transaction.graph.merge_granularity)


def _describe_granularity(
    transaction: Transaction, request: MergeRequest, keys: Collection[str]
) -> GranularityByType:
    found = {key: _find_granularity(transaction, request, key) for key in sorted(keys)}
    if len(set(found.values())) > 1:
        return found
    return next(iter(found.values()), _find_granularity(transaction, request, None))


def target_snapshot(transaction: Transaction, branch: str) -> Snapshot:
    """Return the target as the transaction reads it; it may have newer commits by now."""
    base = transaction.base
    commit: Commit | None = None
    if base.head is not None:
        commit = transaction.graph.load_with(branch, base.head).state.commits.get(base.head)
    return Snapshot(branch, commit.version if commit else 0, commit, base.entries, base.identity)


def _record_taken(transaction: Transaction, plan: MergePlan, source: MergeSource) -> None:
    """Record that the source is merged, so that deleting it saves what later merges need."""
    taken = source.snapshot
    if plan.outcome.is_commit and taken.commit is not None:
        record_taken_commit(
            transaction.graph, taken.branch, taken.incarnation, taken.commit, transaction.base.identity
        )


def _prepare_commit(plan: MergePlan, source: MergeSource) -> PreparedWrite:
    commit = source.snapshot.commit
    if plan.outcome.is_commit and commit is not None:
        return PreparedWrite(
            "BranchMerge",
            plan.effects,
            strict=False,
            merged_parent=commit.id,
            merged_commits=plan.merged_commits,
            phases=_PHASES,
        )
    return PreparedWrite("BranchMerge", {}, strict=False)


def _delete_source(graph: OpenGraph, result: MergeResult, author: Author) -> MergeResult:
    """Delete the source; the merge is valid even if that fails."""
    try:
        delete_branch(graph, result.source, actor=author.actor)
    except OmnigraphError as error:
        return replace(result, branch_deleted=False, branch_delete_error=error.message)
    return replace(result, branch_deleted=True)
