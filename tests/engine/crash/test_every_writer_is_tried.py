"""Every writer of a graph is in the crash matrix, and a new one cannot be forgotten."""

from __future__ import annotations

import ast
import os
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from functools import partial
from importlib import import_module
from pathlib import Path
from types import FrameType

import pytest

import omnigraph
from omnigraph.engine.graph.open_graph import AtBranch, OpenGraph
from omnigraph.engine.graph.snapshot_tables import open_table
from omnigraph.storage.index_parts import IVF_FLAT
from omnigraph.storage.indexes import read_coverage
from omnigraph.storage.location import Location
from omnigraph.storage.objects import Observer, Recorder
from tests.engine.crash.openings import OPENINGS
from tests.engine.crash.places import root_at
from tests.engine.crash.two_versions import TWO_VERSIONS
from tests.engine.crash.vector_indexes import VECTOR_INDEXES
from tests.engine.crash.world import make_graph, open_unrecovered
from tests.engine.crash.writes import WRITES

SOURCE = Path(omnigraph.__file__).parent

DOORS: dict[str, frozenset[str]] = {
    "omnigraph.engine.commit.protocol": frozenset({"commit"}),
    "omnigraph.engine.write.transaction": frozenset({"commit_write"}),
    "omnigraph.engine.maintenance.ensure_indexes": frozenset({"write_skipping_drift"}),
    "omnigraph.engine.write.new_branch": frozenset({"create_branch_for_write"}),
    "omnigraph.engine.graph.publish": frozenset({"publish", "repin"}),
    "omnigraph.engine.branches.manage": frozenset(
        {"create_branch", "create_branch_at", "delete_branch", "undo_create"}
    ),
    "omnigraph.engine.branches.tags": frozenset({"create_tag", "delete_tag"}),
    "omnigraph.engine.lifecycle.create": frozenset({"create_graph"}),
    "omnigraph.engine.graph.migrations": frozenset(
        {"migrate_main", "migrate_branch", "open_current_manifest"}
    ),
    "omnigraph.storage.staging": frozenset({"commit_staged"}),
    "omnigraph.storage.cas": frozenset({"merge_rows", "replace_row", "replace_rows"}),
    "omnigraph.storage.indexes": frozenset({"catch_up_text_indexes"}),
    "omnigraph.storage.upkeep": frozenset(
        {"compact", "commit_compaction", "collect_versions", "collect_with_files"}
    ),
}
"""The functions through which a graph is changed, by their module."""


_MUTATIONS = ("insert", "insert-two-tables", "update", "delete-cascade", "first-touch", "in-two-update")
_LOADS = ("load-append", "load-merge", "load-overwrite", "load-large-append", "in-two-load-merge")
_RECOVERED = ("recover-back", "recover-forward", "recover-first-touch")
_PASSES_ON = "it passes on what others prepare, who are listed here themselves"
_FRONT = "users call it, and the kinds what it calls"
_LATE = (
    "only a recovery that slept through another one leaves that: the cells of `recover-back` that are held"
)

