"""Where a merge starts and what the base holds, after criss-cross merges and after branches were deleted."""

from __future__ import annotations

import pickle
import shutil
from contextlib import nullcontext
from pathlib import Path
from typing import Literal

import lance
import pyarrow as pa
import pytest

import omnigraph
from omnigraph import failpoints
from omnigraph.engine.branches.saved_bases import (
    list_saved_commits,
    read_saved_base,
    record_taken_commit,
    save_bases,
)
from omnigraph.engine.graph.manifest import MAIN
from omnigraph.engine.graph.open_graph import AtBranch
from omnigraph.engine.merge.merge_inputs import capture_source, find_merge_inputs
from omnigraph.engine.merge.patched_side import PatchedSide, read_rows_by_id
from omnigraph.errors import BranchNotFound
from omnigraph.graph import Graph
from tests.engine.changes.world import few_rows_at_once
from tests.engine.merge.family import PERSON, PET, kinds, person, pet, put, remove, rows, value
from tests.engine.test_model import crash_at

HOW = pytest.mark.parametrize("in_buckets", [False, True], ids=["in memory", "in buckets"])


def taken_in(graph: Graph, source: str, into: str = MAIN, *, in_buckets: bool = False) -> str:
    with few_rows_at_once() if in_buckets else nullcontext():
        return graph.merge(source, into).outcome.value


def test_a_row_that_the_target_deleted_does_not_come_back(graph: Graph) -> None:
    """By way of `d` an older ancestor is fewer steps away than what `b` took in."""
    graph.branches.create("b")
    graph.branches.create("d")
    for name in "xyz":
        put(graph, person(name))
    graph.merge(MAIN, "b")
    remove(graph, "Person", "x")
    for name in "stu":
        put(graph, person(name))
    put(graph, person("d1"), branch="d")
    graph.merge("d")
    put(graph, person("b1"), branch="b")
    preview = graph.merge("b", dry_run=True)
    assert preview.changes[PERSON].to_json() == {"inserted": 1, "updated": 0, "deleted": 0}
    assert graph.merge("b").changes == preview.changes
    assert "x" not in rows(graph, PERSON)
    assert "b1" in rows(graph, PERSON)


def test_the_api_names_the_commit_that_the_merge_starts_at(graph: Graph) -> None:
    put(graph, person("x"))
    taken = graph.commits.list()[0]
    graph.merge(MAIN, "work")
    put(graph, person("y"))
    put(graph, person("z"), branch="work")
    ours, theirs = (graph.commits.list(branch)[0].id for branch in (MAIN, "work"))
    assert graph.commits.merge_base(ours, theirs) == taken
    assert graph.commits.merge_bases(ours, theirs) == [taken]


# --- several bases ---------------------------------------------------------------------------------


def merge_crosswise(graph: Graph) -> None:
    """`work` and main each take in what the other one was; both commits are then best common ancestors."""
    graph.branches.create("kept")
    graph.merge("work")
    graph.merge("kept", "work")
    graph.branches.delete("kept")
    ours, theirs = (graph.commits.list(branch)[0].id for branch in (MAIN, "work"))
    assert len(graph.commits.merge_bases(ours, theirs)) == 2


@HOW
def test_what_either_base_inserted_and_a_branch_deleted_stays_deleted(graph: Graph, in_buckets: bool) -> None:
    put(graph, person("ours"))
    put(graph, person("theirs"), branch="work")
    merge_crosswise(graph)
    remove(graph, "Person", "ours", "work")
    remove(graph, "Person", "theirs", "work")
    put(graph, person("more"))
    assert taken_in(graph, "work", in_buckets=in_buckets) == "merged"
    assert rows(graph, PERSON).keys() == {"ann", "bob", "cid", "more"}


@HOW
def test_what_either_base_changed_can_be_changed_again_and_back(graph: Graph, in_buckets: bool) -> None:
    put(graph, person("ann", age=2, city="here"))
    put(graph, person("bob", age=2, city="here"), branch="work")
    merge_crosswise(graph)
    put(graph, person("ann", age=1, city="here"), person("bob", age=7, city="here"), branch="work")
    put(graph, person("cid", age=9))
    assert kinds(graph, "work") == []
    assert taken_in(graph, "work", in_buckets=in_buckets) == "merged"
    found = {name: value(graph, PERSON, name, "age") for name in ("ann", "bob", "cid")}
    assert found == {"ann": 1, "bob": 7, "cid": 9}


