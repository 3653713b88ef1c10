"""The state of main on file: it saves reading, and whatever is wrong with it, readers see the true state."""

from __future__ import annotations

import logging
import shutil
import struct
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from omnigraph.engine.graph.coordinator import Coordinator
from omnigraph.engine.graph.manifest import ManifestState, TableVersion
from omnigraph.engine.graph.open_graph import OpenGraph
from omnigraph.engine.graph.publish import ManifestChanges, NewCommit, publish, repin
from omnigraph.engine.graph.root import Root
from omnigraph.engine.graph.state_cache import FILE, MIN_FRAGMENTS
from omnigraph.engine.upkeep.manifest_upkeep import compact_manifest
from omnigraph.errors import OmnigraphError
from omnigraph.storage.fragments import list_data_file_names
from omnigraph.storage.objects import Recorder
from omnigraph.storage.staging import commit_staged
from omnigraph.storage.upkeep import compact, stage_barrier
from tests.engine.graphs import (
    PERSON,
    TEAM,
    add_branch,
    bare_publish,
    no_room_for,
    publish_from_outside,
    tree,
)


def place(graph: OpenGraph) -> Path:
    return (graph.root.layout.derived / FILE).path


def read(graph: OpenGraph, *, caches_on_disk: bool = False) -> ManifestState:
    """The state as a new process finds it."""
    return Coordinator(Root.at(graph.root.layout.root), "main", caches_on_disk=caches_on_disk).load().state


def read_again(graph: OpenGraph) -> ManifestState:
    """The same from the rows alone."""
    place(graph).unlink(missing_ok=True)
    return read(graph)


def data_files(graph: OpenGraph) -> set[Path]:
    names = list_data_file_names(graph.root.tables.tip(graph.root.layout.manifest)).values()
    return {graph.root.layout.manifest.path / "data" / name for name in names}


def many(graph: OpenGraph) -> None:
    """So many publishes that a state is worth keeping."""
    for version in range(2, 2 + MIN_FRAGMENTS):
        bare_publish(graph.coordinator("main"), {PERSON: version}, actor="ada")


def test_a_new_process_reads_no_fragment_that_the_file_knows(graph: OpenGraph) -> None:
    many(graph)
    read(graph, caches_on_disk=True)
    known = data_files(graph)
    bare_publish(graph.coordinator("main"), {PERSON: 9})
    now = graph.load("main").state
    for file in known:
        file.rename(file.with_suffix(".away"))
    assert read(graph) == now, "the rows of one fragment are enough"
    with pytest.raises(OmnigraphError):
        read_again(graph)
    for file in known:
        file.with_suffix(".away").rename(file)
    assert read_again(graph) == now


def test_when_nothing_came_since_the_manifest_is_not_scanned(graph: OpenGraph) -> None:
    many(graph)
    read(graph, caches_on_disk=True)
    recorder = Recorder()
    found = Coordinator(Root.at(graph.root.layout.root, recorder), "main").load().state
    assert found == graph.load("main").state
    assert recorder.counts()["scan"] == 0


def histories(graph: OpenGraph) -> Iterator[str]:
    """What can become of a manifest, one thing after the other."""
    main = graph.coordinator("main")
    many(graph)
    yield "commits"
    bare_publish(main, {PERSON: 8, TEAM: 2}, actor="bob")
    yield "two tables"
    repin(main, [TableVersion(PERSON, 10, None, 0)], expected={PERSON: 8})
    yield "the same rows in another version"
    publish_from_outside(main, TableVersion(TEAM, 2, "work", 0))
    yield "a version that passed to another owner"
    compact(main.load().table, only=sorted(list_data_file_names(main.load().table))[-3:])
    yield "newest fragments put together"
    commit_staged(stage_barrier(main.load().table))
    yield "a version without a row"
    publish(
        main,
        ManifestChanges({"node:New": "nodes/new"}, (TableVersion("node:New", 1, None, 5),)),
        NewCommit("01N"),
    )
    yield "a new table"
    publish(main, ManifestChanges(dropped={"node:New": 2}), NewCommit("01O", merged_parent="01N"))
    yield "a table dropped"
    many_more = [bare_publish(main, {PERSON: version}) for version in range(11, 15)]
    assert len(many_more) == MIN_FRAGMENTS
    yield "more commits"
    assert compact_manifest(main, thorough=True)
    yield "everything in one fragment"


def test_an_old_file_and_what_came_since_add_up_to_what_the_rows_say(graph: OpenGraph) -> None:
    kept: dict[str, bytes] = {}
    for happened in histories(graph):
        expected = read_again(graph)
        assert expected == graph.load("main").state
        for when, body in kept.items():
            place(graph).write_bytes(body)
            assert read(graph) == expected, f"kept after {when}, read after {happened}"
        place(graph).unlink(missing_ok=True)
        read(graph, caches_on_disk=True)
        if place(graph).exists():
            kept[happened] = place(graph).read_bytes()
    assert len(kept) == 9, "one fragment alone is read as fast"


def flip_name(body: bytes) -> bytes:
    return body.replace(b'"ada"', b'"adb"', 1)


def foreign(body: bytes, inside: bytes = b'{"version":3}') -> bytes:
    return body[:12] + struct.pack("<I", zlib.crc32(inside)) + inside


def headless(body: bytes) -> bytes:
    inside = body[16:]
    head = inside.rindex(b'"head":"') + 8
    return foreign(body, inside[:head] + b"01X" + inside[head + 3 :])