WRITERS: dict[str, tuple[str, ...] | str] = {
    "engine/branches/manage.py create_branch: open_current_manifest": (
        "branch-create",
        "migrate-by-branching",
    ),
    "engine/branches/manage.py create_branch_at: open_current_manifest": ("branch-create-old",),
    "engine/branches/old_commits.py _rewind: replace_rows": ("branch-create-old",),
    "engine/maintenance/cleanup/old_versions.py _remove_batch: collect_versions": (
        "cleanup",
        "cleanup-orphan-forks",
    ),
    "engine/commit/protocol.py _CommitRun._commit: commit_staged": _MUTATIONS,
    "engine/commit/protocol.py _CommitRun._create_table: commit_staged": (
        "schema-apply",
        "schema-apply-new-types",
    ),
    "engine/commit/protocol.py _CommitRun._publish: publish": _MUTATIONS,
    "engine/embedding/fill.py _FillRun._commit_vectors: commit_write": ("embed", "embed-first-touch"),
    "engine/upkeep/index_upkeep.py IndexRound.commit_segments: catch_up_text_indexes": ("completing-texts",),
    "engine/upkeep/index_upkeep.py IndexRound.commit_segments: commit_staged": (
        "extending-indexes",
        "schema-apply-indexed",
    ),
    "engine/upkeep/index_upkeep.py _Completion._lands: repin": (
        "extending-indexes-later",
        "schema-apply-indexed-later",
    ),
    "engine/lifecycle/create.py _create_manifest: commit_staged": ("init", "init-force"),
    "engine/maintenance/ensure_indexes.py write_skipping_drift: commit_write": (
        "ensure-indices",
        "vectors-build",
    ),
    "engine/load/loader.py _Load.run: create_branch_for_write": (
        "onto-new-append",
        "onto-new-merge",
        "onto-new-overwrite",
    ),
    "engine/load/loader.py _Load.run: commit_write": _LOADS,
    "engine/merge/merge.py _delete_source: delete_branch": ("merge-delete-branch",),
    "engine/merge/replay.py _Replay.run: commit_write": ("revert", "cherry-pick", "reset"),
    "engine/merge/merge.py _Merge.run: commit_write": (
        "merge-fast-forward",
        "merge-three-way",
        "in-two-merge",
    ),
    "engine/graph/migrations.py _commit_until_done: commit_staged": ("migrate-1", "migrate-2", "migrate-3"),
    "engine/graph/migrations.py _copy_lineage: merge_rows": ("migrate-1", "migrate-branch"),
    "engine/graph/open_graph.py OpenGraph.open: migrate_main": ("migrate-1", "migrate-2", "migrate-3"),
    "engine/maintenance/optimize.py optimize: write_skipping_drift": (
        "optimize",
        "optimize-branch",
        "vectors-optimize",
    ),
    "engine/graph/publish.py _load: migrate_branch": ("migrate-branch",),
    "engine/graph/publish.py _write: merge_rows": ("first-touch", "embed-first-touch"),
    "engine/graph/publish.py _write: replace_row": (*_MUTATIONS, "automatic-upkeep", "settling-upkeep"),
    "engine/upkeep/table_rewrite.py _update_indexes: catch_up_text_indexes": ("optimize-texts",),
    "engine/upkeep/table_rewrite.py _update_indexes: commit_staged": ("optimize", "vectors-optimize-parts"),
    "engine/upkeep/table_rewrite.py drop_broken_indexes: commit_staged": ("repairing-indexes",),
    "engine/upkeep/table_rewrite.py commit_rewrite: commit_compaction": ("optimize", "automatic-upkeep"),
    "engine/commit/recovery/actions.py _finish_legacy: publish": ("recover-old-record-published",),
    "engine/commit/recovery/actions.py _repin: publish": ("recover-back", "recover-merge-back"),
    "engine/commit/recovery/actions.py _restore: commit_staged": ("recover-back", "recover-in-two-between"),
    "engine/commit/recovery/actions.py _roll_back_legacy: publish": ("recover-old-record-back",),
    "engine/commit/recovery/actions.py roll_back: publish": ("recover-back", "recover-first-touch"),
    "engine/commit/recovery/actions.py roll_forward: publish": (
        "recover-forward",
        "recover-old-record-forward",
    ),
    "engine/commit/recovery/audit.py _append: merge_rows": _RECOVERED,
    "engine/commit/recovery/drift.py restore_again: commit_staged": _LATE,
    "engine/commit/recovery/drift.py resolve_drift: publish": _LATE,
    "engine/commit/recovery/drift.py resolve_drift: repin": ("settling-upkeep",),
    "engine/commit/recovery/removals.py _remove: collect_with_files": ("schema-apply-hard-column",),
    "engine/commit/recovery/sweep.py _discard: publish": ("recover-orphan",),
    "engine/maintenance/repair.py _publish_drift: publish": ("repair",),
    "engine/schema_apply/apply.py _try_apply: commit": ("schema-apply", "schema-apply-metadata"),
    "engine/commit/schema_lock.py _take_lock: open_current_manifest": ("schema-apply",),
    "engine/upkeep/after_write.py _maintain_tables: repin": ("automatic-upkeep", "extending-indexes"),
    "engine/upkeep/manifest_upkeep.py _collect: collect_versions": ("collecting", "collecting-branch"),
    "engine/upkeep/manifest_upkeep.py _collect: commit_staged": ("collecting", "collecting-branch"),
    "engine/upkeep/manifest_upkeep.py _collect: compact": ("collecting", "collecting-branch"),
    "engine/upkeep/manifest_upkeep.py compact_manifest: compact": ("optimize", "collecting"),
    "engine/write/mutate.py run_statements: commit_write": _MUTATIONS,
    "engine/write/new_branch.py _delete_if_untouched: undo_create": ("onto-new-taken-back",),
    "engine/write/new_branch.py create_branch_for_write: create_branch": (
        "onto-new-append",
        "onto-new-values",
    ),
    "engine/write/transaction.py _commit_on_known_state: commit": _PASSES_ON,
    "engine/write/transaction.py _commit_prepared: commit": _PASSES_ON,
    "graph.py init_at: create_graph": _FRONT,
    "history.py Branches.create: create_branch": _FRONT,
    "history.py Branches.create: create_branch_at": _FRONT,
    "history.py Tags.create: create_tag": _FRONT,
    "history.py Tags.delete: delete_tag": _FRONT,
    "history.py Branches.delete: delete_branch": _FRONT,
    "query/algorithms/solver.py _write_values: create_branch": ("onto-new-values",),
}
"""Who calls a door, with the kinds of the crash matrix in which that happens, or why it is in none."""


