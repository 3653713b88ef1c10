"""Old versions of the manifest are removed automatically, and no reader misses them."""

from __future__ import annotations

import logging
from pathlib import Path

import lance
import pytest

from omnigraph.engine.graph.coordinator import Coordinator
from omnigraph.engine.graph.manifest import KEY
from omnigraph.engine.graph.open_graph import AtCommit, AtTime, AtVersion, OpenGraph
from omnigraph.engine.graph.publish import ManifestChanges, NewCommit, publish
from omnigraph.engine.graph.root import Root
from omnigraph.engine.maintenance.optimize import optimize
from omnigraph.engine.upkeep import manifest_upkeep as upkeep
from omnigraph.engine.upkeep.manifest_upkeep import (
    FRAGMENT_LIMIT,
    collect_manifest,
    compact_manifest,
    minimum_age,
)
from omnigraph.engine.write.transaction import Author
from omnigraph.errors import BadRequest
from omnigraph.storage import upkeep as collecting
from omnigraph.storage.location import Location
from omnigraph.storage.objects import Recorder
from tests.engine.crash.matrix import make_scene
from tests.engine.crash.world import make_graph
from tests.engine.graphs import (
    PERSON,
    add_branch,
    append_people,
    bare_publish,
    manifest_rows,
    new_graph,
    no_room_for,
    require_linear,
    with_clock,
)
from tests.engine.old_graphs import open_again, story
from tests.engine.test_manifest_upkeep import logical, write
from tests.python_process import PIPE, Python

SECOND = 1_000_000