@HOW
def test_what_a_base_deleted_does_not_come_back(graph: Graph, in_buckets: bool) -> None:
    remove(graph, "Person", "ann")
    put(graph, person("eve"), branch="work")
    merge_crosswise(graph)
    put(graph, person("dan"), branch="work")
    put(graph, person("fay"))
    assert taken_in(graph, "work", in_buckets=in_buckets) == "merged"
    assert rows(graph, PERSON).keys() == {"bob", "cid", "dan", "eve", "fay"}


@HOW
@pytest.mark.parametrize("strategy", ["ours", "theirs"])
def test_what_both_bases_changed_is_agreed_on_or_in_conflict(
    graph: Graph, strategy: Literal["ours", "theirs"], in_buckets: bool
) -> None:
    """Each branch decided on its own between the values of the bases."""
    put(graph, person("ann", age=2), person("bob", age=2))
    put(graph, person("ann", age=3), person("bob", age=3), branch="work")
    graph.branches.create("kept")
    graph.merge("work", strategy="ours")
    graph.merge("kept", "work", strategy="ours")
    graph.branches.delete("kept")
    put(graph, person("bob", age=5), branch="work")
    put(graph, person("bob", age=5))
    with few_rows_at_once() if in_buckets else nullcontext():
        (conflict,) = graph.merge("work", dry_run=True, granularity="property").conflicts
        assert (conflict.entity_id, conflict.kind.value) == ("ann", "divergent_update")
        assert graph.merge("work", strategy=strategy).resolved == 1
    assert value(graph, PERSON, "ann", "age") == (2 if strategy == "ours" else 3)


def test_a_blob_comes_from_the_base_that_has_it(graph: Graph) -> None:
    put(graph, pet("dog", photo="base64:AQ=="))
    put(graph, pet("emu", photo="base64:Ag=="), branch="work")
    merge_crosswise(graph)
    put(graph, pet("dog", photo="base64:BQ=="), branch="work")
    put(graph, pet("emu", photo="base64:BQ=="))
    taken_in(graph, "work")
    assert [value(graph, PET, name, "photo") for name in ("dog", "emu")] == [b"\x05", b"\x05"]


# --- deleted branches ------------------------------------------------------------------------------


def test_what_a_deleted_branch_had_taken_in_is_known_from_the_merge_that_took_it(graph: Graph) -> None:
    """main's `x` came to `work` by way of `via`; when main deletes it, it stays deleted."""
    graph.branches.create("via")
    put(graph, person("x"))
    graph.merge(MAIN, "via")
    put(graph, person("v"), branch="via")
    graph.merge("via", "work")
    graph.branches.delete("via")
    remove(graph, "Person", "x")
    put(graph, person("w"), branch="work")
    taken_in(graph, "work")
    assert rows(graph, PERSON).keys() == {"ann", "bob", "cid", "v", "w"}


@HOW
def test_a_deleted_branch_can_still_be_the_base_of_two_others(graph: Graph, in_buckets: bool) -> None:
    graph.branches.create("feature")
    put(graph, person("ann", age=2), person("new"), pet("dog", photo="base64:AQ=="), branch="feature")
    remove(graph, "Person", "cid", "feature")
    put(graph, person("eve"))
    graph.merge("feature")
    graph.merge("feature", "work")
    base = graph.commits.list("feature")[0]
    graph.branches.delete("feature")
    assert list_saved_commits(graph._opened) == {base.id}
    graph.branches.create("feature")  # another branch of that name
    put(graph, person("other"), branch="feature")
    ours, theirs = (graph.commits.list(branch)[0].id for branch in (MAIN, "work"))
    assert graph.commits.merge_base(ours, theirs) == base
    with pytest.raises(BranchNotFound):
        graph.snapshot("unknown")
    remove(graph, "Person", "new")
    put(graph, person("ann", age=1), pet("dog", photo="base64:Ag=="), branch="work")
    put(graph, person("cid", age=5), branch="work")
    graph.cleanup(keep=1)
    taken_in(graph, "work", in_buckets=in_buckets)
    assert rows(graph, PERSON).keys() == {"ann", "bob", "cid", "eve"}
    assert value(graph, PERSON, "ann", "age") == 1
    assert value(graph, PET, "dog", "photo") == b"\x02"


def test_a_deletion_that_was_interrupted_keeps_the_base_when_it_is_repeated(graph: Graph) -> None:
    graph.branches.create("feature")
    put(graph, person("new"), branch="feature")
    graph.merge("feature")
    graph.merge("feature", "work")
    opened, (base, *_) = graph._opened, graph.commits.list("feature")
    identity = opened.load("feature").identity
    with opened.root.locks.hold(["feature"]) as held:
        save_bases(opened, held, "feature", identity, ["work"])
    (last,) = Path(graph.uri).glob(f"__bases/{base.id}/base.json")
    last.unlink()
    record_taken_commit(opened, "feature", identity, base, ())
    record_taken_commit(opened, "feature", identity, base, opened.load("work").identity)
    graph.branches.delete("feature")
    assert read_saved_base(opened, base.id) is not None
    remove(graph, "Person", "new")
    put(graph, person("w"), branch="work")
    taken_in(graph, "work")
    assert "new" not in rows(graph, PERSON)