def callers(name: str, source: str) -> Iterator[str]:
    """The functions and methods of a module in which one of the doors is named."""
    tree = ast.parse(source)
    names, rooms = _known_as(tree)
    for part, inside in _parts(tree.body):
        for node in ast.walk(inside):
            match node:
                case ast.Name(id=found, ctx=ast.Load()) if found in names:
                    door = names[found]
                case ast.Attribute(value=ast.expr() as value, attr=found) if found in rooms.get(
                    ast.unparse(value), frozenset()
                ):
                    door = found
                case _:
                    continue
            yield f"{name} {part}: {door}"


def _parts(body: Sequence[ast.stmt], above: str = "") -> Iterator[tuple[str, ast.AST]]:
    """Functions with their names, methods with those of their classes, and what is in neither."""
    for one in body:
        match one:
            case ast.Import() | ast.ImportFrom():
                continue
            case ast.ClassDef(name=name):
                yield from _parts(one.body, f"{name}.")
            case ast.FunctionDef(name=name):
                yield f"{above}{name}", one
            case _:
                yield above or "(module)", one


def _known_as(tree: ast.Module) -> tuple[dict[str, str], dict[str, frozenset[str]]]:
    """What the doors are called in a module, and what the modules are called that have some."""
    names: dict[str, str] = {}
    rooms: dict[str, frozenset[str]] = {}
    for node in ast.walk(tree):
        match node:
            case ast.ImportFrom(module=str(module), names=imported):
                for alias in imported:
                    known_as = alias.asname or alias.name
                    if alias.name in DOORS.get(module, ()):
                        names[known_as] = alias.name
                    if f"{module}.{alias.name}" in DOORS:
                        rooms[known_as] = DOORS[f"{module}.{alias.name}"]
            case ast.Import(names=imported):
                for alias in imported:
                    if alias.name in DOORS:
                        rooms[alias.asname or alias.name] = DOORS[alias.name]
            case _:
                pass
    return names, rooms


def find_writers() -> set[str]:
    rooms = {room for module in DOORS for room in (module, f"from {module.rpartition('.')[0]} import ")}
    return {
        caller
        for file in sorted(SOURCE.rglob("*.py"))
        if not file.is_relative_to(SOURCE / "storage")
        for source in [file.read_text()]
        if any(room in source for room in rooms)  # to parse all takes a while
        for caller in callers(file.relative_to(SOURCE).as_posix(), source)
    }


def test_every_writer_is_tried_in_the_crash_matrix_or_tells_why_not() -> None:
    writers = find_writers()
    assert sorted(writers - WRITERS.keys()) == [], (
        "no kind in `writes.py` or `openings.py` is named for these"
    )
    assert sorted(WRITERS.keys() - writers) == [], "these are gone"


@pytest.mark.parametrize("module", DOORS)
def test_every_function_that_is_looked_for_exists(module: str) -> None:
    """After a rename the walk would miss all callers."""
    assert [name for name in sorted(DOORS[module]) if not hasattr(import_module(module), name)] == []