@pytest.fixture
def eager(monkeypatch: pytest.MonkeyPatch) -> None:
    """Versions go as soon as they are replaced, a few at a time, and all of these with one write."""
    monkeypatch.setenv(upkeep.SETTING, "0")
    monkeypatch.setattr(upkeep, "AT_FIRST", 1_000)
    monkeypatch.setattr(upkeep, "COLLECTED_AT_ONCE", FRAGMENT_LIMIT * 2 // 3)


def versions(graph: OpenGraph, branch: str | None = None) -> tuple[int, ...]:
    return graph.root.tables.tip(graph.root.layout.manifest, branch=branch).versions()


def crowd(graph: OpenGraph, branch: str = "main") -> list[str]:
    """Publishes, as many as make a compaction due."""
    coordinator = graph.coordinator(branch)
    made = [bare_publish(coordinator).commit.id]
    while coordinator.load().table.fragment_count <= FRAGMENT_LIMIT:
        made.append(bare_publish(coordinator).commit.id)
    return made


# --- what goes -----------------------------------------------------------------------------------


@pytest.mark.usefixtures("eager")
def test_versions_stay_few_however_many_publishes_and_the_past_stays_readable(graph: OpenGraph) -> None:
    done = write(graph, 200)
    assert len(versions(graph)) < 100
    fresh = OpenGraph(Root.at(graph.root.layout.root), read_only=True)
    state = fresh.load("main").state
    assert logical(state) == logical(graph.load("main").state)
    chain = require_linear(state.commits.values(), [commit for commit, _ in done])
    for commit in chain[::20]:
        assert fresh.snapshot(AtCommit(commit.id)).id == commit.id
        assert fresh.snapshot(AtTime("main", commit.created_at)).id == commit.id
        assert fresh.snapshot(AtVersion("main", commit.version)).id == commit.id


@pytest.mark.usefixtures("eager")
def test_rows_their_ids_and_their_versions_stay(graph: OpenGraph) -> None:
    crowd(graph)
    columns = [KEY, "_rowid", "_row_created_at_version", "_row_last_updated_at_version"]
    before = graph.load("main").table.scan(columns).sort_by(KEY)
    assert compact_manifest(graph.coordinator("main"))
    tip = graph.root.tables.tip(graph.root.layout.manifest)
    assert len(tip.versions()) < 10
    assert tip.scan(columns).sort_by(KEY) == before
    assert tip.primary_key == (KEY,)


def test_a_version_goes_when_it_has_been_out_of_date_for_the_minimum_age(
    graph: OpenGraph, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(upkeep, "COLLECTED_AT_ONCE", 1)
    monkeypatch.setattr(upkeep, "AT_FIRST", 1_000)
    start = graph.root.clock() + 3600 * SECOND
    crowd(with_clock(graph, lambda: start))
    last = max(commit.version for commit in graph.load("main").state.commits.values())
    assert compact_manifest(with_clock(graph, lambda: start + 599 * SECOND).coordinator("main"))
    assert min(versions(graph)) == 1, "an hour old, but until ten minutes ago it was the newest"
    crowd(with_clock(graph, lambda: start + 599 * SECOND))
    assert compact_manifest(with_clock(graph, lambda: start + 601 * SECOND).coordinator("main"))
    assert min(versions(graph)) == last


def test_few_versions_are_left_alone(graph: OpenGraph, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(upkeep.SETTING, "0")
    crowd(graph)
    assert compact_manifest(graph.coordinator("main"))
    assert versions(graph)[0] == 1


def test_many_versions_go_a_few_with_each_of_the_next_writes(
    folder: Location, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(upkeep, "IN_ONE_WRITE", 3)
    monkeypatch.setattr(upkeep, "AT_FIRST", 3)
    monkeypatch.setattr(upkeep, "COLLECTED_AT_ONCE", 20)
    new_graph(folder)
    recorder, plain = Recorder(), OpenGraph(Root.at(folder), read_only=True)
    graph = OpenGraph(Root.at(folder, recorder), read_only=False)
    write(graph, 30)
    many, files = versions(plain), files_of(plain)
    monkeypatch.setenv(upkeep.SETTING, "0")
    seen = [many]
    while min(seen[-1]) <= max(many) - 5:
        before = len(recorder.calls)
        write(graph, 1)
        asked = [call.op for call in recorder.calls[before:]]
        seen.append(versions(plain))
        gone = sorted(set(seen[-2]) - set(seen[-1]))
        assert len(gone) <= 3
        assert gone == list(seen[-2][: len(gone)]), "the oldest first"
        assert asked.count("collect") == bool(gone)
    assert recorder.counts()["versions"] == 1, "they were listed once"
    removed = files - files_of(plain)
    assert {name.partition("/")[0] for name in removed} == {"data", "_deletions", "_transactions"}
    require_what_versions_name(plain)
    assert logical(open_again(folder).load("main").state) == logical(graph.load("main").state)


def test_versions_stay_few_where_each_write_is_a_process_of_its_own(
    folder: Location, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(upkeep, "COLLECTED_AT_ONCE", 20)
    monkeypatch.setenv(upkeep.SETTING, "0")
    new_graph(folder)
    most = 0
    for _ in range(12 * FRAGMENT_LIMIT):
        graph = open_again(folder)
        write(graph, 1)
        most = max(most, len(versions(graph)))
    assert most <= 20 + 3 * FRAGMENT_LIMIT


def files_of(graph: OpenGraph) -> set[str]:
    """The files of the manifest but for those of its versions."""
    at = graph.root.layout.manifest.path
    parts = (path.relative_to(at).as_posix() for path in at.rglob("*") if path.is_file())
    return {name for name in parts if not name.startswith("_versions/")}


def require_what_versions_name(graph: OpenGraph) -> None:
    """There are the files that the stored versions name, and no others."""
    uri = graph.root.layout.manifest.uri
    stored = [lance.dataset(uri, version=version) for version in versions(graph)]
    pieces = [piece for native in stored for piece in native.get_fragments()]
    named = {f"data/{file.path}" for piece in pieces for file in piece.data_files()}
    named |= {gone for piece in pieces if (gone := piece.deletion_file()) is not None}
    found = files_of(graph)
    assert {name for name in found if not name.startswith("_transactions/")} == named
    assert len(found - named) == len(stored), "a transaction for each"


@pytest.mark.parametrize("after", [1, 20])
def test_a_collection_that_breaks_off_is_finished_by_a_later_one(
    graph: OpenGraph, after: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(upkeep, "COLLECTED_AT_ONCE", 10)
    write(graph, 14)
    monkeypatch.setenv(upkeep.SETTING, "0")
    left = after

    def breaking_off(file: Path) -> int:
        nonlocal left
        left -= 1
        if left < 0:
            raise PermissionError(f"no right to remove {file}")
        return removed(file)

    removed = collecting._remove_file
    with monkeypatch.context() as patch:
        patch.setattr(collecting, "_remove_file", breaking_off)
        while left >= 0:
            write(graph, 1)
    again = open_again(graph.root.layout.root)
    assert logical(again.load("main").state) == logical(graph.load("main").state)
    write(again, FRAGMENT_LIMIT)
    while again.coordinator("main").collection_runs:
        write(again, 1)
    assert versions(again)[0] > 14
    require_what_versions_name(again)


def test_versions_that_another_process_removed_are_no_trouble(
    graph: OpenGraph, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(upkeep, "IN_ONE_WRITE", 3)
    monkeypatch.setattr(upkeep, "AT_FIRST", 3)
    monkeypatch.setattr(upkeep, "COLLECTED_AT_ONCE", 20)
    write(graph, 30)
    monkeypatch.setenv(upkeep.SETTING, "0")
    while not graph.coordinator("main").collection_runs:
        write(graph, 1)
    assert collect_manifest(open_again(graph.root.layout.root).coordinator("main")).versions > 0
    left = versions(graph)
    with caplog.at_level(logging.WARNING, "omnigraph"):
        write(graph, 8)
    assert set(left) <= set(versions(graph))
    assert not graph.coordinator("main").collection_runs
    assert caplog.text == ""


def test_versions_are_listed_only_once_enough_of_them_can_be_out_of_date(
    folder: Location, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(upkeep, "COLLECTED_AT_ONCE", 2 * FRAGMENT_LIMIT)
    new_graph(folder)
    recorder = Recorder()
    graph = OpenGraph(Root.at(folder, recorder), read_only=False)
    write(graph, 3 * FRAGMENT_LIMIT)
    assert recorder.counts()["commit_compaction"] >= 2
    assert recorder.counts()["versions"] == 0, "all of them are young"
    monkeypatch.setenv(upkeep.SETTING, "0")
    write(graph, 2 * FRAGMENT_LIMIT)
    assert recorder.counts()["versions"] == 1, "there were enough, and the next look waits for as many"


def test_optimize_collects_whatever_the_number_and_only_once(
    graph: OpenGraph, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(upkeep.SETTING, "0")
    append_people(graph, "ada")
    optimize(graph, Author("main"))
    left = versions(graph)
    assert left[0] > 1
    optimize(graph, Author("main"))
    assert versions(graph) == left


def test_rows_that_do_not_remember_their_version_need_every_version(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(upkeep.SETTING, "0")
    monkeypatch.setattr(upkeep, "COLLECTED_AT_ONCE", 1)
    at = Location.parse(tmp_path / "old")
    story(at, 4, stable_row_ids=False)
    graph = open_again(at)
    before = versions(graph)
    crowd(graph)
    assert compact_manifest(graph.coordinator("main"))
    assert set(before) <= set(versions(graph))


@pytest.mark.parametrize("text", ["soon", "-1", "inf", "nan", ""])
def test_a_minimum_age_that_is_no_number_of_seconds_is_refused(
    text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(upkeep.SETTING, text)
    with pytest.raises(BadRequest, match="OMNIGRAPH_CLEANUP_MIN_AGE"):
        minimum_age()


# --- branches ------------------------------------------------------------------------------------


@pytest.mark.usefixtures("eager")
def test_what_branches_and_their_branches_stand_on_stays(graph: OpenGraph) -> None:
    """Each collects its own versions, and none those of another."""
    crowd(graph)
    add_branch(graph, "work")
    crowd(graph, "work")
    add_branch(graph, "inner", "work")
    states = {}
    for branch in ("main", "work", "inner"):
        crowd(graph, branch)
        states[branch] = logical(graph.load(branch).state)
    forks = graph.root.forks.list(graph.root.layout.manifest)
    for branch in ("inner", "main", "work"):
        assert compact_manifest(graph.coordinator(branch))
    assert forks["work"].parent_version in versions(graph)
    assert forks["inner"].parent_version in versions(graph, "work")
    assert len(versions(graph)) < 10
    assert len(versions(graph, "work")) < 10
    fresh = OpenGraph(Root.at(graph.root.layout.root), read_only=False)
    for branch, state in states.items():
        assert logical(fresh.load(branch).state) == state
        for version in (1, forks["work"].parent_version, forks["inner"].parent_version):
            if version <= fresh.load(branch).state.version:
                fresh.snapshot(AtVersion(branch, version))
        made = bare_publish(fresh.coordinator(branch))
        assert made.commit.id in graph.load(branch).state.commits


# --- those who come late -------------------------------------------------------------------------


@pytest.mark.usefixtures("eager")
def test_a_coordinator_that_lags_behind_catches_up(graph: OpenGraph) -> None:
    late = Coordinator(Root.at(graph.root.layout.root), "main")
    late.load()
    for _ in range(2):
        crowd(graph)
        assert compact_manifest(graph.coordinator("main"))
    assert late.load().state == graph.load("main").state
    assert bare_publish(late).commit.id in graph.load("main").state.commits


@pytest.mark.usefixtures("eager")
@pytest.mark.parametrize("rounds", [1, 2])
def test_a_publisher_that_slept_meanwhile_does_not_split_the_history(graph: OpenGraph, rounds: int) -> None:
    """It has lost its lock: only the barrier tells it that the versions since its base are missing."""
    asleep = Coordinator(Root.at(graph.root.layout.root), "main")
    base = asleep.load()
    made = []
    for _ in range(rounds):
        made += crowd(graph)
        assert compact_manifest(graph.coordinator("main"))
    assert base.state.version + 1 not in versions(graph)
    late = publish(asleep, ManifestChanges(), NewCommit("01X"), base=base)
    require_linear(graph.load("main").state.commits.values(), [*made, late.commit.id])
    rows = manifest_rows(graph.root).column(KEY).to_pylist()
    assert len(rows) == len(set(rows))


@pytest.mark.usefixtures("eager")
def test_the_past_is_read_even_if_its_versions_go_in_the_middle(graph: OpenGraph) -> None:
    first = bare_publish(graph.coordinator("main"), {PERSON: 2}).commit

    class Slow(Recorder):
        collected = False

        def __call__(self, op: str, uri: str, /) -> None:
            if op == "scan" and armed and not self.collected:
                self.collected = True
                for _ in range(2):
                    crowd(graph)
                    assert compact_manifest(graph.coordinator("main"))

    armed = False
    slow = Slow()
    reader = OpenGraph(Root.at(graph.root.layout.root, slow), read_only=True)
    crowd(graph)
    reader.load("main")
    armed = True
    assert reader.snapshot(AtCommit(first.id)).entries[PERSON].version == 2
    assert slow.collected


_READER = """
import sys
from omnigraph.engine.graph.open_graph import AtBranch, AtCommit, OpenGraph
from omnigraph.engine.graph.snapshot_tables import open_table
from omnigraph.engine.graph.root import Root
from omnigraph.storage.location import Location

graph = OpenGraph.open(Root.at(Location.parse(sys.argv[1])), read_only=True)
pinned = graph.snapshot(AtBranch())
print("ready", flush=True)
sys.stdin.readline()
rows = lambda snapshot: open_table(graph, snapshot, "node:Person").count()
print(rows(pinned), rows(graph.snapshot(AtCommit(pinned.id))), rows(graph.snapshot(AtBranch())), flush=True)
"""


@pytest.mark.usefixtures("eager")
def test_a_reader_in_another_process_reads_what_it_pinned_and_what_came(graph: OpenGraph) -> None:
    append_people(graph, "ada")
    with Python("-c", _READER, graph.root.uri, stdin=PIPE, stdout=PIPE) as reader:
        assert reader.stdout is not None
        assert reader.stdout.readline() == "ready\n"
        pinned = graph.load("main").state.version
        append_people(graph, "bo", "cy")
        crowd(graph)
        assert compact_manifest(graph.coordinator("main"))
        assert pinned not in versions(graph)
        assert reader.communicate("go\n")[0] == "1 1 3\n"


# --- failures ------------------------------------------------------------------------------------


@pytest.mark.usefixtures("eager")
@pytest.mark.parametrize("op", ["versions", "list_tags", "commit", "collect"])
def test_a_collection_that_fails_is_logged_and_the_publish_stands(
    folder: Location, op: str, caplog: pytest.LogCaptureFixture
) -> None:
    new_graph(folder)

    graph = OpenGraph(Root.at(folder, no_room_for(op)), read_only=False)
    with caplog.at_level(logging.WARNING, "omnigraph"):
        done = write(graph, FRAGMENT_LIMIT + 2)
    assert "old versions of the manifest of branch 'main' were not collected" in caplog.text
    assert "no room" in caplog.text
    whole = OpenGraph(Root.at(folder), read_only=False)
    require_linear(whole.load("main").state.commits.values(), [commit for commit, _ in done])
    assert versions(whole)[0] == 1
    write(whole, FRAGMENT_LIMIT + 2)
    assert versions(whole)[0] > 1, "the next one tries again"


@pytest.mark.s3
def test_old_versions_in_a_bucket_go_too(s3_root: Location, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(upkeep.SETTING, "0")
    monkeypatch.setattr(upkeep, "FRAGMENT_LIMIT", 3)
    monkeypatch.setattr(upkeep, "COLLECTED_AT_ONCE", 3)
    graph = new_graph(s3_root)
    with monkeypatch.context() as few:
        few.setattr(upkeep, "MOST_STORED", 1)
        done = write(graph, 6)
        assert versions(graph)[0] == 1, "all of them would have to be read"
    graph = open_again(s3_root)  # one that has not looked yet
    done += write(graph, 12)
    assert len(versions(graph)) < 18
    require_linear(graph.load("main").state.commits.values(), [commit for commit, _ in done])


@pytest.mark.parametrize("name", ["collecting", "collecting-branch"])
def test_the_writes_of_the_crash_matrix_that_are_to_collect_do(tmp_path: Path, name: str) -> None:
    at = Location.parse(tmp_path)
    make_graph(at / "base")
    scene = make_scene(name, at / "base", at / "scene")
    assert [call.op for call in scene.forward].count("collect") == 1
