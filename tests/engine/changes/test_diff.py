"""What a diff reports, what it skips, and how snapshots are named."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import FrozenInstanceError
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

import omnigraph
from omnigraph.engine.changes.change import Change, ChangeCounts, ChangeOperation
from omnigraph.engine.changes.row_pairs import compare_sides
from omnigraph.engine.changes.table_side import FEW_ROWS, TableSide
from omnigraph.engine.graph.open_graph import AtBranch, OpenGraph
from omnigraph.engine.graph.publish import ManifestChanges, NewCommit, publish
from omnigraph.engine.graph.root import Root
from omnigraph.errors import BadRequest, HistoricalVersionReclaimed, InvalidName, NotFound
from omnigraph.graph import Graph
from omnigraph.storage.location import Location
from omnigraph.storage.objects import Recorder
from omnigraph.storage.upkeep import collect_versions
from tests.engine.changes.world import link, load, thing


def summarize(changes: Any) -> list[str]:
    return [f"{change.op} {change.type_name} {change.id}" for change in changes]


def head(graph: Graph, branch: str = "main") -> str:
    return graph.snapshot(branch).id


def set_i(graph: Graph, key: str, value: int, branch: str = "main") -> None:
    text = "query q($k: String, $i: I32) { update Thing set { i: $i } where k = $k }"
    graph.mutate(text, {"k": key, "i": value}, branch=branch)


def delete(graph: Graph, key: str, branch: str = "main") -> None:
    graph.mutate("query q($k: String) { delete Thing where k = $k }", {"k": key}, branch=branch)


def test_an_update_has_both_images_and_the_names_of_what_changed(graph: Graph) -> None:
    before = head(graph)
    set_i(graph, "a", 2)
    (change,) = graph.diff(before, "main")
    assert (change.kind, change.type_name, change.id, change.op) == (
        "node",
        "Thing",
        "a",
        ChangeOperation.UPDATE,
    )
    assert change.changed == ("i",)
    assert change.before is not None
    assert change.after is not None
    assert (change.before.properties, change.after.properties) == (thing("a", i=1), thing("a", i=2))
    with pytest.raises(FrozenInstanceError):
        change.id = "b"  # type: ignore[misc]


def test_a_change_as_json_has_the_images_it_has(graph: Graph) -> None:
    before = head(graph)
    load(graph, {("Link", "e"): link("x", "y", 0.5)})
    inserted = next(iter(graph.diff(before, "main"))).to_json()
    image = {"properties": {"w": 0.5}, "endpoints": {"from": "x", "to": "y"}}
    assert inserted.pop("type")["name"] == "Link"
    assert inserted == {"kind": "edge", "id": "e", "op": "insert", "after": image}
    deleted = next(iter(graph.diff("main", before))).to_json()
    assert (deleted["op"], deleted["before"], "after" in deleted) == ("delete", image, False)
    load(graph, {("Link", "e"): link("x", "z", 0.5)})
    middle = graph.commits.list(limit=2)[1]
    updated = next(iter(graph.diff(middle, "main"))).to_json()
    assert updated["changed"] == ["dst"]
    assert updated["after"]["endpoints"] == {"from": "x", "to": "z"}


def test_nodes_come_before_edges_and_ids_in_order(graph: Graph) -> None:
    before = head(graph)
    load(graph, {("Link", "e"): link("x", "y"), ("Thing", "z"): thing("z"), ("Hub", "h"): {"k": "h"}})
    load(graph, {("Thing", "c"): thing("c")})
    delete(graph, "a")
    assert summarize(graph.diff(before, "main")) == [
        "insert Hub h",
        "delete Thing a",
        "insert Thing c",
        "insert Thing z",
        "insert Link e",
    ]


def re_insert(graph: Graph) -> None:
    delete(graph, "a")
    load(graph, {("Thing", "a"): thing("a", i=1)})


def there_and_back(graph: Graph) -> None:
    set_i(graph, "a", 2)
    set_i(graph, "a", 1)


def insert_and_delete(graph: Graph) -> None:
    load(graph, {("Thing", "c"): thing("c")})
    delete(graph, "c")


@pytest.mark.parametrize(
    "act",
    [
        lambda graph: set_i(graph, "a", 1),
        lambda graph: load(graph, {("Thing", "a"): thing("a", i=1)}),
        lambda graph: load(graph, {("Thing", key): thing(key, i=1) for key in "ab"}, "overwrite"),
        re_insert,
        there_and_back,
        insert_and_delete,
        lambda graph: graph.optimize(),
        lambda graph: graph.ensure_indices(),
    ],
    ids=[
        "same-update",
        "same-load",
        "same-overwrite",
        "re-insert",
        "and-back",
        "net-zero",
        "optimize",
        "index",
    ],
)
def test_what_leaves_the_values_as_they_were_is_no_change(graph: Graph, act: Callable[[Graph], Any]) -> None:
    before, tables = head(graph), graph.snapshot().tables
    act(graph)
    assert graph.snapshot().tables != tables, "something was written"
    for a, b in ((before, "main"), ("main", before)):
        diff = graph.diff(a, b)
        assert (list(diff), diff.stat(), bool(diff)) == ([], {}, False)


def test_a_change_survives_compaction_on_either_side(graph: Graph) -> None:
    before = head(graph)
    set_i(graph, "a", 2)
    graph.optimize()
    after = head(graph)
    assert summarize(graph.diff(before, after)) == ["update Thing a"]
    graph.branches.create("work")
    graph.optimize("work")
    set_i(graph, "b", 3, "work")
    graph.optimize("work")
    assert summarize(graph.diff(before, "work")) == ["update Thing a", "update Thing b"]


def test_both_sides_of_a_fork_are_joined_on_ids(graph: Graph) -> None:
    for branch in ("one", "two"):
        graph.branches.create(branch)
    # New rows get the same numbers on both sides, and other ids.
    load(graph, {("Thing", "p"): thing("p", i=7), ("Thing", "q"): thing("q")}, branch="one")
    load(graph, {("Thing", "q"): thing("q", i=5), ("Thing", "p"): thing("p", i=7)}, branch="two")
    delete(graph, "a", "one")
    set_i(graph, "b", 9, "two")
    assert summarize(graph.diff("one", "two")) == ["insert Thing a", "update Thing b", "update Thing q"]
    assert summarize(graph.diff("two", "one")) == ["delete Thing a", "update Thing b", "update Thing q"]


def test_a_fork_of_a_fork_is_compared_with_any_ancestor(graph: Graph) -> None:
    first = head(graph)
    set_i(graph, "a", 2)
    graph.branches.create("one")
    load(graph, {("Thing", "n"): thing("n")}, branch="one")
    graph.branches.create("two", from_="one")
    set_i(graph, "n", 4, "two")
    delete(graph, "b", "two")
    load(graph, {("Thing", "m"): thing("m")})
    assert summarize(graph.diff(first, "two")) == ["update Thing a", "delete Thing b", "insert Thing n"]
    assert summarize(graph.diff("main", "two")) == ["delete Thing b", "delete Thing m", "insert Thing n"]
    assert summarize(graph.diff("one", "two")) == ["delete Thing b", "update Thing n"]


def test_many_changes_are_reported_like_few(graph: Graph) -> None:
    numbers = range(3 * FEW_ROWS)
    before = head(graph)
    load(graph, {("Link", f"e{number:05}"): link("x", "y", float(number)) for number in numbers})
    middle = head(graph)
    load(graph, {("Link", f"e{number:05}"): link("x", "y", -1.0) for number in numbers if number % 2})
    assert graph.diff(before, middle).stat() == {"edge:Link": ChangeCounts(inserted=len(numbers))}
    changes = list(graph.diff(middle, "main"))
    assert [change.id for change in changes] == [f"e{number:05}" for number in numbers if number % 2]
    weights = [change.before.properties["w"] for change in changes if change.before is not None]
    assert weights == [float(number) for number in numbers if number % 2]
    assert {change.after.properties["w"] for change in changes if change.after is not None} == {-1.0}


# --- cost ----------------------------------------------------------------------------------------


def open_recorded(at: str) -> tuple[OpenGraph, Recorder]:
    recorder = Recorder()
    return OpenGraph.open(Root.at(Location.parse(at), recorder), read_only=True), recorder


def test_tables_that_did_not_move_are_not_opened(graph: Graph) -> None:
    before = head(graph)
    set_i(graph, "a", 2)
    opened, recorder = open_recorded(graph.uri)
    diff = Graph(opened).diff(before, "main")
    assert "nodes" not in " ".join(call.uri for call in recorder.calls), (
        "nothing is read before it is asked for"
    )
    assert summarize(diff) == ["update Thing a"]
    data = {call.uri for call in recorder.calls if "/nodes/" in call.uri or "/edges/" in call.uri}
    assert data == {f"{graph.uri}/{graph.snapshot().tables['node:Thing'].path}"}


def test_the_calls_of_a_diff_do_not_follow_the_size_of_the_table(graph: Graph) -> None:
    def cost(key: str) -> dict[str, int]:
        before = head(graph)
        set_i(graph, key, 2)
        opened, recorder = open_recorded(graph.uri)
        diff = Graph(opened).diff(before, "main")
        recorder.clear()
        assert summarize(diff) == [f"update Thing {key}"]
        return dict(recorder.counts())

    small = cost("a")
    load(graph, {("Thing", f"t{number}"): thing(f"t{number}") for number in range(5000)})
    assert cost("b") == small


def test_forks_are_compared_by_what_was_written(graph: Graph) -> None:
    first = head(graph)
    for branch in ("one", "two"):
        graph.branches.create(branch)
        set_i(graph, "a", len(branch) + ord(branch[0]), branch)
    set_i(graph, "b", 2)
    opened, recorder = open_recorded(graph.uri)
    for a, b, ways in ((first, "one", 1), ("main", "one", 2), ("one", "two", 2)):
        recorder.clear()
        assert Graph(opened).diff(a, b)
        # Two queries per path since the versions diverged: inserted and updated rows. Row counts show
        # that nothing was deleted.
        assert recorder.counts()["delta"] == 2 * ways, (a, b)


def test_few_rows_are_read_once_on_each_side(graph: Graph) -> None:
    before = head(graph)
    graph.branches.create("one")
    with graph.write("one") as tx:
        tx.insert("Hub", k="new")
        tx.update("Thing", ("k", "=", "a"), {"i": 2})
    opened, recorder = open_recorded(graph.uri)
    diff = Graph(opened).diff(before, "one", types="Hub")
    recorder.clear()
    assert summarize(diff) == ["insert Hub new"]
    assert recorder.counts()["scan"] == 1, "what came is known with all it has, and nothing was there before"
    assert recorder.counts()["delta"] == 0


# --- schemas and types ---------------------------------------------------------------------------


def drop(graph: Graph, key: str) -> None:
    """What a schema change does with a type that goes."""
    root = graph._opened.root
    with root.locks.hold(["main"]):
        version = graph.snapshot().tables[key].version
        publish(
            graph._opened.coordinator("main"),
            ManifestChanges(dropped={key: version}),
            NewCommit(root.new_id()),
        )


def test_a_type_that_one_side_does_not_have_is_all_inserts_or_deletes(graph: Graph) -> None:
    before = head(graph)
    drop(graph, "node:Thing")
    diff = graph.diff(before, "main")
    assert summarize(diff) == ["delete Thing a", "delete Thing b"]
    assert all(change.before is not None and change.after is None for change in diff)
    assert summarize(graph.diff("main", before)) == ["insert Thing a", "insert Thing b"]
    assert graph.diff("main", before).stat() == {"node:Thing": ChangeCounts(inserted=2)}


def schema_at(folder: Path, text: str, rows: dict[tuple[str, str], dict[str, Any]]) -> TableSide:
    with omnigraph.init(folder, schema=text) as graph:
        load(graph, rows)
        found = TableSide.of(graph._opened, graph.snapshot()._pinned, "node:P", graph.schema)
    assert found is not None
    return found


def test_a_property_that_one_side_does_not_have_counts_as_null(tmp_path: Path) -> None:
    old = schema_at(
        tmp_path / "old",
        "node P { k: String @key  gone: I32?  wide: I32? }",
        {("P", "a"): {"k": "a", "gone": 1}, ("P", "b"): {"k": "b", "wide": 5}, ("P", "c"): {"k": "c"}},
    )
    new = schema_at(
        tmp_path / "new",
        "node P { k: String @key  wide: I64?  extra: String? }",
        {("P", "a"): {"k": "a"}, ("P", "b"): {"k": "b", "wide": 5}, ("P", "c"): {"k": "c", "extra": "x"}},
    )
    assert compare_sides(old, new).table.column("id").to_pylist() == ["a", "c"]


# --- naming moments and choosing changes ---------------------------------------------------------


def test_moments_have_many_names(graph: Graph) -> None:
    first = graph.snapshot()
    assert first.commit is not None
    set_i(graph, "a", 2)
    graph.branches.create("work")
    set_i(graph, "b", 2, "work")
    names: list[Any] = [
        first,
        first.commit,
        first.commit.id,
        first.commit.time,
        first.commit.time.isoformat(),
        f"main@{first.commit.time.isoformat()}",
        f"work@{first.commit.time.isoformat()}",
        f"main@v{first.version}",
        f"work@v{first.version}",
    ]
    for name in names:
        assert summarize(graph.diff(name, "main")) == ["update Thing a"], name
        assert summarize(graph.diff(name, "work")) == ["update Thing a", "update Thing b"], name
    assert summarize(graph.diff(datetime.now(UTC), "work")) == ["update Thing b"]


@pytest.mark.parametrize("name", ["nowhere", "", "../main", "v3", "0" * 26, "2030-99-99"])
def test_a_name_that_refers_to_nothing_is_reported(graph: Graph, name: str) -> None:
    with pytest.raises(NotFound) as caught:
        graph.diff(name, "main")
    assert str(caught.value) == f"'{name}' is neither a branch nor a tag nor a commit nor a time"


def test_a_wrong_branch_name_is_reported(graph: Graph) -> None:
    with pytest.raises(InvalidName):
        graph.diff("../x@v1", "main")
    with pytest.raises(NotFound):
        graph.diff("nowhere@v1", "main")


def test_changes_are_chosen_by_type_kind_and_sort(graph: Graph) -> None:
    before = head(graph)
    load(graph, {("Link", "e"): link("x", "y"), ("Thing", "c"): thing("c")})
    delete(graph, "b")
    set_i(graph, "a", 2)
    assert summarize(graph.diff(before, "main", types="Link")) == ["insert Link e"]
    assert summarize(graph.diff(before, "main", types=["node:Thing"], ops=["insert"])) == ["insert Thing c"]
    assert summarize(graph.diff(before, "main", kinds=["edge"])) == ["insert Link e"]
    chosen = graph.diff(before, "main", ops=["update", "delete"])
    assert summarize(chosen) == ["update Thing a", "delete Thing b"]
    assert chosen.stat() == {"node:Thing": ChangeCounts(updated=1, deleted=1)}
    assert not graph.diff(before, "main", types="Hub")


@pytest.mark.parametrize(
    ("chosen", "message"),
    [
        ({"types": "Nothing"}, "there is no type 'Nothing'"),
        ({"kinds": ["thing"]}, "'thing' is no kind of entity"),
        ({"ops": ["upsert"]}, "'upsert' is no sort of change"),
    ],
)
def test_a_choice_of_nothing_is_refused(graph: Graph, chosen: dict[str, Any], message: str) -> None:
    with pytest.raises(BadRequest, match=message):
        graph.diff("main", "main", **chosen)


# --- what was cleaned up -------------------------------------------------------------------------


def test_a_snapshot_that_was_cleaned_up_is_reported(graph: Graph) -> None:
    before = head(graph)
    # All of them, so that what they were is in no file that is needed any more.
    set_i(graph, "a", 2)
    set_i(graph, "b", 2)
    assert summarize(graph.diff(before, "main")) == ["update Thing a", "update Thing b"]
    forget_old_things(graph)
    # With a handle from before, and with none.
    for opened in (graph, omnigraph.open(graph.uri)):
        with pytest.raises(HistoricalVersionReclaimed):
            list(opened.diff(before, "main"))


def forget_old_things(graph: Graph) -> None:
    """All versions but the newest of the table of things."""
    found = graph.snapshot().tables["node:Thing"]
    root = graph._opened.root
    table = root.tables.tip(root.layout.table(found.path))
    collect_versions(table, [version for version in table.versions() if version < found.version])


def test_values_are_plain_and_hashable_by_what_identifies_them(graph: Graph) -> None:
    changes: set[Change] = set(graph.diff(graph.commits.list()[-1], "main"))
    assert {change.id for change in changes if change.type_name == "Thing"} == {"a", "b"}


@pytest.mark.parametrize("other", ["work", "main"])
def test_a_branch_that_was_recreated_is_not_compared_as_the_one_that_was_read(
    graph: Graph, other: str
) -> None:
    """Its versions have the same numbers: all the same, or that of main from which it was made."""

    def side(branch: str) -> TableSide:
        opened = graph._opened
        made = TableSide.of(opened, opened.snapshot(AtBranch(branch)), "node:Thing", opened.schema().catalog)
        assert made is not None
        return made

    graph.branches.create("work")
    load(graph, {("Thing", "c"): thing("c")}, branch="work")
    old = side("work")
    graph.branches.delete("work")
    if other == "main":
        load(graph, {("Thing", "d"): thing("d")})
    graph.branches.create("work")
    for key in "ef":
        load(graph, {("Thing", key): thing(key)}, branch="work")
    new = side(other)
    assert old.owned_version.version == new.owned_version.version - (other == "work")
    with pytest.raises(HistoricalVersionReclaimed, match="of table 'node:Thing'"):
        compare_sides(old, new)
