"""Under a lease the writer may still be alive: undoing also restores what it has not touched yet."""

from __future__ import annotations

import pytest

from omnigraph import failpoints
from omnigraph.engine.branches.manage import create_branch, delete_branch
from omnigraph.engine.commit.recovery import audit, sidecar
from omnigraph.engine.commit.recovery.forecast import abandon_record
from omnigraph.engine.graph.layout import table_path
from omnigraph.engine.graph.manifest import MAIN
from omnigraph.engine.graph.open_graph import OpenGraph
from omnigraph.engine.graph.root import Root
from omnigraph.engine.lifecycle.open import open_graph
from omnigraph.engine.schema_apply.apply import SchemaRequest, apply_schema
from omnigraph.errors import OmnigraphError, RecoveryRequired
from omnigraph.lang.source import Source
from omnigraph.storage.location import Location
from omnigraph.storage.lock_table import LockTable
from omnigraph.storage.locks import BranchLocks
from tests.engine.crash.test_heal import COMMITTED, CONFIRMED, TWO, UPDATE, interrupt
from tests.engine.crash.world import (
    KNOWS,
    PERSON,
    SCHEMA,
    change,
    look,
    make_graph,
    open_unrecovered,
    pending,
    require_settled,
    rows_of,
)

pytestmark = pytest.mark.s3

OPERATION = "01J00000000000000000000000"
ARMED = failpoints.MUTATION_POST_SIDECAR_PRE_FORK


@pytest.fixture
def graph(s3_root: Location) -> OpenGraph:
    """The small graph in a bucket."""
    return make_graph(s3_root)


def undone(graph: OpenGraph) -> dict[str, tuple[int, int]]:
    (note,) = audit.read_audit(graph.root)
    assert note.kind == "RolledBack"
    return {one.table_key: (one.from_version, one.to_version) for one in note.outcomes}


def test_a_write_that_moved_one_table_of_two_is_undone_in_both(graph: OpenGraph) -> None:
    before = look(graph)
    interrupt(graph, COMMITTED)
    assert change(graph, 'insert Team { name: "ops" }').commit is not None
    assert rows_of(look(graph))[MAIN][PERSON] == rows_of(before)[MAIN][PERSON]
    assert undone(graph) == {KNOWS: (3, 2), PERSON: (2, 2)}
    require_settled(graph)


def test_a_completed_write_is_published(graph: OpenGraph) -> None:
    interrupt(graph, CONFIRMED)
    assert change(graph, UPDATE).commit is not None
    assert "eve" in {row["id"] for row in look(graph)[MAIN].rows[PERSON]}
    require_settled(graph)


def test_tables_are_not_restored_again_once_their_restored_versions_are_published(graph: OpenGraph) -> None:
    interrupt(graph, COMMITTED)
    point = failpoints.RECOVERY_RECORD_AUDIT
    with failpoints.arm(point, failpoints.error(point)), pytest.raises(OmnigraphError, match=point):
        open_graph(graph.root)
    before = look(graph)
    open_graph(Root.at(graph.root.layout.root))
    assert look(graph) == before
    require_settled(graph)
    assert undone(graph) == {KNOWS: (3, 2), PERSON: (2, 2)}


def test_a_schema_change_undoes_a_write_that_was_interrupted(graph: OpenGraph) -> None:
    before = look(graph)
    interrupt(graph, COMMITTED)
    wider = SCHEMA.replace("node Person {", "node Person {\n    more: I64?\n")
    assert apply_schema(graph, SchemaRequest(Source(wider))).applied
    ids = {row["id"] for row in look(graph)[MAIN].rows[PERSON]}
    assert ids == {row["id"] for row in before[MAIN].rows[PERSON]}
    require_settled(graph)


def test_a_record_of_a_deleted_branch_does_not_stop_a_new_one_of_its_name(
    graph: OpenGraph, monkeypatch: pytest.MonkeyPatch
) -> None:
    create_branch(graph, "draft")
    left = sidecar.place(graph.root, interrupt(graph, ARMED, TWO, "draft"))
    record = graph.root.objects.read_text(left)
    delete_branch(graph, "draft")
    new = open_unrecovered(graph.root.layout.root)
    create_branch(new, "draft")
    new.root.objects.write_text(left, record)  # as if nothing had discarded it yet
    monkeypatch.setenv("OMNIGRAPH_LOCK_WAIT", "0")
    # While main is written to, what is left of the old branch cannot be discarded.
    with BranchLocks(new.root.objects, new.root.layout.root, table=LockTable()).hold([MAIN]):
        assert change(new, UPDATE, "draft").commit is not None
        assert new.root.objects.exists(left)


@pytest.mark.parametrize("residue", [False, True], ids=["no-fork", "half-a-fork"])
def test_a_fork_that_was_not_made_is_made_so_that_the_writer_cannot_make_it(
    graph: OpenGraph, residue: bool
) -> None:
    create_branch(graph, "draft")
    before = look(graph)
    interrupt(graph, ARMED, TWO, "draft")
    person = graph.root.layout.table(table_path("node", "Person"))
    if residue:
        graph.root.forks.create(graph.root.tables.tip(person), "draft")
        graph.root.objects.delete(person / "_refs/branches/draft.json")
    open_graph(Root.at(graph.root.layout.root))
    assert rows_of(look(graph)) == rows_of(before)
    require_settled(graph)
    owners = {key: entry.owner for key, entry in graph.load("draft").state.entries().items()}
    assert (owners[PERSON], owners[KNOWS]) == ("draft", "draft")
    assert graph.root.forks.find(person, "draft") is not None
    assert change(graph, TWO, "draft").commit is not None
    require_settled(graph)


def test_a_record_or_a_table_that_cannot_be_read_stops_its_branch_and_no_other(graph: OpenGraph) -> None:
    create_branch(graph, "draft")
    torn = graph.root.layout.recovery / f"{OPERATION}.json"
    with graph.root.locks.hold(["draft"], operation_id=OPERATION):
        graph.root.objects.write_text(torn, '{"schema_version": 3, "bra')
    # Only the lease that was taken for it tells its branch.
    require_stopped(graph, OPERATION, "it is not JSON")
    operation = interrupt(graph, COMMITTED, TWO, "draft")
    fork = graph.root.layout.table(table_path("edge", "Knows")) / "tree/draft/_versions"
    graph.root.objects.write_text(min(graph.root.objects.list_dir(fork), key=lambda one: one.name), "")
    require_stopped(graph, operation, f"table '{KNOWS}' cannot be read")


def require_stopped(graph: OpenGraph, operation: str, reason: str) -> None:
    """The branch stands still until the record is given up, and main does not."""
    other = open_graph(Root.at(graph.root.layout.root))
    assert change(other, UPDATE).commit is not None
    with pytest.raises(RecoveryRequired, match=reason) as refused:
        change(other, 'insert Team { name: "ops" }', "draft")
    assert refused.value.operation_id == operation
    assert pending(graph) == [operation]
    assert abandon_record(other, operation).branch == "draft"
    assert change(other, f'insert Team {{ name: "{operation}" }}', "draft").commit is not None
