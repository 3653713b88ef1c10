"""A branch that inherits indexes can be optimised, tidied, cleaned up and written, again and again."""

from __future__ import annotations

import logging
import shutil
from collections.abc import Callable

import pytest
from lance.optimize import Compaction, CompactionOptions

import omnigraph as og
from omnigraph.engine.branches.manage import create_branch
from omnigraph.engine.graph.open_graph import AtCommit, OpenGraph
from omnigraph.engine.graph.root import Root
from omnigraph.engine.graph.snapshot_tables import open_table
from omnigraph.engine.maintenance.optimize import OptimizedTable, OptimizeResult, optimize
from omnigraph.engine.merge.merge import MergeRequest, merge
from omnigraph.engine.upkeep.table_rewrite import MIN_FRAGMENTS
from omnigraph.engine.write.transaction import Author
from omnigraph.errors import StorageFailure
from omnigraph.storage.index_files import find_misplaced_indexes
from omnigraph.storage.location import Location
from omnigraph.storage.objects import Recorder
from omnigraph.storage.tables import checkout_newest
from tests.engine.cleanup.world import clean
from tests.engine.crash.world import change, require_settled
from tests.engine.upkeep_graph import (
    CITES,
    DOC,
    add_docs,
    commits_of,
    docs_graph,
    indexes_of,
    plan_of,
    table_of,
    texts_with,
)

MAIN, WORK = Author("main", "ada"), Author("work", "bo")
SETTING = "OMNIGRAPH_AUTO_UPKEEP"


@pytest.fixture
def graph(folder: Location) -> OpenGraph:
    """Six documents in a row, under indexes; `work` is a branch of it."""
    made = docs_graph(folder)
    add_docs(made, range(6))
    change(made, " ".join(f'insert Cites {{ from: "d{at}", to: "d{at + 1}" }}' for at in range(5)))
    optimize(made, MAIN)
    create_branch(made, "work")
    return made


def ids(graph: OpenGraph, where: str, key: str = DOC, branch: str = "work") -> list[str]:
    return sorted(table_of(graph, key, branch).scan(["id"], where=where).column("id").to_pylist())


def ends(graph: OpenGraph, branch: str = "work") -> list[tuple[str, str]]:
    """Who cites whom, found by the indexes of the ends of edges."""
    edges = table_of(graph, CITES, branch)
    assert "ScalarIndexQuery" in plan_of(edges, "src >= 'd'")
    found = edges.scan(["src", "dst"], where="src >= 'd' AND dst >= 'd'").to_pylist()
    return sorted((row["src"], row["dst"]) for row in found)


def done_to(result: OptimizeResult, key: str) -> OptimizedTable:
    (found,) = (one for one in result.tables if one.key == key)
    return found


def require_whole(graph: OpenGraph, branch: str = "work") -> None:
    """Every index is where its table looks for it, and complete."""
    for key in (DOC, CITES):
        assert find_misplaced_indexes(table_of(graph, key, branch)) is None
        assert all(one.is_complete and one.segments == 1 for one in indexes_of(graph, key, branch).values())


def compact_by_lance(graph: OpenGraph, *keys: str) -> None:
    """What a compaction without index upkeep leaves on `work`: indexes whose files are elsewhere."""
    for key in keys:
        native = checkout_newest(table_of(graph, key, "work").native)
        plan = Compaction.plan(native, CompactionOptions())
        Compaction.commit(native, [task.execute(native) for task in plan.tasks])


def remove_index_files(graph: OpenGraph) -> None:
    found = list(graph.root.layout.root.path.rglob("_indices"))
    assert found
    for folder in found:
        shutil.rmtree(folder)


# --- optimize ------------------------------------------------------------------------------------


def test_a_branch_that_was_optimised_can_be_written_and_uses_its_indexes(graph: OpenGraph) -> None:
    change(graph, 'delete Doc where slug = "d0"', "work")
    optimize(graph, WORK)
    require_whole(graph)
    assert (ids(graph, "id = 'd0'"), ids(graph, "id = 'd1'")) == ([], ["d1"])
    assert "ScalarIndexQuery" in plan_of(table_of(graph, DOC, "work"), "id = 'd1'")
    assert ends(graph) == [(f"d{at}", f"d{at + 1}") for at in range(1, 5)]
    change(graph, 'insert Doc { slug: "n" } insert Cites { from: "n", to: "d1" }', "work")
    change(graph, 'update Doc set { score: 99, text: "swimming" } where slug = "d1"', "work")
    change(graph, 'delete Doc where slug = "d5"', "work")
    assert ids(graph, "score = 99") == ["d1"]
    assert texts_with(table_of(graph, DOC, "work"), "swim") == {"d1"}
    assert ends(graph) == [("d1", "d2"), ("d2", "d3"), ("d3", "d4"), ("n", "d1")]
    assert ids(graph, "id >= 'a'", branch="main") == [f"d{at}" for at in range(6)]
    require_settled(graph)