def test_every_kind_that_is_named_exists() -> None:
    named = {kind for kinds in WRITERS.values() if not isinstance(kinds, str) for kind in kinds}
    assert sorted(named - WRITES.keys() - OPENINGS.keys()) == []


@pytest.mark.parametrize(
    "source",
    [
        "from omnigraph.engine.commit.protocol import commit\ndef new(): commit(graph, plan)",
        "from omnigraph.engine.commit.protocol import commit as door\ndef new(): door(graph, plan)",
        "from omnigraph.engine.commit import protocol as door\ndef new(): door.commit(graph, plan)",
        "import omnigraph.engine.commit.protocol as door\ndef new(): door.commit(graph, plan)",
        "def new():\n    from omnigraph.engine.commit.protocol import commit\n    commit(graph, plan)",
        "from omnigraph.engine.commit.protocol import commit\ndef new(): return partial(commit, graph)",
    ],
)
def test_the_walk_sees_every_way_to_call_a_door(source: str) -> None:
    assert list(callers("new.py", source)) == ["new.py new: commit"]
    assert list(callers("new.py", source.replace("omnigraph.engine", "omnigraph.other"))) == []


# --- that the kinds which are named really come there ----------------------------------------------


def functions_reached(kind: str, folder: Location) -> set[str]:
    """The functions of the package that a kind runs through, in whichever thread."""
    run = _prepare_run(kind, folder)
    seen: set[str] = set()

    def notice(frame: FrameType, event: str, _: object) -> None:
        file = frame.f_code.co_filename
        if event == "call" and file.startswith(str(SOURCE)):
            seen.add(f"{Path(file).relative_to(SOURCE).as_posix()} {frame.f_code.co_qualname}")

    threading.setprofile(notice)
    sys.setprofile(notice)
    try:
        run()
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    return seen


def _prepare_run(kind: str, folder: Location, observe: Observer | None = None) -> Callable[[], object]:
    if kind in OPENINGS:
        OPENINGS[kind].make(folder)
        return partial(OPENINGS[kind].run, root_at(folder, observe))
    graph = make_graph(folder)
    WRITES[kind].prepare(graph)
    return partial(WRITES[kind].run, OpenGraph.open(root_at(folder, observe)))


SEED = int(os.environ.get("OMNIGRAPH_SEED") or datetime.now(UTC).toordinal())
ALL = bool(os.environ.get("OMNIGRAPH_TORTURE"))
VECTORS = [name for name in VECTOR_INDEXES if not name.startswith("recover")]


def some(kinds: Sequence[str]) -> Sequence[str]:
    """All of them, or in the short form the one whose turn it is."""
    return kinds if ALL else [kinds[SEED % len(kinds)]]


@pytest.mark.crash
@pytest.mark.parametrize("kind", some(list(TWO_VERSIONS)))
def test_rows_of_small_tables_are_replaced_as_those_of_large_ones(kind: str, tmp_path: Path) -> None:
    recorder = Recorder()
    _prepare_run(kind, Location.parse(tmp_path / "graph"), recorder)()
    assert recorder.counts()["stage_takeover"] > 0


@pytest.mark.crash
@pytest.mark.parametrize("kind", some(VECTORS))
def test_few_vectors_are_indexed_as_many_are(kind: str, tmp_path: Path) -> None:
    at = Location.parse(tmp_path / "graph")
    _prepare_run(kind, at)()
    graph = open_unrecovered(at)
    table = open_table(graph, graph.snapshot(AtBranch(WRITES[kind].branch)), "node:Doc")
    (index,) = (index for index in read_coverage(table).values() if index.columns == ("about",))
    assert (index.kind, index.is_complete) == (IVF_FLAT, True)


@pytest.mark.crash
@pytest.mark.parametrize("caller", some([one for one in WRITERS if not isinstance(WRITERS[one], str)]))
def test_the_kinds_that_are_named_for_a_writer_come_to_it(caller: str, tmp_path: Path) -> None:
    for kind in WRITERS[caller]:
        through = functions_reached(kind, Location.parse(tmp_path / kind))
        assert caller.rpartition(":")[0] in through, f"{kind} does not come there"