DAMAGE: dict[str, Callable[[bytes], bytes]] = {
    "empty": lambda _: b"",
    "cut": lambda body: body[:-1],
    "cut in the first bytes": lambda body: body[:10],
    "a bit flipped": flip_name,
    "another format": lambda body: body[:8] + struct.pack("<I", 99) + body[12:],
    "no such file": lambda body: b"x" + body[1:],
    "of another program": foreign,
    "without its head": headless,
}


def test_a_damaged_file_costs_time_and_is_rewritten(graph: OpenGraph) -> None:
    many(graph)
    expected = read(graph, caches_on_disk=True)
    body = place(graph).read_bytes()
    for damage, damaged in DAMAGE.items():
        assert damaged(body) != body
        place(graph).write_bytes(damaged(body))
        assert read(graph, caches_on_disk=True) == expected, damage
        assert place(graph).read_bytes() == body, damage


def commits(main: Coordinator) -> None:
    for version in range(20, 20 + MIN_FRAGMENTS):
        bare_publish(main, {TEAM: version})


def one_more_commit(main: Coordinator) -> None:
    commits(main)
    bare_publish(main, {TEAM: 30})


def barriers(main: Coordinator) -> None:
    table = main.load().table
    for _ in range(2 * MIN_FRAGMENTS):
        table = commit_staged(stage_barrier(table))


def old_fragments_put_together(main: Coordinator) -> None:
    barriers(main)
    table = main.load().table
    compact(table, only=sorted(list_data_file_names(table))[:2])


def a_commit_behind_barriers(main: Coordinator) -> None:
    barriers(main)
    bare_publish(main, {TEAM: 20})


def the_same_rows_in_another_version(main: Coordinator) -> None:
    repin(main, [TableVersion(TEAM, 5, None, 0)], expected={TEAM: 1})


def the_same_rows_and_a_commit(main: Coordinator) -> None:
    the_same_rows_in_another_version(main)
    bare_publish(main, {TEAM: 20})


def commits_put_together(main: Coordinator) -> None:
    the_same_rows_in_another_version(main)
    for version in range(20, 40):
        bare_publish(main, {TEAM: version})
        compact_manifest(main)


WRITTEN_ON: tuple[Callable[[Coordinator], None], ...] = (
    lambda _: None,
    commits,
    one_more_commit,
    barriers,
    old_fragments_put_together,
    a_commit_behind_barriers,
    the_same_rows_in_another_version,
    the_same_rows_and_a_commit,
    commits_put_together,
)


def many_commits(main: Coordinator) -> None:
    for version in range(11, 11 + MIN_FRAGMENTS):
        bare_publish(main, {PERSON: version})


def a_version_without_a_commit(main: Coordinator) -> None:
    repin(main, [TableVersion(PERSON, 30, None, 0)], expected={PERSON: 5})


@pytest.mark.parametrize("undone", [many_commits, a_version_without_a_commit])
def test_a_manifest_that_was_put_back_and_written_on_is_believed_and_not_the_file(
    graph: OpenGraph, undone: Callable[[Coordinator], None]
) -> None:
    manifest = graph.root.layout.manifest.path
    many(graph)
    backup = manifest.with_name("backup")
    shutil.copytree(manifest, backup)
    undone(graph.coordinator("main"))
    future = read(graph, caches_on_disk=True)
    body = place(graph).read_bytes()
    for write_on in WRITTEN_ON:
        shutil.rmtree(manifest)
        shutil.copytree(backup, manifest)
        write_on(Coordinator(Root.at(graph.root.layout.root), "main"))
        expected = read_again(graph)
        assert expected.versions != future.versions
        place(graph).write_bytes(body)
        assert read(graph) == expected, write_on.__name__
        place(graph).unlink()


def test_a_file_of_another_graph_is_not_believed(graph: OpenGraph, template: Path) -> None:
    many(graph)
    read(graph, caches_on_disk=True)
    body = place(graph).read_bytes()
    shutil.rmtree(graph.root.layout.manifest.path)
    shutil.copytree(template / "__manifest", graph.root.layout.manifest.path)
    again = Coordinator(Root.at(graph.root.layout.root), "main")
    for version in range(2, 10):
        bare_publish(again, {TEAM: version})
    expected = read_again(graph)
    place(graph).write_bytes(body)
    assert read(graph) == expected


def test_who_only_reads_writes_nothing_and_short_manifests_need_no_file(graph: OpenGraph) -> None:
    at = graph.root.layout.root
    OpenGraph(Root.at(at), read_only=False).load("main")
    assert not place(graph).exists(), "there are few fragments"
    many(graph)
    add_branch(graph, "work")
    before = tree(at.path)
    OpenGraph(Root.at(at), read_only=True).load("main")
    OpenGraph(Root.at(at), read_only=False).load("work")
    assert tree(at.path) == before
    OpenGraph(Root.at(at), read_only=False).load("main")
    assert place(graph).exists()


def test_a_store_that_does_not_give_or_take_the_file_is_left_alone(
    graph: OpenGraph, caplog: pytest.LogCaptureFixture
) -> None:
    many(graph)
    expected = read(graph)
    for refused in ("write_bytes", "read_bytes_if_exists"):
        root = Root.at(graph.root.layout.root, no_room_for(refused, where=lambda uri: uri.endswith(FILE)))
        with caplog.at_level(logging.WARNING):
            assert Coordinator(root, "main", caches_on_disk=True).load().state == expected
        assert "no room" in caplog.text
        caplog.clear()
