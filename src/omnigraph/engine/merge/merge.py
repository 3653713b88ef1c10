"""Merging one branch into another: all of it, in one commit, or nothing."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Literal, TypedDict

from omnigraph import failpoints
from omnigraph.engine.branches import delete_branch
from omnigraph.engine.changes.hands import Hands
from omnigraph.engine.lineage import Commit
from omnigraph.engine.load.engines import EngineName
from omnigraph.engine.merge.choices import Choices, Granularity, Take
from omnigraph.engine.merge.history import MergeSource, captured, parting_of
from omnigraph.engine.merge.plan import MergePlan, Merging
from omnigraph.engine.merge.resolutions import Given, read_resolutions, with_strategy
from omnigraph.engine.merge.result import MergePreview, MergeResult
from omnigraph.engine.merge.scratch import Scratch
from omnigraph.engine.opened import OpenGraph
from omnigraph.engine.recovery.sweep import heal
from omnigraph.engine.snapshot import Snapshot
from omnigraph.engine.write.transaction import Author, Prepared, Transaction, begin, write
from omnigraph.errors import BadRequest, MergeConflicts, OmnigraphError


class MergeOptions(TypedDict, total=False):
    """What a merge can be asked for besides its branches."""

    actor: str | None
    strategy: Literal["ours", "theirs"] | None
    resolutions: Given | None
    granularity: Literal["row", "property"]
    delete_branch: bool
    engine: EngineName


@dataclass(frozen=True, slots=True)
class MergeRequest:
    """Which branch is to be taken in, and how conflicts are decided."""

    source: str
    strategy: Take | None = None
    resolutions: Given | None = None
    granularity: Granularity = Granularity.ROW
    delete_branch: bool = False
    hands: Hands = field(default_factory=Hands, repr=False, compare=False)
    """Who works it out, told from how much changed."""


def merge(graph: OpenGraph, request: MergeRequest, author: Author) -> MergeResult:
    """Take a branch into another one; nothing happens when they contradict each other: `MergeConflicts`.

    The source counts as it is now. The target counts as it is in the end: when somebody else writes to it
    meanwhile, the merge is worked out again.
    """
    refuse_itself(request.source, author.branch)
    heal(graph)
    source = captured(graph, request.source)
    failpoints.reach(failpoints.BRANCH_MERGE_POST_AUTHORITY_CAPTURE)
    plans: list[MergePlan] = []
    scratches: list[Scratch] = []

    def prepare(transaction: Transaction) -> Prepared:
        scratches.append(Scratch(graph.root))
        plan = _merging(transaction, source, request, author.branch).plan(scratches[-1])
        if plan.conflicts:
            raise MergeConflicts(request.source, author.branch, plan.conflicts)
        plans.append(plan)
        failpoints.reach(failpoints.BRANCH_MERGE_POST_CANDIDATE_VALIDATION)
        return _prepared(plan, source)

    try:
        receipt = write(graph, author, prepare)
    finally:
        for one in scratches:
            one.clear()
    last = plans[-1]
    commit = receipt.commit if receipt else None
    result = MergeResult(request.source, author.branch, last.outcome, commit, last.stats, last.settled)
    return _without_source(graph, result) if request.delete_branch else result


def preview(graph: OpenGraph, request: MergeRequest, target: str) -> MergePreview:
    """What a merge would do now."""
    refuse_itself(request.source, target)
    source = captured(graph, request.source)
    transaction = begin(graph, Author(target))
    plan = _merging(transaction, source, request, target).plan()
    return MergePreview(
        request.source,
        target,
        plan.outcome,
        plan.stats,
        plan.conflicts,
        plan.settled,
        request.granularity,
        _choices(transaction, request, target),
        plan.met,
    )


def refuse_itself(source: str, target: str) -> None:
    """Fail when a branch is to be merged into itself."""
    if source == target:
        raise BadRequest(f"branch '{source}' cannot be merged into itself", remedy="name two branches")


def _merging(transaction: Transaction, source: MergeSource, request: MergeRequest, target: str) -> Merging:
    parting = parting_of(transaction.graph, source, _state(transaction, target))
    choices = _choices(transaction, request, target)
    return Merging(transaction, parting, choices, request.granularity, request.hands)


def _choices(transaction: Transaction, request: MergeRequest, target: str) -> Choices:
    if request.resolutions is None:
        return Choices(strategy=request.strategy)
    found = read_resolutions(request.resolutions, transaction.targets)
    found.require_for(request.source, target, request.granularity)
    return with_strategy(found.choices, request.strategy)


def _state(transaction: Transaction, branch: str) -> Snapshot:
    """The target as the transaction sees it; it may have moved on since."""
    base = transaction.base
    commit: Commit | None = None
    if base.head is not None:
        commit = transaction.graph.load(branch).state.commits.get(base.head)
    return Snapshot(branch, commit.version if commit else 0, commit, base.entries, base.identity)


def _prepared(plan: MergePlan, source: MergeSource) -> Prepared:
    commit = source.snapshot.commit
    if plan.outcome.is_commit and commit is not None:
        return Prepared("BranchMerge", plan.effects, strict=False, merged_parent=commit.id)
    return Prepared("BranchMerge", {}, strict=False)


def _without_source(graph: OpenGraph, result: MergeResult) -> MergeResult:
    """The merge stands whether or not its source can be deleted."""
    try:
        delete_branch(graph, result.source)
    except OmnigraphError as error:
        return replace(result, branch_deleted=False, branch_delete_error=error.message)
    return replace(result, branch_deleted=True)