def test_what_was_kept_of_a_deleted_branch_goes_when_no_merge_can_start_there(graph: Graph) -> None:
    graph.branches.create("feature")
    put(graph, person("new"), branch="feature")
    graph.merge("feature")
    graph.merge("feature", "work")
    graph.branches.delete("feature")
    (kept,) = list_saved_commits(graph._opened)
    assert graph.cleanup(keep=1).bases == ()
    graph.merge("work")
    graph.merge(MAIN, "work")
    assert graph.cleanup(keep=1).bases == (kept,)
    assert list_saved_commits(graph._opened) == set()


def test_nothing_is_kept_of_a_branch_that_one_other_took_in(graph: Graph) -> None:
    put(graph, person("new"), branch="work")
    graph.branches.create("long")
    graph.merge("work")
    graph.merge(MAIN, "long")
    graph.branches.delete("work")
    assert list_saved_commits(graph._opened) == set()


def test_the_last_branch_leaves_nothing_behind(graph: Graph) -> None:
    graph.branches.create("feature")
    put(graph, person("new"), branch="feature")
    graph.merge("feature")
    graph.merge("feature", "work")
    graph.branches.delete("feature")
    graph.branches.delete("work")
    assert graph._opened.root.objects.list_folders(graph._opened.root.layout.bases) == []


def test_a_branch_made_from_a_deleted_one_leads_on_to_it(graph: Graph) -> None:
    """Main took in `leaf`, which was made from `stem`, and `work` took in `stem`: the base is on `stem`."""
    graph.branches.create("stem")
    put(graph, person("s", age=1), branch="stem")
    graph.branches.create("leaf", from_="stem")
    put(graph, person("l"), branch="leaf")
    put(graph, person("s", age=2), branch="stem")
    graph.merge("leaf")
    graph.merge("stem", "work")
    graph.branches.delete("leaf")
    graph.branches.delete("stem")
    remove(graph, "Person", "s")
    assert kinds(graph, "work") == ["delete_vs_update"]
    put(graph, person("s", age=1), branch="work")
    taken_in(graph, "work")
    assert "s" not in rows(graph, PERSON)


# --- graphs written before -------------------------------------------------------------------------


def as_written_before(graph: Graph) -> Graph:
    """The graph as an earlier release would have left it: without the commits that merges took in."""
    at = Path(graph.uri)
    names = [branch.replace("/", "%2F") for branch in graph.branches if branch != MAIN]
    graph.close()
    for manifest in (at / "__manifest", *(at / "__manifest" / "tree" / name for name in names)):
        if (manifest / "_versions").exists():
            lance.dataset(str(manifest)).delete("object_type = 'merged_commit'")
    shutil.rmtree(at / "__bases", ignore_errors=True)
    shutil.rmtree(at / "__derived", ignore_errors=True)
    return omnigraph.open(at)


@HOW
def test_a_row_that_came_unseen_and_was_deleted_is_a_conflict(graph: Graph, in_buckets: bool) -> None:
    """`work` has main's `x` by way of `via`, which is not on record any more."""
    graph.branches.create("via")
    put(graph, person("x"))
    graph.merge(MAIN, "via")
    put(graph, person("v"), branch="via")
    graph.merge("via", "work")
    graph.branches.delete("via")
    remove(graph, "Person", "x")
    put(graph, person("w"), branch="work")
    with as_written_before(graph) as old, few_rows_at_once() if in_buckets else nullcontext():
        (conflict,) = old.merge("work", dry_run=True).conflicts
        assert (conflict.entity_id, conflict.kind.value) == ("x", "delete_vs_update")
        old.merge("work", strategy="ours")
        assert rows(old, PERSON).keys() == {"ann", "bob", "cid", "v", "w"}


def test_a_row_that_went_over_unseen_and_was_deleted_is_a_conflict(graph: Graph) -> None:
    """Main took `w` in by way of `via` and deleted it; `work` still has it."""
    graph.branches.create("via")
    put(graph, person("w"), branch="work")
    put(graph, person("v"), branch="via")
    graph.merge("work", "via")
    graph.merge("via")
    graph.branches.delete("via")
    remove(graph, "Person", "w")
    put(graph, person("later"), branch="work")
    with as_written_before(graph) as old:
        (conflict,) = old.merge("work", dry_run=True).conflicts
        assert (conflict.entity_id, conflict.kind.value) == ("w", "delete_vs_update")


