"""Tags: names of commits, which stay readable; and branches that begin at old commits."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

import omnigraph as og
from omnigraph import errors, failpoints
from omnigraph.engine.commit.recovery.creations import store_creation
from omnigraph.engine.graph.lineage import Commit
from omnigraph.engine.graph.open_graph import OpenGraph
from omnigraph.engine.graph.root import Root
from omnigraph.engine.graph.tags import kept_folder, list_kept_commits, tag_location
from omnigraph.engine.maintenance.cleanup.policy import CleanupPolicy
from omnigraph.engine.maintenance.cleanup.run_cleanup import cleanup
from omnigraph.engine.maintenance.doctor import examine
from omnigraph.storage.concurrency import take_turns
from omnigraph.storage.location import Location
from tests.python_process import PIPE, Python

SCHEMA = """
node Person { name: String @key  age: I32?  photo: Blob? }
edge Knows: Person -> Person
"""


@pytest.fixture
def graph(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[og.Graph]:
    monkeypatch.setenv("OMNIGRAPH_CLEANUP_MIN_AGE", "0")
    with og.init(tmp_path / "graph", schema=SCHEMA) as made:
        yield made


def put(graph: og.Graph, name: str, age: int, branch: str = "main") -> Commit:
    commit = graph.load([{"name": name, "age": age}], type="Person", mode="merge", branch=branch).commit
    assert commit is not None
    return commit


def people(seen: og.Snapshot) -> dict[str, int]:
    rows = seen.rows("Person", columns=["name", "age"]).to_pylist()
    return {row["name"]: row["age"] for row in rows}


def reopened(graph: og.Graph) -> og.Graph:
    """The graph as a process sees it that has opened no version of a table yet."""
    return og.open(graph.uri)


# --- names -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name",
    ["", "main", "a//b", "a b", "x.lock", "../x", "main/x", "01ARZ3NDEKTSV4RRFFQ69G5FAV", "2030-01-31"],
)
def test_names_that_mean_something_else_are_refused(graph: og.Graph, name: str) -> None:
    with pytest.raises(errors.InvalidName):
        graph.tags.create(name)
    assert graph.tags.list() == []


def test_a_name_means_a_branch_or_a_tag_but_never_both(graph: og.Graph) -> None:
    put(graph, "ada", 1)
    graph.branches.create("work")
    with pytest.raises(errors.InvalidName, match="'work' is the name of a branch"):
        graph.tags.create("work")
    graph.tags.create("v1")
    with pytest.raises(errors.TagExists):
        graph.branches.create("v1")


def test_a_branch_of_an_earlier_release_beside_a_tag_of_its_name_is_ambiguous(graph: og.Graph) -> None:
    put(graph, "ada", 1)
    graph.branches.create("work")
    made = graph.tags.create("v1")
    source = graph._opened.root.layout.tags.path
    Path(source, "v1.json").rename(Path(source, "work.json"))
    with pytest.raises(errors.BadRequest, match=f"'work' is a branch and a tag of commit '{made.commit_id}'"):
        graph.diff("work", "main")
    with pytest.raises(errors.BadRequest, match="is a branch and a tag"):
        graph.branches.create("more", from_="work")


def test_an_unknown_moment_is_reported_as_such(graph: og.Graph) -> None:
    with pytest.raises(errors.NotFound, match="'v9' is neither a branch nor a tag nor a commit nor a time"):
        graph.diff("v9", "main")
    with pytest.raises(errors.CommitNotFound):
        graph.at(commit="v9")
    with pytest.raises(errors.TagNotFound):
        graph.tags.delete("v9")


def test_an_existing_tag_moves_only_by_force(graph: og.Graph) -> None:
    first, second = put(graph, "ada", 1), put(graph, "bo", 2)
    graph.tags.create("v1", at=first, message="First", actor="ann")
    with pytest.raises(errors.TagExists):
        graph.tags.create("v1", at=second)
    assert graph.tags.get("v1").commit_id == first.id
    moved = graph.tags.create("v1", at=second, force=True)
    assert (moved.commit_id, graph.tags.list(), "v1" in graph.tags) == (second.id, [moved], True)


# --- where they count ------------------------------------------------------------------------------


def test_a_tag_can_be_named_wherever_a_moment_can(graph: og.Graph) -> None:
    first, second = put(graph, "ada", 1), put(graph, "ada", 2)
    graph.tags.create("v1", at=first)
    assert people(graph.at(commit="v1")) == {"ada": 1}
    found = graph.query("query q() { match { $p: Person } return { $p.age } }", commit="v1")
    assert found.table.to_pylist() == [{"p.age": 1}]
    assert [change.op for change in graph.diff("v1", "main")] == ["update"]
    assert graph.show("v1").commit == first
    assert graph.log("v1")[0].commit == first
    assert [one.commit for one in graph.changes(since="after:v1")] == [second]
    assert [one.tags for one in graph.log()][:2] == [(), ("v1",)]
    graph.tags.create("again", at="v1")
    assert graph.tags.get("again").commit_id == first.id
    graph.reset("v1")
    assert people(graph.snapshot()) == {"ada": 1}
    graph.revert("v1")
    assert people(graph.snapshot()) == {}


def test_cleanup_keeps_a_tagged_commit_until_its_tag_is_deleted(graph: og.Graph) -> None:
    first = put(graph, "ada", 1)
    for age in range(2, 5):
        put(graph, "ada", age)
    graph.tags.create("v1", at=first)
    graph.cleanup(keep=1)
    assert people(reopened(graph).at(commit="v1")) == {"ada": 1}
    graph.tags.delete("v1")
    graph.cleanup(keep=1)
    with pytest.raises(errors.HistoricalVersionReclaimed):
        people(reopened(graph).at(commit=first.id))
    with pytest.raises(errors.HistoricalVersionReclaimed):
        reopened(graph).tags.create("v1", at=first.id)


def test_the_tables_of_a_commit_and_the_files_of_tags_are_read_together(graph: og.Graph) -> None:
    old = put(graph, "ada", 1)
    for number in range(3):
        graph.tags.create(f"v{number}")
    batches: list[int] = []

    def run(calls: Sequence[Callable[[], None]]) -> None:
        batches.append(len(calls))
        for call in calls:
            call()

    opened = reopened(graph)
    with take_turns(run):
        opened.tags.create("v3", at=old)
        assert 2 in batches, "two types"
        batches.clear()
        opened.log()
        assert 4 in batches, "four tags"


def test_a_tagged_commit_of_a_deleted_branch_stays(graph: og.Graph, tmp_path: Path) -> None:
    put(graph, "ada", 1)
    graph.branches.create("work")
    graph.load([{"name": "bo", "photo": b"picture"}], type="Person", mode="append", branch="work")
    made = graph.commits.list("work")[0]
    graph.load([{"src": "ada", "dst": "bo"}], type="Knows", mode="append", branch="work")
    graph.tags.create("rel/1", at=made)
    graph.branches.delete("work")
    put(graph, "ada", 9)
    graph.cleanup(keep=1)
    for found in (reopened(graph), _copy(graph, tmp_path)):
        kept = found.at(commit="rel/1")
        assert people(kept) == {"ada": 1, "bo": None}
        assert found.commits.get("rel/1") == found.show("rel/1").commit == made
        export = tmp_path / f"{len(list(tmp_path.iterdir()))}.jsonl"
        kept.export(export)
        assert "cGljdHVyZQ==" in export.read_text()
    with pytest.raises(errors.BranchNotFound, match="was on it"):
        graph.commits.changes("rel/1")
    graph.reset("rel/1")
    assert people(graph.snapshot()) == {"ada": 1, "bo": None}
    graph.tags.delete("rel/1")
    assert list_kept_commits(graph._opened.root) == frozenset()
    with pytest.raises(errors.CommitNotFound):
        graph.commits.get(made.id)


def _copy(graph: og.Graph, folder: Path) -> og.Graph:
    graph.copy_to(folder / "copy")
    return og.open(folder / "copy")


def test_removing_data_for_good_removes_what_tags_keep_of_it(graph: og.Graph) -> None:
    graph.branches.create("work")
    made = put(graph, "ada", 1, "work")
    graph.tags.create("v1", at=made)
    graph.branches.delete("work")
    without = SCHEMA.replace("age: I32?", "")
    graph.apply_schema(without, allow_data_loss=True)
    with pytest.raises(errors.HistoricalVersionReclaimed):
        reopened(graph).at(commit="v1").rows("Person")


_CREATE = """
import sys, omnigraph as og
from omnigraph.errors import TagExists
try:
    og.open(sys.argv[1]).tags.create("v1")
    print("made")
