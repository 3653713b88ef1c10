"""Revert, cherry-pick and reset: merges whose base is chosen, each a new commit.

A revert takes a commit back: it merges the commit's parent, with the commit as the base. A cherry-pick takes
in what one commit changed: it merges the commit, with its parent as the base. Both have the conflicts of
merges. A reset restores the content of an older moment: it merges that moment, with the branch itself as the
base, so nothing can conflict. The head of a branch never moves back.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import field
from typing import Literal, TypeAlias, TypedDict

from omnigraph.deferred_dataclass import dataclass
from omnigraph.engine.changes.comparison import RunnerChoice
from omnigraph.engine.commit.protocol import Receipt
from omnigraph.engine.commit.recovery.sweep import finish_completed_writes
from omnigraph.engine.graph.lineage import LONGEST_MESSAGE, Commit
from omnigraph.engine.graph.open_graph import AtCommit, OpenGraph
from omnigraph.engine.graph.snapshot import Snapshot
from omnigraph.engine.merge.choices import (
    MergeChoices,
    MergeGranularity,
    Strategies,
    parse_granularity,
    parse_strategies,
    with_strategies,
)
from omnigraph.engine.merge.conflict_builder import BranchNames
from omnigraph.engine.merge.merge import target_snapshot
from omnigraph.engine.merge.merge_base import SnapshotBase
from omnigraph.engine.merge.merge_inputs import MergeInputs, MergeOutcome
from omnigraph.engine.merge.plan import MergePlan, MergePlanner, Scratch
from omnigraph.engine.merge.result import MergeResult
from omnigraph.engine.tasks.runner import EngineName
from omnigraph.engine.write.transaction import Author, PreparedWrite, Transaction, commit_write
from omnigraph.errors import BadRequest, Conflict, MergeConflicts

RESET = "reset"


class ReplayOptions(TypedDict, total=False):
    """The options of a revert or cherry-pick besides its commit and branch."""

    actor: str | None
    message: str | None
    strategy: Literal["ours", "theirs"] | Mapping[str, Literal["ours", "theirs"]] | list[str] | None
    granularity: Literal["row", "property"] | None
    engine: EngineName


@dataclass(frozen=True, slots=True)
class ReplayChoices:
    """How conflicts are decided, and where the work is done."""

    strategies: Strategies = field(default_factory=Strategies)
    granularity: MergeGranularity | None = None
    runner_choice: RunnerChoice = field(default_factory=RunnerChoice, repr=False, compare=False)

    @classmethod
    def of(cls, how: ReplayOptions) -> ReplayChoices:
        """Return the choices that options name."""
        granularity = parse_granularity(how.get("granularity"))
        return cls(
            parse_strategies(how.get("strategy")), granularity, RunnerChoice(how.get("engine", "auto"))
        )


Replay: TypeAlias = Callable[[OpenGraph, Commit, Author, ReplayChoices], MergeResult]
"""A revert, cherry-pick or reset."""


def revert(graph: OpenGraph, commit: Commit, author: Author, options: ReplayChoices) -> MergeResult:
    """Take back what a commit changed against its first parent."""
    graph.permissions.require("change", branch=author.branch, actor=author.actor)
    parent = _require_parent(commit, "reverted")
    note = f"This reverts commit {commit.id}."
    message = _fit(f'Revert "{commit.subject or commit.id}"\n\n{note}', note)
    return _Replay(graph, _with_message(author, message), options, "revert", f"revert of {commit.id}").run(
        commit.id, AtCommit(parent), lambda _: graph.snapshot(AtCommit(commit.id))
    )


def cherry_pick(graph: OpenGraph, commit: Commit, author: Author, options: ReplayChoices) -> MergeResult:
    """Take in what a commit changed against its first parent."""
    graph.permissions.require("change", branch=author.branch, actor=author.actor)
    parent = _require_parent(commit, "cherry-picked")
    note = f"(cherry picked from commit {commit.id})"
    message = _fit(f"{commit.message}\n\n{note}", note) if commit.message else f"Cherry-pick {commit.id}"
    return _Replay(graph, _with_message(author, message), options, "cherry_pick", commit.id).run(
        commit.id, AtCommit(commit.id), lambda _: graph.snapshot(AtCommit(parent))
    )


def reset(graph: OpenGraph, commit: Commit, author: Author, options: ReplayChoices) -> MergeResult:
    """Give a branch the content that a commit had."""
    graph.permissions.require("change", branch=author.branch, actor=author.actor)
    with_message = _with_message(author, f"Reset to {commit.id}")
    return _Replay(graph, with_message, options, RESET, commit.id).run(
        commit.id, AtCommit(commit.id), lambda target: target
    )


def _require_parent(commit: Commit, what: str) -> str:
    if commit.parent is None:
        raise BadRequest(
            f"commit '{commit.id}' cannot be {what}: it is the first one, and has no parent",
            remedy="name a later commit; see `omnigraph log`",
        )
    return commit.parent


def _fit(message: str, note: str) -> str:
    """Return the message, or only its note where quoting another one makes it too long."""
    return message if len(message) <= LONGEST_MESSAGE else note


def _with_message(author: Author, message: str) -> Author:
    if author.message is not None:
        return author
    return Author(author.branch, author.actor, message=message)


class _Replay:
    """A merge with a chosen base, planned on the state of the branch that each attempt finds."""

    def __init__(
        self, graph: OpenGraph, author: Author, options: ReplayChoices, operation: str, name: str
    ) -> None:
        self._graph = graph
        self._author = author
        self._options = options
        self._operation = operation
        self._name = name
        """What conflicts call the side that is taken in."""
        self._plan: MergePlan | None = None
        self._scratches: list[Scratch] = []

    def run(self, commit_id: str, source: AtCommit, base: Callable[[Snapshot], Snapshot]) -> MergeResult:
        """Run it; `base` chooses the base for a state of the branch."""
        finish_completed_writes(self._graph)
        self._source, self._base = self._graph.snapshot(source), base
        try:
            receipt = commit_write(self._graph, self._author, self)
        finally:
            for one in self._scratches:
                one.clear()
        return self._result(commit_id, receipt)

    def prepare(self, transaction: Transaction) -> PreparedWrite:
        """Plan it on one state of the branch."""
        self._scratches.append(Scratch(self._graph.root))
        plan = self._planner(transaction).plan(self._scratches[-1])
        if plan.conflicts:
            raise MergeConflicts(self._name, self._author.branch, plan.conflicts, can_preview=False)
        self._plan = plan
        # A reset replaces all that it finds, so it must not run over a commit that came meanwhile.
        is_reset = self._operation == RESET
        return PreparedWrite("Mutation", plan.effects, strict=is_reset, operation=self._operation)

    def _planner(self, transaction: Transaction) -> MergePlanner:
        options, target = self._options, target_snapshot(transaction, self._author.branch)
        base = self._base(target)
        for moment in (base, self._source):
            self._require_schema(transaction, moment)
        inputs = MergeInputs(
            SnapshotBase(self._graph, base),
            self._source,
            target,
            MergeOutcome.MERGED,
            names=BranchNames(self._name, target.branch),
            may_adopt=False,
        )
        choices = with_strategies(MergeChoices(), options.strategies, transaction.targets)
        return MergePlanner(transaction, inputs, choices, options.granularity, options.runner_choice)

    def _require_schema(self, transaction: Transaction, moment: Snapshot) -> None:
        """Refuse rows of another schema: they may not fit the columns of today."""
        if self._graph.catalog_at(moment).fingerprint != transaction.schema.catalog.fingerprint:
            commit = moment.commit.id if moment.commit is not None else moment.id
            raise Conflict(
                f"commit '{commit}' has another schema than branch '{self._author.branch}' has now",
                remedy="apply the schema of that commit first, or export its rows and load them",
            )

    def _result(self, commit_id: str, receipt: Receipt | None) -> MergeResult:
        plan = self._plan
        assert plan is not None, "a write is prepared before it ends"
        return MergeResult(
            commit_id,
            self._author.branch,
            MergeOutcome.ALREADY_UP_TO_DATE if receipt is None else plan.outcome,
            receipt.commit if receipt else None,
            plan.stats,
            plan.resolved_count,
            given_up=plan.given_up.first,
            given_up_count=plan.given_up.count,
            pending_indexes=receipt.indexes.pending if receipt else {},
            by_branch=plan.by_branch,
        )
