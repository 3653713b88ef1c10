"""Merges for the crash matrix: tables that move once or twice, are forked, are pointed at, or stay."""

from __future__ import annotations

from unittest.mock import patch

from omnigraph import failpoints
from omnigraph.engine.branches.manage import create_branch
from omnigraph.engine.changes import comparison
from omnigraph.engine.changes.comparison import RunnerChoice
from omnigraph.engine.graph.open_graph import OpenGraph
from omnigraph.engine.merge.merge import MergeRequest, merge
from omnigraph.engine.write.transaction import Author
from tests.engine.crash.steps import BRANCH, Step, Write, left_at, make_branch, recovery, touch_branch
from tests.engine.crash.world import ACTOR, change

OTHER = "other"


def merges(source: str = BRANCH, into: str = "main", *, delete_branch: bool = False) -> Step:
    return lambda graph: merge(graph, MergeRequest(source, delete_branch=delete_branch), Author(into, ACTOR))


def _merges_in_buckets(source: str = BRANCH, into: str = "main") -> Step:
    """As a merge of very many rows, which wait in files of their own."""

    def step(graph: OpenGraph) -> object:
        with patch.object(comparison, "LARGE_CHANGE", -1):
            return merge(
                graph, MergeRequest(source, runner_choice=RunnerChoice("local")), Author(into, ACTOR)
            )

    return step


def _ahead(graph: OpenGraph) -> None:
    """A branch with new, changed and deleted people, and edges that came and went with them."""
    touch_branch(graph)
    change(graph, 'update Person set { age: 50 } where name = "ada"', BRANCH)
    change(graph, 'delete Person where name = "cy"', BRANCH)


def _main_goes_on(graph: OpenGraph) -> None:
    change(graph, 'insert Person { name: "eve" }  insert Team { name: "night" }')


def part_branches(graph: OpenGraph) -> None:
    """The same, and main has other people by now."""
    _ahead(graph)
    _main_goes_on(graph)


def _behind(graph: OpenGraph) -> None:
    """A branch without tables of its own, and main has gone on."""
    make_branch(graph)
    _main_goes_on(graph)


def _behind_in_part(graph: OpenGraph) -> None:
    """A branch with people of its own and without teams of its own, and main has gone on with both."""
    touch_branch(graph)
    _main_goes_on(graph)


def _beside(graph: OpenGraph) -> None:
    """A third branch without tables of its own."""
    _ahead(graph)
    create_branch(graph, OTHER)


def _undone_by_itself(graph: OpenGraph) -> None:
    """A branch whose changes cancel each other out."""
    create_branch(graph, BRANCH)
    change(graph, 'insert Person { name: "fay" }', BRANCH)
    change(graph, 'delete Person where name = "fay"', BRANCH)


UNFORKED = failpoints.MUTATION_POST_SIDECAR_PRE_FORK
HALF = failpoints.BRANCH_MERGE_ADOPT_AFTER_UPSERT_PRE_DELETE
MOVED = failpoints.BRANCH_MERGE_POST_EFFECTS_PRE_CONFIRM
CONFIRMED = failpoints.BRANCH_MERGE_POST_PHASE_B_PRE_MANIFEST_COMMIT

MERGES: dict[str, Write] = {
    "merge-fast-forward": Write(merges(), touch_branch, again=True),
    "merge-three-way": Write(merges(), part_branches, again=True),
    "merge-in-buckets": Write(_merges_in_buckets(), part_branches, again=True),
    "merge-adopt": Write(merges("main", BRANCH), _behind, BRANCH, again=True),
    "merge-adopt-and-replay": Write(merges("main", BRANCH), _behind_in_part, BRANCH, again=True),
    "merge-first-touch": Write(merges(BRANCH, OTHER), _beside, OTHER, again=True),
    "merge-net-zero": Write(merges(), _undone_by_itself, again=True),
    "merge-delete-branch": Write(merges(delete_branch=True), part_branches, halfway=merges()),
}
RECOVERED_MERGES: dict[str, Write] = {
    "recover-merge-back": Write(recovery, left_at(HALF, merges(), part_branches), recovers=True),
    "recover-merge-unforked": Write(
        recovery, left_at(UNFORKED, merges(BRANCH, OTHER), _beside), OTHER, recovers=True
    ),
    "recover-merge-first-touch": Write(
        recovery, left_at(MOVED, merges(BRANCH, OTHER), _beside), OTHER, recovers=True
    ),
    "recover-merge-forward": Write(recovery, left_at(CONFIRMED, merges(), part_branches), recovers=True),
    "recover-merge-adopt": Write(
        recovery, left_at(CONFIRMED, merges("main", BRANCH), _behind_in_part), BRANCH, recovers=True
    ),
}
