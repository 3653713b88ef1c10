"""How tables come over: by pointer, by replay, or not at all."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from omnigraph import failpoints
from omnigraph.engine.graph.lineage import Commit
from omnigraph.engine.graph.manifest import EMPTY_STATE, TableEntry
from omnigraph.engine.graph.open_graph import AtBranch
from omnigraph.engine.graph.snapshot import Snapshot
from omnigraph.engine.graph.snapshot_tables import open_table
from omnigraph.engine.merge.merge_inputs import MergeSource, TableStrategy, choose_strategy, find_merge_inputs
from omnigraph.errors import BadRequest, BranchNotFound, MergeConflicts, NoCommonCommit
from omnigraph.graph import Graph
from tests.engine.merge.family import (
    KNOWS,
    PERSON,
    PET,
    everything,
    heads,
    knows,
    person,
    pet,
    put,
    remove,
    rows,
    value,
)


def place(graph: Graph, key: str, branch: str = "main") -> tuple[str, int]:
    found = graph.snapshot(branch).tables[key]
    return found.branch, found.version


def versions(graph: Graph, key: str, branch: str = "main") -> dict[str, tuple[int, int, int]]:
    """Where each row is, and the versions that made and changed it."""
    opened = graph._opened
    table = open_table(opened, opened.snapshot(AtBranch(branch)), key)
    marks = ["_rowid", "_row_created_at_version", "_row_last_updated_at_version"]
    return {row["id"]: tuple(row[mark] for mark in marks) for row in table.scan(["id", *marks]).to_pylist()}


@pytest.mark.parametrize(
    ("base", "source", "target", "owner", "expected"),
    [
        (("main", 5), ("main", 5), ("main", 7), "work", TableStrategy.NOTHING),
        (("main", 5), ("side", 6), ("side", 6), "work", TableStrategy.NOTHING),
        (("main", 5), ("main", 7), ("main", 5), "work", TableStrategy.ADOPT),
        (("work", 6), ("main", 7), ("work", 6), "side", TableStrategy.ADOPT),
        (("work", 9), ("main", 7), ("work", 9), "side", TableStrategy.REPLAY),
        (("work", 6), ("main", 7), ("work", 6), "work", TableStrategy.REPLAY),
        (("main", 5), ("main", 7), ("main", 6), "work", TableStrategy.REPLAY),
        (("main", 5), ("side", 7), ("main", 5), "work", TableStrategy.REPLAY),
        (("main", 5), ("side", 7), ("main", 5), "main", TableStrategy.REPLAY),
    ],
)
def test_a_table_is_adopted_only_from_main_upwards_and_by_who_did_not_write_it(
    base: tuple[str, int],
    source: tuple[str, int],
    target: tuple[str, int],
    owner: str,
    expected: TableStrategy,
) -> None:
    def entry(at: tuple[str, int]) -> TableEntry:
        return TableEntry(PERSON, "nodes/x", at[1], None if at[0] == "main" else at[0], 1)

    assert (
        choose_strategy(entry(base), entry(source), entry(target), None if owner == "main" else owner)
        is expected
    )


def test_a_branch_that_did_not_write_a_type_points_at_mains_table(graph: Graph) -> None:
    put(graph, person("dan"), person("ann", age=9))
    remove(graph, "Person", "cid")
    put(graph, pet("dog"), branch="work")
    done = graph.merge("main", "work")
    assert place(graph, PERSON, "work") == place(graph, PERSON)
    assert place(graph, PET, "work")[0] == "work"
    assert rows(graph, PERSON, "work") == rows(graph, PERSON)
    assert rows(graph, PET, "work").keys() == {"cat", "dog"}
    assert done.changes[PERSON].to_json() == {"inserted": 1, "updated": 1, "deleted": 1}
    assert graph.snapshot("work").tables[PERSON].rows == 3
    put(graph, person("eve"), branch="work")
    assert rows(graph, PERSON, "work").keys() == {"ann", "bob", "dan", "eve"}
    assert rows(graph, PERSON).keys() == {"ann", "bob", "dan"}


def test_a_pointer_never_goes_to_a_lower_number(graph: Graph) -> None:
    for age in range(5):
        put(graph, person("ann", age=age), branch="work")
    graph.branches.create("side", from_="work")
    graph.merge("work")
    put(graph, person("bob", age=7))
    owner, number = place(graph, PERSON, "side")
    assert owner == "work"
    assert number > place(graph, PERSON)[1]
    graph.merge("main", "side")
    assert place(graph, PERSON, "side")[0] == "side"
    assert rows(graph, PERSON, "side") == rows(graph, PERSON)


def test_a_replay_keeps_what_it_does_not_change(graph: Graph) -> None:
    before = versions(graph, PERSON)
    put(graph, person("ann", age=9), person("dan"), branch="work")
    remove(graph, "Person", "cid", "work")
    graph.merge("work")
    after = versions(graph, PERSON)
    assert after.keys() == {"ann", "bob", "dan"}
    assert after["bob"] == before["bob"]
    assert after["ann"][:2] == before["ann"][:2]
    assert place(graph, PERSON)[0] == "main"


@pytest.mark.parametrize("into", ["main", "side"])
def test_a_source_can_be_deleted_once_it_is_merged(graph: Graph, into: str) -> None:
    graph.branches.create("side")
    put(graph, person("dan"), pet("dog"), branch="work")
    done = graph.merge("work", into, delete_branch=True)
    assert done.branch_deleted
    assert "work" not in graph.branches
    assert {"dan"} < rows(graph, PERSON, into).keys()
    put(graph, person("eve"), branch=into)
    assert {"dan", "eve"} < rows(graph, PERSON, into).keys()


def test_a_merge_stands_when_its_source_cannot_be_deleted(graph: Graph) -> None:
    put(graph, person("dan"), branch="work")
    graph.branches.create("below", from_="work")
    done = graph.merge("work", delete_branch=True)
    assert (done.outcome.value, done.branch_deleted) == ("fast_forward", False)
    assert done.branch_delete_error is not None
    assert "below" in done.branch_delete_error
    assert "dan" in rows(graph, PERSON)


def test_tables_whose_changes_cancel_out_stay_where_they_are(graph: Graph) -> None:
    put(graph, person("ann", age=9), pet("dog"), branch="work")
    put(graph, person("ann", age=1, city="here"), branch="work")
    remove(graph, "Pet", "dog", "work")
    put(graph, knows("k2", "bob", "cid"), branch="work")
    before = {key: place(graph, key) for key in (PERSON, PET, KNOWS)}
    done = graph.merge("work")
    assert done.changes.keys() == {KNOWS}
    assert [place(graph, key) == before[key] for key in (PERSON, PET, KNOWS)] == [True, True, False]


def test_a_merge_without_any_change_is_still_a_commit(graph: Graph) -> None:
    put(graph, person("ann", age=9), branch="work")
    put(graph, person("ann", age=1, city="here"), branch="work")
    put(graph, pet("dog"))
    done = graph.merge("work", actor="eve")
    assert (done.outcome.value, dict(done.changes)) == ("merged", {})
    assert done.commit is not None
    assert done.commit.actor == "eve"
    assert graph.merge("work").outcome.value == "already_up_to_date"


def test_several_deep_and_back_again(graph: Graph) -> None:
    put(graph, person("w"), branch="work")
    graph.branches.create("deeper", from_="work")
    put(graph, person("d", age=1), branch="deeper")
    graph.branches.create("deepest", from_="deeper")
    put(graph, person("d", age=2), person("z"), branch="deepest")
    put(graph, person("m"))
    graph.merge("deepest")
    assert rows(graph, PERSON).keys() == {"ann", "bob", "cid", "w", "d", "z", "m"}
    graph.merge("deepest", "deeper")
    graph.merge("deeper", "work")
    graph.merge("main", "work")
    assert everything(graph, "work") == everything(graph)
    assert graph.merge("work").changes == {}
    assert everything(graph, "work") == everything(graph)


def test_merges_back_and_forth_only_bring_what_is_new(graph: Graph) -> None:
    for round_ in range(4):
        put(graph, person("ann", age=round_), branch="work")
        put(graph, person("bob", age=round_))
        assert graph.merge("work").changes[PERSON].updated == 1
        graph.merge("main", "work")
        assert everything(graph) == everything(graph, "work")
    assert (value(graph, PERSON, "ann", "age"), value(graph, PERSON, "bob", "age")) == (3, 3)


def test_criss_cross_histories_merge(graph: Graph) -> None:
    put(graph, person("ann", age=5), branch="work")
    put(graph, person("bob", age=6))
    graph.branches.create("old-work", from_="work")
    graph.merge("main", "work")
    graph.merge("old-work")
    put(graph, person("cid", age=7), branch="work")
    put(graph, person("dan"))
    assert graph.merge("work").outcome.value == "merged"
    assert [value(graph, PERSON, name, "age") for name in ("ann", "bob", "cid")] == [5, 6, 7]
    assert "dan" in rows(graph, PERSON)
    put(graph, person("ann", age=8), branch="work")
    put(graph, person("ann", age=9))
    with pytest.raises(MergeConflicts):
        graph.merge("work")


@pytest.mark.parametrize("optimized", [("main",), ("work",), ("main", "work")])
def test_compaction_on_either_side_changes_nothing(graph: Graph, optimized: tuple[str, ...]) -> None:
    for number in range(4):
        put(graph, person(f"m{number}"))
        put(graph, person(f"w{number}"), branch="work")
    put(graph, person("ann", age=2), branch="work")
    remove(graph, "Person", "m0")
    remove(graph, "Person", "cid", "work")
    for branch in optimized:
        graph.optimize(branch)
    done = graph.merge("work")
    assert done.changes[PERSON].to_json() == {"inserted": 4, "updated": 1, "deleted": 1}
    kept = {"ann", "bob", *(f"m{number}" for number in (1, 2, 3)), *(f"w{number}" for number in range(4))}
    assert rows(graph, PERSON).keys() == kept
    graph.optimize()
    assert graph.merge("work").outcome.value == "already_up_to_date"


def test_branches_made_after_a_schema_change_merge_several_deep(graph: Graph) -> None:
    """The base is the commit that rewrote every table, under other names and with other columns."""
    put(graph, person("dan", age=4), pet("cat", weight=1.5))
    graph.branches.delete("work")
    wanted = graph.schema_source.replace("age: I32?", 'years: I64? @rename_from("age")')
    wanted = wanted.replace("Person", "Human")
    graph.apply_schema(wanted.replace("node Human {", 'node Human @rename_from("Person") {'))
    graph.optimize()
    graph.branches.create("work")
    graph.branches.create("deeper", from_="work")

    def years(**changes: int) -> list[dict[str, Any]]:
        return [{"type": "Human", "data": {"name": name, "years": age}} for name, age in changes.items()]

    put(graph, *years(ann=11, eve=1), branch="deeper")
    graph.mutate('query q() { delete Human where name = "dan" }', branch="deeper")
    put(graph, *years(bob=12), branch="work")
    put(graph, *years(cid=13))
    graph.optimize("work")
    graph.merge("deeper", "work")
    graph.merge("work")
    people = graph.snapshot().rows("Human", columns=["id", "years"]).to_pylist()
    assert {row["id"]: row["years"] for row in people} == {"ann": 11, "bob": 12, "cid": 13, "eve": 1}
    put(graph, *years(ann=20), branch="deeper")
    put(graph, *years(ann=21))
    with pytest.raises(MergeConflicts) as refused:
        graph.merge("deeper")
    assert [(one.entity_id, one.properties) for one in refused.value.conflicts] == [("ann", ("years",))]


def test_what_the_source_does_later_is_left_out(graph: Graph) -> None:
    put(graph, person("dan"), branch="work")
    head = heads(graph)["work"][0]
    late = failpoints.once(lambda: put(graph, person("late"), branch="work"))
    with failpoints.arm(failpoints.BRANCH_MERGE_POST_AUTHORITY_CAPTURE, late):
        done = graph.merge("work")
    assert done.commit is not None
    assert done.commit.merged_parent == head
    assert "late" not in rows(graph, PERSON)
    assert graph.merge("work").changes[PERSON].inserted == 1


def test_a_target_that_moved_is_merged_again(graph: Graph) -> None:
    put(graph, person("dan", age=1), branch="work")
    overtake = failpoints.once(lambda: put(graph, person("eve")))
    with failpoints.arm(failpoints.BRANCH_MERGE_POST_CANDIDATE_VALIDATION, overtake):
        done = graph.merge("work")
    assert done.outcome.value == "merged"
    assert {"dan", "eve"} < rows(graph, PERSON).keys()


def test_a_conflict_that_comes_up_meanwhile_is_found(graph: Graph) -> None:
    put(graph, person("dan", age=1), branch="work")
    overtake = failpoints.once(lambda: put(graph, person("dan", age=2)))
    with (
        failpoints.arm(failpoints.BRANCH_MERGE_POST_CANDIDATE_VALIDATION, overtake),
        pytest.raises(MergeConflicts),
    ):
        graph.merge("work")
    assert value(graph, PERSON, "dan", "age") == 2


@pytest.mark.parametrize(
    ("source", "into", "error"),
    [
        ("work", "work", BadRequest),
        (" main", "main", BadRequest),
        ("nowhere", "main", BranchNotFound),
        ("work", "nowhere", BranchNotFound),
    ],
)
@pytest.mark.parametrize("dry_run", [True, False])
def test_two_branches_are_needed(graph: Graph, source: str, into: str, error: Any, dry_run: bool) -> None:
    with pytest.raises(error):
        graph.merge(source, into, dry_run=dry_run)


def test_branches_without_a_common_commit_are_refused(graph: Graph) -> None:
    at = graph._opened.snapshot(AtBranch("main"))
    unrelated = Commit("unrelated", "work", 1, 1)
    stranger = MergeSource(
        Snapshot("work", 1, unrelated, {}), replace(EMPTY_STATE, commits={"unrelated": unrelated})
    )
    with pytest.raises(NoCommonCommit, match="'work' and 'main' have no commit in common"):
        find_merge_inputs(graph._opened, stranger, at)


def test_what_came_with_a_third_branch_is_known_from_there(graph: Graph) -> None:
    put(graph, person("ann", age=2), branch="work")
    graph.branches.create("stacked", from_="work")
    put(graph, person("ann", age=3), branch="work")
    put(graph, person("dan"), branch="stacked")
    put(graph, person("eve"))
    graph.merge("work")
    assert graph.merge("stacked").changes[PERSON].to_json() == {"inserted": 1, "updated": 0, "deleted": 0}
    assert value(graph, PERSON, "ann", "age") == 3


def test_what_came_with_a_third_branch_makes_a_branch_up_to_date(graph: Graph) -> None:
    put(graph, person("ann", age=2), branch="work")
    graph.branches.create("stacked", from_="work")
    put(graph, person("ann", age=3), branch="work")
    put(graph, person("eve"))
    graph.merge("work")
    assert graph.merge("stacked").outcome.value == "already_up_to_date"