except TagExists:
    print("taken")
"""


def test_one_of_two_processes_that_create_a_tag_wins(graph: og.Graph) -> None:
    put(graph, "ada", 1)
    runs = [Python("-c", _CREATE, graph.uri, stdout=PIPE) for _ in range(2)]
    assert sorted(run.communicate()[0].split()[-1] for run in runs) == ["made", "taken"]


def test_cleanup_keeps_a_commit_whose_tag_is_deleted_and_created_again_meanwhile(graph: og.Graph) -> None:
    first = put(graph, "ada", 1)
    for age in range(2, 5):
        put(graph, "ada", age)
    graph.tags.create("v1", at=first)
    reads = iter(range(3))
    person = graph._opened.load("main").state.entries()["node:Person"].path

    def advance() -> None:
        if next(reads) == 1:  # the first read of branches for what is needed
            graph.tags.delete("v1")

    def create_again(op: str, uri: str, /) -> None:
        if op == "versions" and uri.endswith(person) and "v1" not in graph.tags:
            graph.tags.create("v1", at=first)

    slow = OpenGraph.open(Root.at(graph._opened.root.layout.root, create_again))
    with failpoints.arm(failpoints.CLEANUP_RESOLVE_BRANCH_SNAPSHOT, advance):
        cleanup(slow, CleanupPolicy.of(1, None, 0.0))
    assert people(reopened(graph).at(commit="v1")) == {"ada": 1}


@pytest.mark.parametrize("content", [b"", b"\xff", b'{"format": 1}', b'{"format": 2, "commits": ["a"]}'])
def test_one_broken_tag_stops_only_what_would_remove_its_commit(
    graph: og.Graph, tmp_path: Path, content: bytes
) -> None:
    head = put(graph, "ada", 1)
    graph.branches.create("work")
    good = graph.tags.create("good")
    graph.tags.create("bad")
    root = graph._opened.root
    at = tag_location(root, "bad")
    root.objects.write_bytes(at, content)
    assert graph.tags.list() == [good]
    assert [one.tags for one in graph.log() if one.commit == head] == [("good",)]
    assert [one.path for one in examine(graph._opened).unreadable_files] == ["__tags/bad.json"]
    copied = _copy(graph, tmp_path)._opened.root
    assert copied.objects.read_bytes_if_exists(tag_location(copied, "bad")) == content
    for removing in (lambda: graph.cleanup(keep=1), lambda: graph.branches.delete("work")):
        with pytest.raises(errors.CorruptGraph, match="tag 'bad'"):
            removing()
    graph.tags.delete("good")
    graph.tags.delete("bad")
    graph.branches.delete("work")
    graph.cleanup(keep=1)
    assert examine(graph._opened).ok


def test_a_kept_commit_that_cannot_be_read_is_reported(graph: og.Graph, tmp_path: Path) -> None:
    graph.branches.create("work")
    made = put(graph, "ada", 1, "work")
    graph.tags.create("v1", at=made)
    graph.branches.delete("work")
    root = graph._opened.root
    root.objects.write_text(kept_folder(root, made.id) / "commit.json", "{}")
    (broken,) = examine(graph._opened).unreadable_files
    assert broken.path == f"__tags/{made.id}/commit.json"
    assert "v1" in _copy(graph, tmp_path).tags
    graph.tags.delete("v1")
    assert examine(graph._opened).ok


# --- branches at old commits -------------------------------------------------------------------------


def test_a_branch_begins_at_an_old_commit_and_merges_on_it(graph: og.Graph) -> None:
    old, head = put(graph, "ada", 1), put(graph, "ada", 2)
    put(graph, "bo", 3)
    for start in (old.id, f"main@v{old.version}", old.time, old, graph.at(commit=old.id)):
        name = f"b{len(graph.branches)}"
        graph.branches.create(name, from_=start)
        assert people(graph.snapshot(name)) == {"ada": 1}
        assert graph.commits.list(name) == graph.commits.list()[-2:]
    tip = put(graph, "cy", 4, "b1")
    assert graph.commits.merge_bases(tip.id, head.id) == [old]
    assert graph.merge("b1").outcome == "merged"
    assert people(graph.snapshot()) == {"ada": 2, "bo": 3, "cy": 4}
    assert graph.merge("main", "b2").outcome == "fast_forward"
    assert people(graph.snapshot("b2")) == {"ada": 2, "bo": 3, "cy": 4}
    assert people(reopened(graph).snapshot("b3")) == {"ada": 1}


def test_it_begins_there_also_when_that_version_of_the_manifest_is_gone(graph: og.Graph) -> None:
    old = put(graph, "ada", 1)
    for age in range(2, 8):
        put(graph, "ada", age)
    graph.tags.create("v1", at=old)
    graph.cleanup(keep=1)
    fresh = reopened(graph)
    fresh.branches.create("work", from_="v1")
    fresh.tags.delete("v1")
    fresh.cleanup(keep=1)
    assert people(reopened(graph).snapshot("work")) == {"ada": 1}
    put(fresh, "bo", 5, "work")
    graph.branches.create("more", from_="work")
    assert people(graph.snapshot("more")) == {"ada": 1, "bo": 5}


def test_rows_that_were_cleaned_up_are_no_beginning(graph: og.Graph) -> None:
    old = put(graph, "ada", 1)
    put(graph, "ada", 2)
    graph.cleanup(keep=1)
    with pytest.raises(errors.HistoricalVersionReclaimed):
        graph.branches.create("work", from_=old)
    assert list(graph.branches) == ["main"]
    graph.branches.create("work")


def test_a_commit_of_another_schema_is_no_beginning(graph: og.Graph) -> None:
    old = put(graph, "ada", 1)
    graph.apply_schema(SCHEMA + "node Team { name: String @key }")
    with pytest.raises(errors.Conflict, match="has another schema"):
        graph.branches.create("work", from_=old)


def test_a_commit_that_no_branch_shows_is_no_beginning(graph: og.Graph) -> None:
    graph.branches.create("work")
    made = put(graph, "ada", 1, "work")
    graph.tags.create("v1", at=made)
    graph.branches.delete("work")
    with pytest.raises(errors.Conflict, match="no branch shows commit"):
        graph.branches.create("more", from_="v1")


def test_a_branch_that_died_while_it_was_created_is_removed_by_the_next_writer(graph: og.Graph) -> None:
    old = put(graph, "ada", 1)
    put(graph, "ada", 2)
    point = failpoints.BRANCH_CREATE_BEFORE_REWIND
    root = graph._opened.root
    code = "import sys, omnigraph as og; og.open(sys.argv[1]).branches.create('work', from_=sys.argv[2])"
    with Python("-c", code, graph.uri, old.id, env={failpoints.SETTING: f"{point}=exit"}) as run:
        assert run.wait() == failpoints.EXIT_STATUS
    assert root.objects.list_dir(root.layout.recovery) != []
    put(reopened(graph), "bo", 3)
    assert list(graph.branches) == ["main"]
    assert root.objects.list_dir(root.layout.recovery) == []


def _plant_creation(graph: og.Graph, branch: str) -> Location:
    """What a process leaves that died while it created a branch at an old commit."""
    root = graph._opened.root
    return store_creation(root, branch, graph._opened.load("main").table.version)


@pytest.mark.parametrize("at_old_commit", [False, True])
@pytest.mark.parametrize("halfway", [False, True])
def test_a_branch_outlives_the_record_of_an_earlier_creation(
    graph: og.Graph, at_old_commit: bool, halfway: bool
) -> None:
    old = put(graph, "ada", 1)
    put(graph, "ada", 2)
    root = graph._opened.root
    _plant_creation(graph, "other")  # so that the next writer reads the records

    def die_elsewhere() -> None:
        """The other process dies after the records were listed, and before the locks are taken."""
        _plant_creation(graph, "work")
        if halfway:
            root.forks.create(graph._opened.load("main").table, "work")

    with failpoints.arm(failpoints.RECOVERY_POST_SIDECAR_LIST_PRE_READ, die_elsewhere):
        graph.branches.create("work", from_=old if at_old_commit else "main")
    assert root.objects.list_dir(root.layout.recovery) == []
    with reopened(graph) as later:
        put(later, "bo", 3)
        assert people(later.snapshot("work")) == {"ada": 1 if at_old_commit else 2}


class _RawError(Exception):
    pass


@pytest.mark.parametrize("failure", [errors.Unavailable, KeyboardInterrupt, _RawError])
def test_a_branch_whose_creation_fails_is_undone_with_its_record(
    graph: og.Graph, failure: type[BaseException]
) -> None:
    old = put(graph, "ada", 1)
    put(graph, "ada", 2)
    root = graph._opened.root

    def fail() -> None:
        raise failure("injected")

    with failpoints.arm(failpoints.BRANCH_CREATE_BEFORE_REWIND, fail), pytest.raises(failure):
        graph.branches.create("work", from_=old)
    assert list(graph.branches) == ["main"]
    assert root.objects.list_dir(root.layout.recovery) == []


def test_ctrl_c_waits_until_the_branch_shows_its_commit(graph: og.Graph, hears_ctrl_c: None) -> None:
    old = put(graph, "ada", 1)
    put(graph, "ada", 2)
    with (
        failpoints.arm(failpoints.BRANCH_CREATE_BEFORE_REWIND, lambda: signal.raise_signal(signal.SIGINT)),
        pytest.raises(KeyboardInterrupt),
    ):
        graph.branches.create("work", from_=old)
    assert people(graph.snapshot("work")) == {"ada": 1}


@pytest.mark.parametrize("content", [b"", b"\xff", b"{}", b'{"branch": 1, "version": 2}'])
def test_a_damaged_record_of_a_creation_stops_no_writer(graph: og.Graph, content: bytes) -> None:
    put(graph, "ada", 1)
    root = graph._opened.root
    record = _plant_creation(graph, "work")
    root.objects.write_bytes(record, content)
    with reopened(graph) as later:
        put(later, "bo", 2)
        later.branches.create("work")
        health = examine(later._opened)
        assert [one.path for one in health.unreadable_files] == [f"__recovery/{record.name}"]
        assert not health.ok
    assert list(graph.branches) == ["main", "work"]


def test_a_process_that_saw_the_branch_before_it_was_complete_reads_it_again(graph: og.Graph) -> None:
    old = put(graph, "ada", 1)
    put(graph, "ada", 2)
    other = reopened(graph)
    seen: list[dict[str, int]] = []

    def look() -> None:
        seen.append(people(other.snapshot("work")))

    with failpoints.arm(failpoints.BRANCH_CREATE_BEFORE_REWIND, look):
        graph.branches.create("work", from_=old)
    assert seen == [{"ada": 2}]
    assert people(other.snapshot("work")) == {"ada": 1}
    assert [one.id for one in other.commits.list("work")] == [one.id for one in graph.commits.list()[-2:]]


def test_what_a_tag_says_is_a_small_file_of_its_own(graph: og.Graph) -> None:
    made = graph.tags.create("rel/1", at=put(graph, "ada", 1))
    folder = Path(graph._opened.root.layout.tags.path)
    assert [one.name for one in folder.iterdir()] == ["rel%2F1.json"]
    assert json.loads((folder / "rel%2F1.json").read_text())["commit_id"] == made.commit_id