def test_it_can_be_optimised_over_and_over_and_so_can_a_branch_of_it(graph: OpenGraph) -> None:
    for at in range(3):
        change(graph, f'delete Doc where slug = "d{at}"', "work")
        change(graph, f'insert Doc {{ slug: "n{at}" }}', "work")
        optimize(graph, WORK)
        require_whole(graph)
    assert optimize(graph, WORK).commit is None
    create_branch(graph, "deeper", from_branch="work")
    change(graph, 'delete Doc where slug = "d3"', "deeper")
    optimize(graph, Author("deeper"))
    require_whole(graph, "deeper")
    change(graph, 'insert Doc { slug: "n9" }', "deeper")
    assert ids(graph, "id >= 'a'", branch="deeper") == ["d4", "d5", "n0", "n1", "n2", "n9"]
    assert ids(graph, "id >= 'a'") == ["d3", "d4", "d5", "n0", "n1", "n2"]
    require_settled(graph)


def test_it_can_be_merged_afterwards(graph: OpenGraph) -> None:
    change(graph, 'delete Doc where slug = "d0"', "work")
    optimize(graph, WORK)
    change(graph, 'insert Doc { slug: "n" }', "work")
    change(graph, 'update Doc set { score: 99 } where slug = "d2"')
    merge(graph, MergeRequest("work"), MAIN)
    assert ids(graph, "id >= 'a'", branch="main") == ["d1", "d2", "d3", "d4", "d5", "n"]
    assert ids(graph, "score = 99", branch="main") == ["d2"]
    optimize(graph, MAIN)
    require_whole(graph, "main")
    change(graph, 'delete Doc where slug = "d2"')
    assert ends(graph, "main") == [("d3", "d4"), ("d4", "d5")]


def test_cleanup_of_all_branches_leaves_the_indexes_that_are_used(graph: OpenGraph) -> None:
    change(graph, 'insert Doc { slug: "n" }', "work")
    for at in range(2):
        change(graph, f'delete Doc where slug = "d{at}"')
        optimize(graph, MAIN)
    clean(graph)
    fresh = OpenGraph.open(Root.at(graph.root.layout.root))
    assert find_misplaced_indexes(table_of(fresh, DOC, "work")) is None
    assert ids(fresh, "id = 'd0'") == ["d0"]
    change(fresh, 'delete Doc where slug = "d3"', "work")
    optimize(fresh, WORK)
    clean(fresh)
    fresh = OpenGraph.open(Root.at(graph.root.layout.root))
    require_whole(fresh)
    change(fresh, 'update Doc set { score: 99 } where slug = "d0"', "work")
    assert ids(fresh, "id >= 'a'") == ["d0", "d1", "d2", "d4", "d5", "n"]
    assert texts_with(table_of(fresh, DOC, "work"), "walk") == {"d0", "d1", "d2", "d4", "d5"}


# --- upkeep by itself ----------------------------------------------------------------------------


def crowd_fragments(graph: OpenGraph, monkeypatch: pytest.MonkeyPatch) -> None:
    """Many small fragments on main, under indexes, which the next write will put together."""
    monkeypatch.setenv(SETTING, "off")
    for at in range(MIN_FRAGMENTS + 2):
        change(graph, f'insert Doc {{ slug: "m{at}" }}')
    with og.open(graph.root.layout.root.path) as user:
        user.ensure_indices()
    monkeypatch.delenv(SETTING)


