"""With `OMNIGRAPH_DURABILITY=fsync` nothing that counts is left in the hands of the operating system."""

from __future__ import annotations

import base64
import json
import os
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from omnigraph import errors, failpoints
from omnigraph.engine.branches.manage import create_branch, delete_branch
from omnigraph.engine.commit.recovery.sweep import sweep
from omnigraph.engine.constraints.duplicates import Mode
from omnigraph.engine.graph.open_graph import OpenGraph
from omnigraph.engine.graph.root import Root
from omnigraph.engine.lifecycle.create import create_graph
from omnigraph.engine.load.loader import load
from omnigraph.engine.load.request import LoadRequest
from omnigraph.engine.maintenance.ensure_indexes import ensure_indices
from omnigraph.engine.maintenance.optimize import optimize
from omnigraph.engine.merge.merge import MergeRequest, merge
from omnigraph.engine.schema_apply.apply import SchemaRequest, apply_schema
from omnigraph.engine.tasks.runner import Engine, LocalRunner
from omnigraph.engine.upkeep.manifest_upkeep import FRAGMENT_LIMIT
from omnigraph.engine.write.mutate import mutate
from omnigraph.engine.write.transaction import Author
from omnigraph.lang.query.compile import CompiledMutation, compile_query
from omnigraph.lang.source import Source
from omnigraph.storage.durability import configured_sync, sync_path
from omnigraph.storage.location import Location

SCHEMA = "node P { k: String @key  n: I32?  b: Blob? }\nedge E: P -> P\n"

# Control objects are synced by their writers, a lock has no content that counts, and no write depends
# on a log of checksums.
CONTROL = ("_schema.pg", "_schema.ir.json", "_schema.ids.json", "__schema_state.json", "__place.json")
OWN = ("__locks", "__recovery", "__schemas", "__checksums", *CONTROL)


