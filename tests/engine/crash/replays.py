"""Reverts, cherry-picks and resets for the crash matrix."""

from __future__ import annotations

from omnigraph import failpoints
from omnigraph.engine.graph.lineage import Commit, newest_first
from omnigraph.engine.graph.open_graph import OpenGraph
from omnigraph.engine.merge.replay import Replay, ReplayChoices, cherry_pick, reset, revert
from omnigraph.engine.write.transaction import Author
from tests.engine.crash.steps import BRANCH, Step, Write, left_at, make_branch, recovery
from tests.engine.crash.world import ACTOR, change
from tests.engine.mutations import run_mutation

WRONG = "wrong"
"""The message of the commit that is taken back, or taken in."""


def _replays(run: Replay, branch: str = "main") -> Step:
    return lambda graph: run(graph, _find_wrong(graph), Author(branch, ACTOR), ReplayChoices())


def _find_wrong(graph: OpenGraph) -> Commit:
    commits = newest_first(graph.load("main").state.commits.values())
    return next(one for one in commits if one.message == WRONG)


def _go_wrong(graph: OpenGraph) -> None:
    """A commit that adds, changes and removes, and one after it."""
    text = 'update Person set { age: 50 } where name = "ada"  insert Person { name: "hal" }'
    run_mutation(graph, text, Author("main", ACTOR, message=WRONG))
    change(graph, 'insert Team { name: "night" }')


def _go_wrong_beside(graph: OpenGraph) -> None:
    """The same, beside a branch without tables of its own."""
    make_branch(graph)
    _go_wrong(graph)


CONFIRMED = failpoints.MUTATION_POST_FINALIZE_PRE_PUBLISHER
HALF = failpoints.BRANCH_MERGE_ADOPT_AFTER_UPSERT_PRE_DELETE

REPLAYS: dict[str, Write] = {
    "revert": Write(_replays(revert), _go_wrong, again=True),
    "cherry-pick": Write(_replays(cherry_pick, BRANCH), _go_wrong_beside, BRANCH, again=True),
    "reset": Write(_replays(reset), _go_wrong, restores=True),
    "recover-revert-back": Write(recovery, left_at(HALF, _replays(revert), _go_wrong), recovers=True),
    "recover-revert-forward": Write(recovery, left_at(CONFIRMED, _replays(revert), _go_wrong), recovers=True),
}