def test_a_branch_that_is_tidied_by_itself_can_be_written_on(
    folder: Location, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = docs_graph(folder)
    crowd_fragments(graph, monkeypatch)
    create_branch(graph, "work")
    change(graph, 'delete Doc where slug = "m3"', "work")
    tidied = table_of(graph, DOC, "work")
    assert tidied.fragment_count < MIN_FRAGMENTS, "upkeep was due"
    assert find_misplaced_indexes(tidied) is None
    for at in range(2 * MIN_FRAGMENTS):
        change(graph, f'insert Doc {{ slug: "n{at}" }}', "work")
    change(graph, 'update Doc set { score: 99 } where slug = "m4"', "work")
    assert ids(graph, "score = 99") == ["m4"]
    assert ids(graph, "id IN ('m3', 'm4', 'n1')") == ["m4", "n1"]
    assert "ScalarIndexQuery" in plan_of(table_of(graph, DOC, "work"), "id = 'm4'")
    require_settled(graph)


def test_upkeep_that_dies_in_between_leaves_a_branch_that_can_be_written_and_the_next_one_repairs(
    folder: Location, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    graph = docs_graph(folder)
    crowd_fragments(graph, monkeypatch)
    create_branch(graph, "work")

    class Dying(Recorder):
        """Fails between a compaction of Lance's and its repair."""

        compacted = False

        def __call__(self, op: str, uri: str, /) -> None:
            self.compacted |= op == "commit_compaction" and "tree/work" in uri
            if op == "find_index_files" and self.compacted:
                raise StorageFailure("no room", kind="Transient", uri=uri)

    with caplog.at_level(logging.WARNING, "omnigraph"):
        change(OpenGraph.open(Root.at(folder, Dying())), 'delete Doc where slug = "m3"', "work")
    assert "no room" in caplog.text
    assert find_misplaced_indexes(table_of(graph, DOC, "work").latest()) is not None
    whole = OpenGraph.open(Root.at(folder))
    change(whole, 'update Doc set { score: 99 } where slug = "m4"', "work")
    change(whole, 'delete Doc where slug = "m5"', "work")
    assert ids(whole, "id IN ('m3', 'm4', 'm5', 'm6')") == ["m4", "m6"]
    for at in range(MIN_FRAGMENTS + 1):
        change(whole, f'insert Doc {{ slug: "n{at}" }}', "work")
    assert find_misplaced_indexes(table_of(whole, DOC, "work")) is None
    assert "ScalarIndexQuery" in plan_of(table_of(whole, DOC, "work"), "id = 'm4'")
    require_settled(whole)


# --- damage --------------------------------------------------------------------------------------


def misplace_indexes(graph: OpenGraph) -> None:
    change(graph, 'delete Doc where slug = "d0"', "work")
    compact_by_lance(graph, DOC, CITES)
    change(graph, 'update Doc set { level: "low" } where slug = "d1"', "work")
    change(graph, 'delete Cites where from = "d1"', "work")


def lose_indexes(graph: OpenGraph) -> None:
    change(graph, 'delete Doc where slug = "d0"', "work")
    change(graph, 'delete Cites where from = "d1"', "work")
    remove_index_files(graph)


@pytest.mark.parametrize("damage", [misplace_indexes, lose_indexes])
def test_a_branch_whose_indexes_have_no_files_is_read_written_and_repaired(
    graph: OpenGraph, folder: Location, damage: Callable[[OpenGraph], None]
) -> None:
    damage(graph)
    graph = OpenGraph.open(Root.at(folder))
    assert find_misplaced_indexes(table_of(graph, DOC, "work")) is not None
    assert find_misplaced_indexes(table_of(graph, CITES, "work")) is not None
    change(graph, 'insert Doc { slug: "n" } insert Cites { from: "n", to: "d2" }', "work")
    change(graph, 'update Doc set { score: 99, text: "swimming" } where slug = "d1"', "work")
    change(graph, 'delete Doc where slug = "d5"', "work")
    with og.open(folder.path) as user:
        found = user.query(
            "query q() { match { $a: Doc $a cites $b } return { $a.slug as a, $b.slug as b } order { a } }",
            branch="work",
        ).rows()
        assert found == [{"a": a, "b": b} for a, b in (("d2", "d3"), ("d3", "d4"), ("n", "d2"))]
        swims = 'query q() { match { $a: Doc search($a.text, "swim") } return { $a.slug as a } }'
        assert user.query(swims, branch="work").rows() == [{"a": "d1"}]
    past = commits_of(graph, "work")[-1]
    optimize(graph, WORK)
    require_whole(graph)
    assert ids(graph, "score = 99") == ["d1"]
    assert texts_with(table_of(graph, DOC, "work"), "swim") == {"d1"}
    assert ends(graph) == [("d2", "d3"), ("d3", "d4"), ("n", "d2")]
    assert {"id_idx", "text_idx", "score_idx"} <= indexes_of(graph, DOC, "work").keys()
    change(graph, 'insert Doc { slug: "n2" }', "work")
    assert optimize(graph, WORK).commit is not None
    require_whole(graph)
    assert open_table(graph, graph.snapshot(AtCommit(past.id)), DOC).count("id >= 'd'") == 5
    require_settled(graph)


def test_an_index_that_lies_elsewhere_is_reported_and_not_built_again(
    graph: OpenGraph, folder: Location
) -> None:
    change(graph, 'delete Doc where slug = "d0"', "work")
    compact_by_lance(graph, DOC)
    change(graph, 'delete Doc where slug = "d1"', "work")
    graph = OpenGraph.open(Root.at(folder))
    assert find_misplaced_indexes(table_of(graph, DOC, "work")) is not None
    assert done_to(optimize(graph, WORK), DOC).indexes == ()
    require_whole(graph)
    assert ids(graph, "id >= 'a'") == ["d2", "d3", "d4", "d5"]


def test_main_without_index_files_is_read_written_and_repaired_too(
    graph: OpenGraph, folder: Location
) -> None:
    remove_index_files(graph)
    graph = OpenGraph.open(Root.at(folder))
    change(graph, 'update Doc set { score: 99 } where slug = "d1"')
    change(graph, 'delete Doc where slug = "d5"')
    assert ids(graph, "score = 99", branch="main") == ["d1"]
    done = optimize(graph, MAIN)
    assert set(done_to(done, DOC).indexes) == {"id", "text", "level", "score"}
    require_whole(graph, "main")
    assert ends(graph, "main") == [(f"d{at}", f"d{at + 1}") for at in range(4)]
