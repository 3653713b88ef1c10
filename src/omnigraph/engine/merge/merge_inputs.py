"""The inputs of a merge: the base, both branches, and whether it is a fast-forward."""

from __future__ import annotations

from dataclasses import field
from enum import Enum, StrEnum

from omnigraph.deferred_dataclass import dataclass
from omnigraph.engine.graph.ancestry import load_ancestry
from omnigraph.engine.graph.coordinator import LoadedBranch
from omnigraph.engine.graph.lineage import Commit
from omnigraph.engine.graph.manifest import MAIN, ManifestState, TableEntry
from omnigraph.engine.graph.open_graph import OpenGraph
from omnigraph.engine.graph.snapshot import Snapshot, make_snapshot
from omnigraph.engine.merge.conflict_builder import BranchNames
from omnigraph.engine.merge.merge_base import MergeBase, SnapshotBase, UnseenMerges, find_unseen_merges
from omnigraph.errors import NoCommonCommit


class MergeOutcome(StrEnum):
    """The kind of a merge."""

    ALREADY_UP_TO_DATE = "already_up_to_date"
    """The target has all of the source; there is no commit."""
    FAST_FORWARD = "fast_forward"
    """Only the source had changed."""
    MERGED = "merged"
    """Both had changed."""

    @property
    def is_commit(self) -> bool:
        """Whether such a merge makes a commit."""
        return self is not MergeOutcome.ALREADY_UP_TO_DATE


@dataclass(frozen=True, slots=True)
class MergeSource:
    """The branch that is merged, as it was when the merge began; later commits are ignored."""

    snapshot: Snapshot
    state: ManifestState

    @property
    def branch(self) -> str:
        """Its name."""
        return self.snapshot.branch


@dataclass(frozen=True, slots=True)
class MergeInputs:
    """The three states that a merge compares."""

    base: MergeBase | SnapshotBase
    source: Snapshot
    target: Snapshot
    outcome: MergeOutcome
    unseen: UnseenMerges = field(default_factory=UnseenMerges)
    """Merges without a record, where the base of some entities is unknown."""
    merged_commits: tuple[Commit, ...] = ()
    """The commits that the target records, so that later merges know what it includes."""
    names: BranchNames | None = None
    """What conflicts call both sides, where that is not their branches."""
    may_adopt: bool = True
    """Whether the target may point at a version of the source: a running merge pins it, others do not."""


def capture_source(graph: OpenGraph, branch: str) -> MergeSource:
    """Read the source branch as it is now."""
    return source_from(branch, graph.load(branch))


def source_from(branch: str, loaded: LoadedBranch) -> MergeSource:
    """Return the source from a branch that was read."""
    return MergeSource(make_snapshot(branch, loaded.state, loaded.identity), loaded.state)


def find_merge_inputs(graph: OpenGraph, source: MergeSource, target: Snapshot) -> MergeInputs:
    """Return the base of the source and a state of the target."""
    ours, theirs = target.commit, source.snapshot.commit
    if ours is None or theirs is None:
        raise NoCommonCommit(source.branch, target.branch)
    state = graph.load_with(target.branch, ours.id).state
    main = state if target.branch == MAIN else graph.load(MAIN).state
    states = {target.branch: state, MAIN: main, source.branch: source.state}
    ancestry = load_ancestry(graph, states, [ours.id, theirs.id])
    bases = ancestry.merge_bases([ours.id], [theirs.id])
    if not bases:
        raise NoCommonCommit(source.branch, target.branch)
    base = MergeBase(graph, ancestry, bases)
    if not base.commits:
        raise NoCommonCommit(source.branch, target.branch)
    return MergeInputs(
        base,
        source.snapshot,
        target,
        _outcome(bases, ours, theirs),
        find_unseen_merges(ancestry, ours, theirs, base.lost),
        ancestry.unrecorded(theirs.id, state, main),
    )


def _outcome(bases: tuple[Commit, ...], ours: Commit, theirs: Commit) -> MergeOutcome:
    if bases[0].id == theirs.id:
        return MergeOutcome.ALREADY_UP_TO_DATE
    return MergeOutcome.FAST_FORWARD if bases[0].id == ours.id else MergeOutcome.MERGED


class TableStrategy(Enum):
    """What a merge does with a table."""

    NOTHING = "nothing"
    ADOPT = "adopt"
    """The target may point at the source's version, which main holds."""
    REPLAY = "replay"
    """The source's changes are carried over to the target's own table."""


def choose_strategy(
    base: TableEntry | None, source: TableEntry, target: TableEntry, owner: str | None
) -> TableStrategy:
    """How to merge a table, given its versions at the base, where it is a stored one, and on both branches.

    `owner` is the target branch as tables name it. A pointer is only ever set to main's table: main is never
    deleted, while a branch must stay deletable after a merge. The version only goes up, because of several
    published versions the highest counts, and version numbers of different owners cannot be compared.
    """
    if _place(source) == _place(target):
        return TableStrategy.NOTHING
    if base is None:
        return TableStrategy.REPLAY
    if _place(source) == _place(base):
        return TableStrategy.NOTHING
    is_free = source.owner is None and target.owner != owner and _place(base) == _place(target)
    return TableStrategy.ADOPT if is_free and source.version > target.version else TableStrategy.REPLAY


def is_untouched(base: TableEntry, target: TableEntry) -> bool:
    """Whether the target still has the base's version."""
    return _place(base) == _place(target)


def _place(entry: TableEntry) -> tuple[str | None, int]:
    return entry.owner, entry.version
