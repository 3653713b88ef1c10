"""What a failure of each step around a record means, one by one."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path

import msgspec
import pyarrow as pa
import pytest

import omnigraph
from omnigraph import failpoints
from omnigraph.engine.branches.manage import create_branch
from omnigraph.engine.commit.recovery import audit, sidecar
from omnigraph.engine.commit.recovery.sweep import finish_completed_writes
from omnigraph.engine.graph.manifest import MAIN
from omnigraph.engine.graph.open_graph import OpenGraph
from omnigraph.engine.graph.root import Root
from omnigraph.engine.lifecycle.open import open_graph
from omnigraph.engine.maintenance.ensure_indexes import ensure_indices
from omnigraph.engine.write.transaction import Author
from omnigraph.errors import InternalError, RecoveryRequired, StorageFailure, TableVersionConflict
from omnigraph.storage.failures import FailureKind
from omnigraph.storage.objects import Observer
from tests.engine.crash.test_heal import COMMITTED, CONFIRMED, FORKED, TWO, UPDATE, interrupt, newcomer
from tests.engine.crash.world import (
    PERSON,
    SCHEMA,
    change,
    look,
    make_graph,
    pending,
    require_settled,
    rows_of,
)
from tests.engine.graphs import tree

APPENDED = failpoints.GRAPH_PUBLISH_AFTER_MANIFEST_COMMIT

INJECTED = "injected"


@pytest.fixture
def graph(tmp_path: Path) -> OpenGraph:
    """The small graph with its first rows."""
    return make_graph(tmp_path / "graph")


def failing(op: str, part: str, kind: FailureKind = FailureKind.TRANSIENT) -> Observer:
    """An observer that makes one kind of call fail."""

    def observe(called: str, uri: str, /) -> None:
        if called == op and part in uri:
            raise StorageFailure(INJECTED, kind=kind, uri=uri)

    return observe


def with_failing(graph: OpenGraph, op: str, part: str = "__recovery") -> OpenGraph:
    """The graph through storage that refuses one kind of call."""
    return OpenGraph.open(Root.at(graph.root.layout.root, failing(op, part)))


def test_a_record_that_cannot_be_written_ends_the_write_without_a_trace(graph: OpenGraph) -> None:
    before = look(graph)
    with pytest.raises(StorageFailure, match=INJECTED):
        change(with_failing(graph, "write_text_if_absent"), TWO)
    assert look(graph) == before
    require_settled(graph)
    assert change(graph, UPDATE).commit is not None
    assert audit.read_audit(graph.root) == []


def test_a_confirmation_that_cannot_be_written_leaves_a_write_to_be_undone(graph: OpenGraph) -> None:
    before = look(graph)
    with pytest.raises(RecoveryRequired, match=INJECTED) as raised:
        ensure_indices(with_failing(graph, "write_text"), Author(MAIN))
    assert pending(graph) == [raised.value.operation_id]
    assert look(graph) == before
    finish_completed_writes(graph)
    assert pending(graph) == [raised.value.operation_id], "healing undoes nothing"
    assert change(graph, 'insert Team { name: "ops" }').commit is not None
    assert rows_of(look(graph))[MAIN]["node:Person"] == rows_of(before)[MAIN]["node:Person"]
    require_settled(graph)
    (note,) = audit.read_audit(graph.root)
    assert (note.operation_id, note.kind) == (raised.value.operation_id, "RolledBack")


def test_a_record_that_cannot_be_removed_is_a_warning(
    graph: OpenGraph, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        assert change(with_failing(graph, "delete"), TWO).commit is not None
    assert INJECTED in caplog.text
    assert len(pending(graph)) == 1
    after = look(graph)
    finish_completed_writes(graph)
    assert look(graph) == after
    require_settled(graph)
    (note,) = audit.read_audit(graph.root)
    assert note.kind == "RolledForward"


@pytest.mark.parametrize(
    ("point", "branch", "raw"),
    [
        (FORKED, "draft", pa.ArrowInvalid("a bad batch")),
        (COMMITTED, MAIN, OSError(5, "Input/output error")),
        (CONFIRMED, MAIN, MemoryError()),
        (APPENDED, MAIN, pa.ArrowInvalid("a bad batch")),
    ],
)
def test_whatever_breaks_off_a_write_after_its_record_leaves_an_open_end(
    graph: OpenGraph, point: str, branch: str, raw: Exception
) -> None:
    """Also what no part of this program raises on purpose: the caller must hear that a record is left."""
    if branch != MAIN:
        create_branch(graph, branch)

    def act() -> None:
        raise raw

    before = look(graph)
    with failpoints.arm(point, act), pytest.raises(RecoveryRequired, match=type(raw).__name__) as raised:
        change(graph, TWO, branch)
    assert raised.value.__cause__ is raw
    assert pending(graph) == [raised.value.operation_id]
    assert change(graph, UPDATE, branch).commit is not None
    done = point in (CONFIRMED, APPENDED)
    assert (len(look(graph)[branch].rows[PERSON]) > len(before[branch].rows[PERSON])) is done
    require_settled(graph)


def test_ctrl_c_after_the_record_passes_as_itself(graph: OpenGraph) -> None:
    def act() -> None:
        raise KeyboardInterrupt

    with failpoints.arm(COMMITTED, act), pytest.raises(KeyboardInterrupt):
        change(graph, TWO)
    assert len(pending(graph)) == 1
    assert change(graph, UPDATE).commit is not None
    require_settled(graph)


@pytest.mark.parametrize("text", [TWO, UPDATE], ids=["repeated", "not-repeated"])
def test_a_record_that_cannot_be_taken_back_changes_nothing_of_what_is_reported(
    graph: OpenGraph, caplog: pytest.LogCaptureFixture, text: str
) -> None:
    """A write that was overtaken before its first effect leaves its record, and no harm."""
    create_branch(graph, "draft")
    overtaken = failpoints.once(_raise_conflict)
    held = with_failing(graph, "delete")
    with (
        failpoints.arm(failpoints.MUTATION_POST_SIDECAR_PRE_FORK, overtaken),
        caplog.at_level(logging.WARNING),
        # Repeated, it meets its own record, which cannot be removed either.
        pytest.raises(StorageFailure if text == TWO else TableVersionConflict),
    ):
        change(held, text, "draft")
    assert "was not removed" in caplog.text
    assert len(pending(graph)) == 1
    assert change(graph, text, "draft").commit is not None
    require_settled(graph)
    assert [note.kind for note in audit.read_audit(graph.root)] == ["RolledBack"]


def _raise_conflict() -> None:
    raise TableVersionConflict(PERSON, expected=1, actual=2)


def test_records_that_cannot_be_listed_stop_everything_that_writes(graph: OpenGraph) -> None:
    before = look(graph)
    other = with_failing(graph, "list_dir")
    with pytest.raises(StorageFailure, match=INJECTED):
        change(other, TWO)
    with pytest.raises(StorageFailure, match=INJECTED):
        open_graph(other.root)
    assert open_graph(other.root, read_only=True).load(MAIN).state.head is not None
    assert look(graph) == before


WRITERS: dict[str, Callable[[omnigraph.Graph], object]] = {
    "mutate": lambda held: held.mutate('query q() { insert Team { name: "ops" } }'),
    "load": lambda held: held.load(pa.table({"name": ["ops"]}), type="Team", mode="append"),
    "merge": lambda held: held.merge("draft"),
    "schema": lambda held: held.apply_schema(f"{SCHEMA}\nnode Later {{ name: String @key }}\n"),
    "indices": lambda held: held.ensure_indices(),
    "optimize": lambda held: held.optimize(),
    "repair": lambda held: held.repair(confirm=True),
    "cleanup": lambda held: held.cleanup(keep=1),
    "refresh": lambda held: held.refresh(),
}


def stored_files(graph: OpenGraph) -> dict[str, bytes | None]:
    """All files but those of locks, which are taken before anything is asked for."""
    found = tree(graph.root.layout.root.path)
    return {at: content for at, content in found.items() if not at.startswith("__locks")}


def test_whatever_writes_is_refused_while_records_cannot_be_listed(graph: OpenGraph) -> None:
    create_branch(graph, "draft")
    change(graph, TWO, "draft")
    point = failpoints.RECOVERY_SIDECAR_LIST
    with omnigraph.open(graph.root.uri) as held:
        before = stored_files(graph)
        with failpoints.arm(point, failpoints.error(point)):
            for name, write in WRITERS.items():
                with pytest.raises(InternalError, match=point):
                    write(held)
                assert stored_files(graph) == before, name
            with pytest.raises(InternalError, match=point):
                omnigraph.open(graph.root.uri)
            with omnigraph.open(graph.root.uri, read_only=True) as reader:
                assert reader.snapshot().tables[PERSON].rows == 3


@pytest.mark.parametrize("kind", [kind for kind in FailureKind if kind is not FailureKind.NOT_FOUND])
def test_only_the_stores_own_not_found_means_that_a_record_is_gone(
    graph: OpenGraph, kind: FailureKind
) -> None:
    interrupt(graph, COMMITTED)
    observe = failing("read_text_if_exists", "__recovery", kind)
    other = OpenGraph.open(Root.at(graph.root.layout.root, observe))
    with pytest.raises(StorageFailure, match=INJECTED):
        change(other, UPDATE)
    with pytest.raises(StorageFailure, match=INJECTED):
        open_graph(other.root)
    assert len(pending(graph)) == 1


@pytest.mark.parametrize(("point", "kind"), [(CONFIRMED, "RolledForward"), (COMMITTED, "RolledBack")])
def test_a_note_that_cannot_be_made_is_made_exactly_once_later(
    graph: OpenGraph, point: str, kind: str
) -> None:
    operation = interrupt(graph, point)
    reach = failpoints.RECOVERY_RECORD_AUDIT
    with failpoints.arm(reach, failpoints.error(reach)):
        for _ in range(2):
            with pytest.raises(InternalError):
                open_graph(Root.at(graph.root.layout.root))
            assert pending(graph) == [operation]
    commits = len(look(graph)[MAIN].chain)
    assert change(newcomer(graph), UPDATE).commit is not None
    (note,) = audit.read_audit(graph.root)
    assert (note.operation_id, note.kind) == (operation, kind)
    assert len(look(graph)[MAIN].chain) == commits + 1
    require_settled(graph)


def test_a_record_that_cannot_be_removed_after_its_recovery_is_noted_once(graph: OpenGraph) -> None:
    interrupt(graph, CONFIRMED)
    for _ in range(2):
        with pytest.raises(StorageFailure, match=INJECTED):
            open_graph(with_failing(graph, "delete").root)
    open_graph(graph.root)
    require_settled(graph)
    assert len(audit.read_audit(graph.root)) == 1


def test_a_second_record_of_one_operation_is_refused(graph: OpenGraph) -> None:
    operation = interrupt(graph, COMMITTED)
    record = sidecar.read(graph.root, operation)
    assert isinstance(record, sidecar.Sidecar)
    sidecar.store_new(graph.root, record)
    rival = msgspec.structs.replace(record, actor_id="another")
    with pytest.raises(InternalError, match="on record already"):
        sidecar.store_new(graph.root, rival)
    assert sidecar.read(graph.root, operation) == record
