"""The forks of a moved graph on disk: rewritten after a kill, by two processes, and beside a writer."""

from __future__ import annotations

import json
import signal
import threading
from pathlib import Path

import pytest

import omnigraph
from omnigraph.engine.graph.open_graph import OpenGraph
from omnigraph.engine.graph.relocation import RelocationResult, relocate_if_moved
from omnigraph.engine.graph.root import Root
from omnigraph.engine.lifecycle.open import open_graph, open_without_recovery
from omnigraph.engine.maintenance.deep_check import check_deeply
from omnigraph.engine.maintenance.doctor import examine
from omnigraph.graph import Graph
from omnigraph.storage.location import Location
from omnigraph.storage.objects import Recorder
from tests import python_process
from tests.engine.moves.branching import SCHEMA, add, delete, glance, glance_of, open_at
from tests.engine.moves.conftest import Moved
from tests.engine.moves.forks import bases_of, bases_on_disk, forks_below

REWRITE = "write_bytes_if_match"


def _root(at: Path, recorder: Recorder | None = None) -> Root:
    return Root.at(Location.parse(at), recorder)


@pytest.mark.crash
@pytest.mark.parametrize("number", [1, 2, 7])
def test_an_interrupted_run_is_continued_by_the_next_opening(moved: Moved, number: int) -> None:
    arguments = (REWRITE, str(number), "open", str(moved.at))
    killed = python_process.run("-m", "tests.engine.moves.killed", *arguments)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    assert str(moved.made_at) in bases_on_disk(moved.at)
    with open_at(moved.at, read_only=True) as graph:
        assert glance(graph) == glance_of(moved.picture)
    recorder = Recorder()
    open_graph(_root(moved.at, recorder))
    assert recorder.counts()[REWRITE] > 0
    assert bases_on_disk(moved.at) == {str(moved.at)}
    assert check_deeply(open_graph(_root(moved.at))).damaged == ()


def test_a_version_that_was_damaged_before_the_move_is_still_reported(moved: Moved) -> None:
    file = next(
        file for fork in forks_below(moved.at) for file in sorted((fork / "_versions").glob("*.manifest"))
    )
    content = bytearray(file.read_bytes())
    content[0] ^= 1
    file.write_bytes(content)
    open_graph(_root(moved.at))
    assert file.read_bytes() == bytes(content)
    reported = check_deeply(open_without_recovery(_root(moved.at))).damaged
    assert str(file.relative_to(moved.at)) in {one.path for one in reported}


def test_two_processes_rewrite_the_same_forks(moved: Moved, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMNIGRAPH_LOCK_WAIT", "60")  # of a machine that is busy
    arguments = ("-m", "tests.engine.moves.killed", "none", "1", "open", str(moved.at))
    children = [python_process.Python(*arguments) for _ in range(3)]
    assert [child.wait() for child in children] == [0, 0, 0]
    # A branch that one of them found locked by another may be left to the next opening.
    with open_at(moved.at) as graph:
        assert bases_on_disk(moved.at) == {str(moved.at)}
        assert glance(graph) == glance_of(moved.picture)


def test_a_branch_that_is_being_written_is_left_to_a_later_opening(moved: Moved) -> None:
    writer = _root(moved.at)
    with writer.locks.hold(["inner"]):
        done = _in_a_thread(moved.at)
        assert done.left == ("inner",)
        assert bases_on_disk(moved.at) == {str(moved.at), str(moved.made_at)}
    assert relocate_if_moved(_root(moved.at)).left == ()
    assert bases_on_disk(moved.at) == {str(moved.at)}


def _in_a_thread(at: Path) -> RelocationResult:
    done: list[RelocationResult] = []
    thread = threading.Thread(target=lambda: done.append(relocate_if_moved(_root(at))))
    thread.start()
    thread.join()
    return done[0]


def test_a_place_that_is_known_costs_one_read(moved: Moved) -> None:
    open_at(moved.at).close()
    recorder = Recorder()
    assert relocate_if_moved(_root(moved.at, recorder)) == RelocationResult()
    assert [call.op for call in recorder.calls] == ["read_text_if_exists"]


def test_a_new_graph_knows_its_place(tmp_path: Path) -> None:
    omnigraph.init(tmp_path / "graph", schema=SCHEMA).close()
    noted = json.loads((tmp_path / "graph" / "__place.json").read_text())
    assert noted["places"] == [str(tmp_path / "graph")]


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"places": 3}', '{"places": []}', "\x00"])
def test_a_damaged_note_of_the_place_is_written_again(moved: Moved, text: str) -> None:
    (moved.at / "__place.json").write_text(text)
    open_at(moved.at).close()
    assert bases_on_disk(moved.at) == {str(moved.at)}
    assert json.loads((moved.at / "__place.json").read_text())["places"] == [str(moved.at)]