def test_a_row_that_the_source_deleted_again_is_a_conflict(graph: Graph) -> None:
    graph.branches.create("via")
    put(graph, person("w"), branch="work")
    put(graph, person("v"), branch="via")
    graph.merge("work", "via")
    graph.merge("via")
    graph.branches.delete("via")
    remove(graph, "Person", "w", "work")
    put(graph, person("later"), branch="work")
    with as_written_before(graph) as old:
        (conflict,) = old.merge("work", dry_run=True).conflicts
        assert (conflict.entity_id, conflict.kind.value) == ("w", "delete_vs_update")


def test_other_branches_that_were_merged_and_deleted_are_in_nobodys_way(graph: Graph) -> None:
    put(graph, person("ann", age=2), person("w"), branch="work")
    for name in ("one", "two"):
        graph.branches.create(name)
        put(graph, person(name), branch=name)
        put(graph, person("eve"))
        graph.merge(name, delete_branch=True)
    put(graph, person("w", age=3), branch="work")
    with as_written_before(graph) as old:
        assert old.merge("work", dry_run=True).conflicts == ()
        assert old.merge("work").outcome.value == "merged"
        assert rows(old, PERSON).keys() == {"ann", "bob", "cid", "eve", "one", "two", "w"}


def test_a_base_whose_content_is_lost_never_brings_a_row_back(graph: Graph) -> None:
    graph.branches.create("feature")
    put(graph, person("ann", age=2), person("new"), branch="feature")
    put(graph, person("eve"))
    graph.merge("feature")
    graph.merge("feature", "work")
    graph.branches.delete("feature")
    remove(graph, "Person", "new")
    put(graph, person("ann", age=1), person("more"), branch="work")
    with as_written_before(graph) as old:
        found = {one.entity_id: one.kind.value for one in old.merge("work", dry_run=True).conflicts}
        assert found == {"ann": "divergent_update", "new": "delete_vs_update"}


def test_a_branch_that_is_still_there_tells_what_a_merge_did_not_record(graph: Graph) -> None:
    graph.branches.create("via")
    put(graph, person("x"))
    graph.merge(MAIN, "via")
    graph.merge("via", "work")
    remove(graph, "Person", "x")
    put(graph, person("w"), branch="work")
    with as_written_before(graph) as old:
        old.merge("work")
        assert "x" not in rows(old, PERSON)


# --- elsewhere -------------------------------------------------------------------------------------


def test_a_merge_that_recovery_finishes_records_what_it_took_in(graph: Graph) -> None:
    """The record of the write has it, so recovery does not need the source."""
    graph.branches.create("via")
    put(graph, person("x"))
    graph.merge(MAIN, "via")
    put(graph, person("v"), branch="via")
    point = failpoints.BRANCH_MERGE_POST_PHASE_B_PRE_MANIFEST_COMMIT
    assert crash_at(lambda: graph.merge("via", "work"), {point: 1})
    with omnigraph.open(graph.uri) as reopened:
        reopened.branches.delete("via")
        remove(reopened, "Person", "x")
        put(reopened, person("w"), branch="work")
        assert {"v", "x"} <= rows(reopened, PERSON, "work").keys()
        reopened.merge("work")
        assert rows(reopened, PERSON).keys() == {"ann", "bob", "cid", "v", "w"}


def test_a_virtual_base_travels_to_other_processes(graph: Graph) -> None:
    put(graph, person("ours", age=1))
    put(graph, person("theirs", age=2), branch="work")
    merge_crosswise(graph)
    opened = graph._opened
    base = find_merge_inputs(opened, capture_source(opened, "work"), opened.snapshot(AtBranch(MAIN))).base
    side = base.side(PERSON, opened.schema().catalog)
    assert isinstance(side, PatchedSide)
    there = pickle.loads(pickle.dumps(side))
    ids = pa.array(["theirs", "ann", "ours", "missing"])
    assert read_rows_by_id(there, ids).equals(read_rows_by_id(side, ids))
    assert read_rows_by_id(there, ids).column("id").to_pylist() == ["theirs", "ann", "ours"]
    everybody = side.scan_places()
    assert sorted(everybody.column("id").to_pylist()) == ["ann", "bob", "cid", "ours", "theirs"]
    assert side.read_places(everybody.column("_rowid").combine_chunks()).equals(everybody)