class Disk:
    """A graph, and what was synced of it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.synced: list[Path] = []
        self.root = Root.at(Location.parse(folder), sync=self.sync)

    def sync(self, path: Path) -> None:
        sync_path(path)
        self.synced.append(path)

    def stamps(self) -> dict[Path, tuple[int, int]]:
        found = (at for at in self.folder.rglob("*") if at.is_file())
        tables = (at for at in found if not at.parent.name.startswith("taken-"))  # notes of kept bases
        named = [at for at in tables if at.relative_to(self.folder).parts[0] not in OWN]
        return {at: (at.stat().st_ino, at.stat().st_mtime_ns) for at in named}

    def after(self, act: Callable[[], object]) -> tuple[set[Path], list[Path]]:
        """The files that something wrote, and what was synced meanwhile."""
        before, self.synced = self.stamps(), []
        act()
        now = self.stamps()
        return {at for at in now if before.get(at) != now[at]}, self.synced


@pytest.fixture
def disk(tmp_path: Path) -> Disk:
    made = Disk(tmp_path / "g.omni")
    create_graph(made.root, SCHEMA)
    return made


@pytest.fixture
def graph(disk: Disk) -> OpenGraph:
    return OpenGraph.open(disk.root)


def change(graph: OpenGraph, statements: str, branch: str = "main") -> None:
    compiled = compile_query(f"query q() {{ {statements} }}", graph.schema().catalog)
    assert isinstance(compiled, CompiledMutation)
    mutate(graph, compiled, {}, Author(branch))


def bring(graph: OpenGraph, file: Path, mode: Mode, *keys: str, blob: bytes = b"") -> None:
    text = f"base64:{base64.b64encode(blob).decode()}"
    rows = [{"type": "P", "data": {"k": key, **({"b": text} if blob else {})}} for key in keys]
    file.write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    load(graph, LoadRequest((file,), mode), Author("main"))


def require_synced(written: set[Path], synced: list[Path], root: Path) -> None:
    assert written
    assert written - set(synced) == set()
    folders = {parent for at in written for parent in at.parents if parent.is_relative_to(root)}
    assert folders - set(synced) == set()
    # What a folder names is on disk before the folder is.
    for at in written:
        assert synced.index(at) < max(number for number, seen in enumerate(synced) if seen == at.parent)


def test_every_file_of_a_new_graph_is_synced(tmp_path: Path) -> None:
    disk = Disk(tmp_path / "g.omni")
    written, synced = disk.after(lambda: create_graph(disk.root, SCHEMA))
    require_synced(written, synced, disk.folder)


WRITES = [
    'insert P { k: "c", n: 1 }',
    'insert E { from: "a", to: "b" }  insert P { k: "d" }',
    'update P set { n: 7 } where k = "a"',
    'delete P where k = "a"',
]


@pytest.mark.parametrize("branch", ["main", "work"])
@pytest.mark.parametrize("statements", WRITES)
def test_every_file_of_a_mutation_is_synced(
    disk: Disk, graph: OpenGraph, tmp_path: Path, statements: str, branch: str
) -> None:
    bring(graph, tmp_path / "in.jsonl", Mode.APPEND, "a", "b")
    change(graph, 'insert E { from: "b", to: "a" }')
    if branch != "main":
        create_branch(graph, branch)
    written, synced = disk.after(lambda: change(graph, statements, branch))
    require_synced(written, synced, disk.folder)


@pytest.mark.parametrize("mode", list(Mode))
def test_every_file_of_a_load_is_synced(disk: Disk, graph: OpenGraph, tmp_path: Path, mode: Mode) -> None:
    file = tmp_path / "in.jsonl"
    bring(graph, file, Mode.APPEND, "a", "b")
    keys = {Mode.APPEND: ("c", "d"), Mode.PATCH: ("a", "b")}.get(mode, ("b", "c"))
    # Large values get files of their own beside the data.
    written, synced = disk.after(lambda: bring(graph, file, mode, *keys, blob=os.urandom(200_000)))
    require_synced(written, synced, disk.folder)
    assert any(at.suffix == ".blob" for at in written)


def _load_of_any_size(graph: OpenGraph, folder: Path) -> None:
    """Rows that wait in files of their own, which then get second names."""
    file = folder / "more.jsonl"
    lines = (json.dumps({"type": "P", "data": {"k": key}}) for key in "bxyz")
    file.write_text("\n".join(lines), encoding="utf-8")
    engine = Engine(LocalRunner(), "asked for")
    load(graph, LoadRequest((file,), Mode.MERGE), Author("main"), engine=lambda _: engine)


def _undone(graph: OpenGraph) -> None:
    point = failpoints.MUTATION_POST_TABLE_COMMIT
    with failpoints.arm(point, failpoints.error(point)), pytest.raises(errors.RecoveryRequired):
        change(graph, 'insert P { k: "x" }')
    sweep(graph, only_forward=False)


def test_every_file_of_other_writes_is_synced(disk: Disk, graph: OpenGraph, tmp_path: Path) -> None:
    bring(graph, tmp_path / "in.jsonl", Mode.APPEND, "a", "b", "c")
    create_branch(graph, "work")
    change(graph, 'update P set { n: 3 } where k = "a"', "work")
    change(graph, 'delete P where k = "c"', "work")
    change(graph, 'insert P { k: "m" }')
    main, wanted = Author("main"), f"{SCHEMA.replace('n: I32?', 'n: I64?')}node New {{ k: String @key }}\n"

    def change_schema() -> None:
        delete_branch(graph, "work")
        apply_schema(graph, SchemaRequest(Source(wanted)))

    acts: list[Callable[[], object]] = [
        lambda: ensure_indices(graph, main),
        lambda: merge(graph, MergeRequest("work"), main),
        lambda: _load_of_any_size(graph, tmp_path),
        lambda: optimize(graph, main),
        lambda: _undone(graph),
        change_schema,
    ]
    for act in acts:
        written, synced = disk.after(act)
        require_synced(written, synced, disk.folder)


def test_a_new_branch_is_synced(disk: Disk, graph: OpenGraph) -> None:
    written, synced = disk.after(lambda: create_branch(graph, "work"))
    require_synced(written, synced, disk.folder)


def test_tables_are_on_disk_before_the_manifest_names_them(disk: Disk, graph: OpenGraph) -> None:
    written, synced = disk.after(lambda: change(graph, 'insert P { k: "a" }  insert P { k: "b" }'))
    manifest = disk.folder / "__manifest"
    of_tables = [synced.index(at) for at in written if not at.is_relative_to(manifest)]
    of_manifest = [synced.index(at) for at in written if at.is_relative_to(manifest)]
    assert max(of_tables) < min(of_manifest)


def test_a_compacted_manifest_is_synced(disk: Disk, graph: OpenGraph) -> None:
    for number in range(FRAGMENT_LIMIT):
        change(graph, f'insert P {{ k: "k{number}" }}')
        written, synced = disk.after(partial(change, graph, f'insert P {{ k: "l{number}" }}'))
        require_synced(written, synced, disk.folder)
        if graph.load("main").table.fragment_count < FRAGMENT_LIMIT // 2:
            break
    assert graph.load("main").table.fragment_count < FRAGMENT_LIMIT


def test_recovery_syncs_what_a_dead_writer_had_not(disk: Disk, graph: OpenGraph) -> None:
    careless = OpenGraph.open(Root.at(disk.root.layout.root))
    point = failpoints.MUTATION_POST_FINALIZE_PRE_PUBLISHER

    def both() -> None:
        with failpoints.arm(point, failpoints.error(point)), pytest.raises(errors.RecoveryRequired):
            change(careless, 'insert P { k: "a" }')
        assert disk.synced == []
        sweep(graph, only_forward=False)

    written, synced = disk.after(both)
    require_synced(written, synced, disk.folder)
    assert graph.load("main").state.entries()["node:P"].row_count == 1


def test_a_disk_that_fails_is_no_success(disk: Disk, graph: OpenGraph) -> None:
    def broken(path: Path) -> None:
        if "_versions" in path.parts and path.is_relative_to(disk.folder / "__manifest"):
            raise OSError(5, os.strerror(5))

    disk.root.tables.access.sync = broken
    with pytest.raises(errors.RecoveryRequired, match="Input/output error"):
        change(graph, 'insert P { k: "a" }')
    disk.root.tables.access.sync = disk.sync
    change(graph, 'insert P { k: "b" }')
    assert graph.load("main").state.entries()["node:P"].row_count == 2


def test_without_the_setting_nothing_is_synced_by_us(tmp_path: Path) -> None:
    place = Location.parse(tmp_path)
    assert configured_sync(place, {}) is configured_sync(place, {"OMNIGRAPH_DURABILITY": "none"}) is None
    assert configured_sync(place, {"OMNIGRAPH_DURABILITY": " FSYNC "}) is sync_path
    assert configured_sync(Location("s3://bucket/g"), {"OMNIGRAPH_DURABILITY": "fsync"}) is None
    with pytest.raises(errors.BadRequest, match="must be one of none, fsync, not 'often'"):
        configured_sync(place, {"OMNIGRAPH_DURABILITY": "often"})


def test_the_environment_reaches_the_tables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMNIGRAPH_DURABILITY", "fsync")
    assert Root.at(Location.parse(tmp_path)).tables.access.sync is sync_path
    monkeypatch.delenv("OMNIGRAPH_DURABILITY")
    assert Root.at(Location.parse(tmp_path)).tables.access.sync is None