def test_a_graph_without_a_note_of_its_place_is_rewritten(moved: Moved) -> None:
    """As earlier releases made it."""
    (moved.at / "__place.json").unlink()
    with open_at(moved.at) as graph:
        assert bases_on_disk(moved.at) == {str(moved.at)}
        add(graph, "new", branch="inner")
        graph.merge("inner", "written")


def test_the_record_of_a_write_in_a_moved_graph_means_tables_here(moved: Moved) -> None:
    layout = _root(moved.at).layout
    assert layout.recorded_table("/other/graph/nodes/0123") == layout.table("nodes/0123")
    assert layout.recorded_table("s3://bucket/edges/0123") == layout.table("edges/0123")
    assert layout.recorded_table("/__manifest") == layout.manifest


def test_forks_that_an_earlier_release_made_elsewhere_are_rewritten_by_optimize(moved: Moved) -> None:
    """The note of the place is right, and some forks record another one all the same."""
    note = {"format": 1, "places": [str(moved.at)]}
    (moved.at / "__place.json").write_text(json.dumps(note))
    health = examine(open_without_recovery(_root(moved.at), read_only=True))
    assert health.ok
    assert {one.path for one in health.moved} >= {"__manifest/tree/inner", "__manifest/tree/untouched"}
    assert all(one.recorded.startswith(str(moved.made_at)) for one in health.moved)
    with open_at(moved.at) as graph:
        assert bases_on_disk(moved.at) == {str(moved.made_at)}
        graph.optimize("inner")
        assert bases_on_disk(moved.at) == {str(moved.at)}
        assert glance(graph)["rows"] == glance_of(moved.picture)["rows"]
    assert not examine(open_without_recovery(_root(moved.at), read_only=True)).moved


def test_a_commit_on_a_moved_fork_rewrites_all_its_versions_first(moved: Moved) -> None:
    """Lance reads older versions by itself: none may record another place below one that is right."""
    graph = Graph(OpenGraph.open(_root(moved.at)))
    add(graph, "new", branch="written")
    written = [fork for fork in forks_below(moved.at) if fork.match("tree/written")]
    assert [len(bases_of(fork, moved.at)) for fork in written] == [1, 1, 1]
    assert {base for fork in written for base in bases_of(fork, moved.at)} == {
        str(moved.at),  # the manifest and the persons
        str(moved.made_at),  # the edges, which were not written to
    }
    with open_at(moved.at, read_only=True) as fresh:
        assert glance(fresh)["diff"] == glance_of(moved.picture)["diff"]
        graph.optimize("written")
        graph.diff("main", "written")
        assert len(list(fresh.diff("main", "written"))) == len(moved.picture["diffs"]["main", "written"]) + 1


def test_two_mounts_in_turns_compare_versions_that_the_other_rewrote(moved: Moved, tmp_path: Path) -> None:
    """A process goes on at its own place after another one rewrote all forks for a place that is gone."""
    with open_at(moved.at) as graph:
        add(graph, "one", branch="written")
        elsewhere = tmp_path / "mount"
        moved.at.rename(elsewhere)
        open_at(elsewhere).close()
        elsewhere.rename(moved.at)
        delete(graph, "ann", branch="written")
        changes = [(change.op, change.id) for change in graph.diff("main", "written")]
        assert ("delete", "ann") in changes
    with open_at(moved.at, read_only=True) as fresh:
        assert [(change.op, change.id) for change in fresh.diff("main", "written")] == changes
