"""A merge that is interrupted is made or not made, and can be repeated."""

from __future__ import annotations

import pytest

import omnigraph
from omnigraph import failpoints
from omnigraph.errors import OmnigraphError
from omnigraph.graph import Graph
from omnigraph.storage import upsert as upserting
from tests.engine.graphs import require_linear
from tests.engine.merge.family import everything, knows, person, pet, put, remove

BEFORE = [
    failpoints.BRANCH_MERGE_POST_AUTHORITY_CAPTURE,
    failpoints.BRANCH_MERGE_POST_CANDIDATE_VALIDATION,
]
UNDONE = [
    failpoints.MUTATION_BETWEEN_TABLE_VERSIONS,
    failpoints.BRANCH_MERGE_ADOPT_AFTER_UPSERT_PRE_DELETE,
    failpoints.BRANCH_MERGE_POST_EFFECTS_PRE_CONFIRM,
]
FINISHED = [failpoints.BRANCH_MERGE_POST_PHASE_B_PRE_MANIFEST_COMMIT]


@pytest.fixture
def diverged_graph(graph: Graph) -> Graph:
    """Two branches that both changed; the source inserts, changes and deletes people."""
    put(graph, person("ann", age=5), person("dan"), pet("dog"), knows("k2", "ann", "bob"), branch="work")
    remove(graph, "Person", "cid", "work")
    put(graph, person("eve"))
    return graph


@pytest.mark.parametrize("into", ["main", "side"])
@pytest.mark.parametrize("point", [*BEFORE, *UNDONE, *FINISHED])
def test_it_is_made_as_a_whole_or_not_at_all(
    diverged_graph: Graph, point: str, into: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    diverged_graph.branches.create("side")
    if point == failpoints.MUTATION_BETWEEN_TABLE_VERSIONS:
        # Where there are many rows, they are replaced in two versions.
        monkeypatch.setattr(upserting, "_LARGE", 1)
    before = everything(diverged_graph, into)
    with failpoints.arm(point, failpoints.error(point)), pytest.raises(OmnigraphError, match=point):
        diverged_graph.merge("work", into)
    assert everything(diverged_graph, into) == before

    with omnigraph.open(diverged_graph.uri) as again:
        done = again.merge("work", into)
        assert done.outcome.value == ("already_up_to_date" if point in FINISHED else "merged")
        assert everything(again, into)["node:Person"].keys() == {"ann", "bob", "dan", "eve"}
        assert everything(again, into)["edge:Knows"].keys() == {"k1", "k2"}
        assert everything(again, into)["node:Pet"].keys() == {"cat", "dog"}
        assert again.merge("work", into).outcome.value == "already_up_to_date"
        merges = [commit for commit in again.commits.list(into) if commit.merged_parent is not None]
        assert len(merges) == 1
        commits = again._opened.load(into).state.commits.values()
        require_linear(commits, {commit.id for commit in commits if commit.parent is not None})
