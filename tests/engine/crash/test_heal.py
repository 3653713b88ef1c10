"""When interrupted writes are dealt with, by whom, and what is left alone."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

import omnigraph
from omnigraph import failpoints
from omnigraph.engine.branches.manage import create_branch, delete_branch
from omnigraph.engine.commit.recovery import audit, sidecar
from omnigraph.engine.commit.recovery.forecast import forecast_recovery
from omnigraph.engine.commit.recovery.sweep import RecordStatus, finish_completed_writes, sweep
from omnigraph.engine.graph.lineage import RECOVERY_ACTOR
from omnigraph.engine.graph.manifest import MAIN
from omnigraph.engine.graph.open_graph import OpenGraph
from omnigraph.engine.graph.root import Root
from omnigraph.engine.lifecycle.open import open_graph, open_without_recovery, recover_all, reopen_graph
from omnigraph.engine.maintenance.doctor import examine
from omnigraph.engine.schema_apply.apply import SchemaRequest, apply_schema
from omnigraph.errors import OmnigraphError, PreconditionFailed, RecoveryRequired
from omnigraph.lang.source import Source
from omnigraph.storage.location import Location
from omnigraph.storage.objects import Observer, Recorder
from omnigraph.storage.staging import commit_staged, read_transactions, stage_append
from tests.engine.crash.places import copy_graph
from tests.engine.crash.turns import turns
from tests.engine.crash.world import (
    ACTOR,
    KNOWS,
    PERSON,
    change,
    look,
    make_graph,
    pending,
    require_settled,
    rows_of,
    stray_forks,
)
from tests.engine.graphs import tree

TWO = 'insert Person { name: "eve" }  insert Knows { from: "eve", to: "ada" }'
UPDATE = 'update Person set { age: 1 } where name = "bo"'

COMMITTED = failpoints.MUTATION_POST_TABLE_COMMIT
CONFIRMED = failpoints.MUTATION_POST_FINALIZE_PRE_PUBLISHER
PUBLISHED = failpoints.RECOVERY_SIDECAR_DELETE
FORKED = failpoints.MUTATION_POST_FORK_PRE_COMMIT


@pytest.fixture
def graph(tmp_path: Path) -> OpenGraph:
    """The small graph with its first rows."""
    return make_graph(tmp_path / "graph")


def interrupt(graph: OpenGraph, point: str, text: str = TWO, branch: str = MAIN) -> str:
    """Leave the record of a write that came as far as a failpoint; its operation."""
    # One table after another: otherwise others may be written while the first one fails.
    with (
        failpoints.arm(point, failpoints.error(point)),
        turns(reverse=False),
        pytest.raises(RecoveryRequired),
    ):
        change(graph, text, branch)
    (operation,) = pending(graph)
    return operation


def leave_stale(graph: OpenGraph) -> str:
    """A write that succeeded and left its record; its operation."""
    with failpoints.arm(PUBLISHED, failpoints.error(PUBLISHED)):
        assert change(graph, TWO).commit is not None
    (operation,) = pending(graph)
    return operation


def newcomer(graph: OpenGraph, observe: Observer | None = None) -> OpenGraph:
    """Somebody else who has the graph open and has dealt with nothing yet."""
    return OpenGraph.open(Root.at(graph.root.layout.root, observe))


def people(graph: OpenGraph, branch: str = MAIN) -> set[str]:
    return {row["id"] for row in look(graph)[branch].rows[PERSON]}


def note(graph: OpenGraph) -> audit.AuditRow:
    (found,) = audit.read_audit(graph.root)
    return found


# --- when it happens -----------------------------------------------------------------------------


@pytest.mark.parametrize("text", [UPDATE, 'insert Team { name: "ops" }', 'delete Person where name = "cy"'])
@pytest.mark.parametrize(("point", "happened"), [(COMMITTED, False), (CONFIRMED, True)])
def test_the_next_write_of_any_kind_deals_with_it_without_reopening(
    graph: OpenGraph, point: str, happened: bool, text: str
) -> None:
    other = newcomer(graph)
    operation = interrupt(graph, point)
    assert "eve" not in people(other)
    assert change(other, text).commit is not None
    assert ("eve" in people(graph)) is happened
    require_settled(graph)
    assert note(graph).operation_id == operation
    assert note(graph).kind == ("RolledForward" if happened else "RolledBack")


def test_a_write_is_finished_once_its_only_table_is_written(graph: OpenGraph) -> None:
    """The record names the version and its mark ahead, so it need not be confirmed."""
    operation = interrupt(graph, COMMITTED, UPDATE)
    other = newcomer(graph)
    assert change(other, 'insert Team { name: "ops" }').commit is not None
    assert (note(graph).operation_id, note(graph).kind) == (operation, "RolledForward")
    require_settled(graph)


def test_a_conditional_write_is_not_repeated_on_the_head_that_recovery_made(graph: OpenGraph) -> None:
    interrupt(graph, COMMITTED)
    head = graph.load(MAIN).state.head
    assert head is not None
    with pytest.raises(PreconditionFailed):
        change(graph, UPDATE, if_commit=head.id)
    assert pending(graph) == []


@pytest.mark.parametrize(("point", "left"), [(COMMITTED, 1), (CONFIRMED, 0)])
def test_a_refresh_publishes_what_was_completed_and_undoes_nothing(
    graph: OpenGraph, point: str, left: int
) -> None:
    interrupt(graph, point)
    before = look(graph)
    fresh = reopen_graph(newcomer(graph))
    assert len(pending(graph)) == left
    assert (look(fresh) == before) is bool(left)


@pytest.mark.parametrize(("point", "happened"), [(COMMITTED, False), (CONFIRMED, True)])
def test_opening_a_graph_deals_with_everything(graph: OpenGraph, point: str, happened: bool) -> None:
    interrupt(graph, point)
    with omnigraph.open(graph.root.uri):
        require_settled(graph)
    assert ("eve" in people(graph)) is happened


def test_the_graph_users_hold_heals_on_refresh(graph: OpenGraph) -> None:
    with omnigraph.open(graph.root.uri) as held:
        interrupt(graph, CONFIRMED)
        held.refresh()
        assert pending(graph) == []
        assert held.snapshot().tables[PERSON].rows == 4


@pytest.mark.parametrize("point", [COMMITTED, CONFIRMED])
def test_reading_only_touches_nothing(graph: OpenGraph, point: str) -> None:
    interrupt(graph, point)
    folder = graph.root.layout.root.path
    before = tree(folder)
    with omnigraph.open(graph.root.uri, read_only=True) as held:
        held.refresh()
        assert held.snapshot().tables[PERSON].rows == 3
    assert tree(folder) == before


def test_when_all_is_well_healing_costs_one_list_call(graph: OpenGraph) -> None:
    recorder = Recorder()
    other = newcomer(graph, recorder)
    recorder.clear()
    finish_completed_writes(other)
    assert [call.op for call in recorder.calls] == ["list_dir"]


def test_opening_and_healing_never_wait_for_a_branch_that_is_being_written(graph: OpenGraph) -> None:
    create_branch(graph, "draft")
    interrupt(graph, CONFIRMED)
    with graph.root.locks.hold([MAIN]):
        (report,) = sweep(newcomer(graph), only_forward=False)
        assert report.status is RecordStatus.BUSY
        open_graph(Root.at(graph.root.layout.root))
        change(newcomer(graph), UPDATE, "draft")
    assert len(pending(graph)) == 1
    finish_completed_writes(newcomer(graph))
    assert "eve" in people(graph)


def test_a_dry_run_says_what_would_happen_and_does_nothing(graph: OpenGraph) -> None:
    create_branch(graph, "draft")
    interrupt(graph, COMMITTED)
    folder = graph.root.layout.root.path
    before = tree(folder)
    (found,) = forecast_recovery(newcomer(graph))
    assert tree(folder) == before
    assert (found.branch, found.writer_kind, found.would) == (MAIN, "Mutation", "undo it")
    assert found.tables == {KNOWS: "written", PERSON: "untouched"}


def test_a_dry_run_knows_of_a_branch_that_is_being_written(graph: OpenGraph) -> None:
    interrupt(graph, COMMITTED)
    with graph.root.locks.hold([MAIN]) as held:
        (found,) = forecast_recovery(newcomer(graph))
        (report,) = sweep(newcomer(graph), only_forward=False)
        # A caller that holds the lock itself learns what it can do.
        (own,) = forecast_recovery(newcomer(graph), held)
    assert (found.busy, report.status) == (True, RecordStatus.BUSY)
    assert (own.busy, own.would) == (False, "undo it")


def test_a_dry_run_knows_that_main_is_needed_for_the_record_of_a_deleted_branch(graph: OpenGraph) -> None:
    create_branch(graph, "draft")
    interrupt(graph, FORKED, branch="draft")
    delete_branch(graph, "draft")
    with graph.root.locks.hold([MAIN]) as held:
        (found,) = forecast_recovery(newcomer(graph))
        (report,) = sweep(newcomer(graph), only_forward=False)
        assert (found.busy, found.branch, report.status) == (True, "draft", RecordStatus.BUSY)
        assert found.would.startswith("leave it: branch 'main' is being written by process ")
        (own,) = forecast_recovery(newcomer(graph), held)
        assert (own.busy, own.would) == (False, "discard it: its branch is gone")


def test_a_dry_run_does_not_tell_of_a_write_that_was_finished_while_it_looked(graph: OpenGraph) -> None:
    interrupt(graph, COMMITTED)
    calls = Recorder()
    assert len(forecast_recovery(newcomer(graph, calls))) == 1
    begin = next(n for n, call in enumerate(calls.calls) if call.op == "list_dir")
    for number in range(begin + 1, len(calls.calls) + 1):
        heard = 0

        def finish(op: str, uri: str, /, last: int = number) -> None:
            nonlocal heard
            heard += 1
            if heard == last:
                recover_all(open_without_recovery(Root.at(graph.root.layout.root)))

        assert [one.would for one in forecast_recovery(newcomer(graph, finish))] in ([], ["undo it"]), number
        if not pending(graph):
            interrupt(graph, COMMITTED)


def test_a_dry_run_knows_of_a_branch_that_moved_on(graph: OpenGraph) -> None:
    """What was completed would be finished, were it not prepared on a head that is the head no more."""
    operation = interrupt(graph, CONFIRMED)
    place = sidecar.place(graph.root, operation).path
    text = place.read_text()
    place.unlink()
    change(graph, 'insert Team { name: "ops" }')
    place.write_text(text)
    (found,) = forecast_recovery(newcomer(graph))
    (report,) = sweep(newcomer(graph), only_forward=False)
    assert (found.would, report.outcome) == ("undo it", "undone")


def test_a_dry_run_knows_of_a_schema_whose_files_are_not_there(graph: OpenGraph) -> None:
    point = failpoints.MUTATION_POST_FINALIZE_PRE_PUBLISHER
    wanted = f"{graph.schema().source}\nnode Later {{ name: String @key }}\n"
    with failpoints.arm(point, failpoints.error(point)), pytest.raises(RecoveryRequired):
        apply_schema(graph, SchemaRequest(Source(wanted)))
    assert [one.would for one in forecast_recovery(newcomer(graph))] == ["finish it"]
    graph.root.objects.delete(graph.root.layout.staged(graph.root.layout.schema_ir))
    (found,) = forecast_recovery(newcomer(graph))
    (report,) = recover_all(newcomer(graph))
    assert (found.would, found.writer_kind, report.outcome) == ("undo it", "SchemaApply", "undone")
    assert "Later" not in graph.schema().catalog.nodes
    require_settled(graph)


@pytest.mark.parametrize(
    ("again", "states"),
    [
        (
            failpoints.GRAPH_PUBLISH_AFTER_MANIFEST_COMMIT,
            {KNOWS: "written", PERSON: "untouched"},
        ),
        (failpoints.RECOVERY_POST_TABLE_RESTORE_PRE_PUBLISH, {KNOWS: "restored", PERSON: "untouched"}),
        (failpoints.RECOVERY_RECORD_AUDIT, {KNOWS: "as before the write", PERSON: "as before the write"}),
    ],
)
def test_a_dry_run_tells_how_far_an_undoing_came(
    graph: OpenGraph, again: str, states: dict[str, str]
) -> None:
    interrupt(graph, COMMITTED)
    with failpoints.arm(again, failpoints.error(again)), pytest.raises(OmnigraphError, match=again):
        change(newcomer(graph), UPDATE)
    (found,) = forecast_recovery(newcomer(graph))
    assert (found.would, found.tables) == ("finish undoing it", states)


# --- what is noted -------------------------------------------------------------------------------


def test_a_rolled_forward_write_has_the_commit_it_was_meant_to_have(graph: OpenGraph) -> None:
    operation = interrupt(graph, CONFIRMED)
    record = sidecar.read(graph.root, operation)
    assert isinstance(record, sidecar.Sidecar)
    assert record.lineage is not None
    assert record.lineage.created_at == int(record.started_at) > 0
    finish_completed_writes(graph)
    head = look(graph)[MAIN].chain[0]
    assert (head.id, head.actor) == (record.lineage.graph_commit_id, RECOVERY_ACTOR)
    found = note(graph)
    assert (found.commit_id, found.actor, found.writer_kind) == (head.id, ACTOR, "Mutation")
    assert [(o.table_key, o.from_version, o.to_version) for o in found.outcomes] == [
        (KNOWS, 2, 3),
        (PERSON, 2, 3),
    ]


def test_a_rolled_back_write_tells_which_tables_were_restored(graph: OpenGraph) -> None:
    before = look(graph)
    interrupt(graph, COMMITTED)
    open_graph(graph.root)
    assert rows_of(look(graph)) == rows_of(before)
    found = note(graph)
    assert [(o.table_key, o.from_version, o.to_version) for o in found.outcomes] == [(KNOWS, 3, 2)]
    repin, decision = look(graph)[MAIN].chain[:2]
    assert found.commit_id == decision.id
    assert repin.actor == decision.actor == RECOVERY_ACTOR


def test_a_recovery_that_is_repeated_after_its_last_publish_still_tells_what_was_restored(
    graph: OpenGraph,
) -> None:
    interrupt(graph, COMMITTED)
    point = failpoints.RECOVERY_RECORD_AUDIT
    with failpoints.arm(point, failpoints.error(point)), pytest.raises(OmnigraphError, match=point):
        open_graph(graph.root)
    commits = len(look(graph)[MAIN].chain)
    open_graph(newcomer(graph).root)
    assert [(o.table_key, o.from_version, o.to_version) for o in note(graph).outcomes] == [(KNOWS, 3, 2)]
    assert len(look(graph)[MAIN].chain) == commits
    require_settled(graph)


def test_a_note_is_made_once_however_often_it_is_recorded(graph: OpenGraph) -> None:
    row = audit.AuditRow("op", "RolledBack", "c", "Load", None, (audit.TableOutcome("node:A", 3, 2),), 17)
    assert audit.read_audit(graph.root) == []
    audit.record_recovery(graph.root, row)
    version = graph.root.tables.tip(graph.root.layout.audit).version
    audit.record_recovery(newcomer(graph).root, row)
    audit.record_recovery(graph.root, audit.AuditRow("op", "RolledForward", "d", "Load", "x", (), 18))
    assert audit.read_audit(graph.root) == [row]
    assert graph.root.tables.tip(graph.root.layout.audit).version == version
    later = audit.AuditRow("op2", "OrphanedBranchDiscarded", "e", "Load", "x", (), 19)
    audit.record_recovery(graph.root, later)
    assert audit.read_audit(graph.root) == [row, later]


# --- records that say nothing new ----------------------------------------------------------------


@pytest.mark.parametrize(
    "deal", [finish_completed_writes, lambda graph: open_graph(graph.root)], ids=["heal", "open"]
)
def test_a_stale_record_is_noted_and_dropped(graph: OpenGraph, deal: Callable[[OpenGraph], object]) -> None:
    operation = leave_stale(graph)
    before = look(graph)
    deal(newcomer(graph))
    assert look(graph) == before
    require_settled(graph)
    found = note(graph)
    assert (found.operation_id, found.kind) == (operation, "RolledForward")
    assert found.commit_id == before[MAIN].chain[0].id
    assert [(o.from_version, o.to_version) for o in found.outcomes] == [(2, 3), (2, 3)]


def test_a_record_that_comes_back_after_later_writes_changes_nothing(graph: OpenGraph) -> None:
    operation = leave_stale(graph)
    text = sidecar.place(graph.root, operation).path.read_text()
    change(graph, UPDATE)
    change(graph, 'delete Person where name = "eve"')
    sidecar.place(graph.root, operation).path.write_text(text)
    before = look(graph)
    change(graph, 'insert Team { name: "ops" }')
    assert rows_of(look(graph))[MAIN][PERSON] == rows_of(before)[MAIN][PERSON]
    require_settled(graph)
    assert note(graph).operation_id == operation


def test_a_record_that_is_gone_when_it_is_read_belonged_to_a_writer_that_finished(graph: OpenGraph) -> None:
    operation = leave_stale(graph)
    point = failpoints.RECOVERY_POST_SIDECAR_LIST_PRE_READ
    with failpoints.arm(point, lambda: sidecar.remove(graph.root, operation)):
        assert sweep(newcomer(graph), only_forward=False) == []
        assert change(newcomer(graph), UPDATE).commit is not None
    assert audit.read_audit(graph.root) == []


def test_a_record_is_read_again_under_the_lock(graph: OpenGraph) -> None:
    """What it said when it was listed may be overtaken: here its writer confirms meanwhile."""
    operation = interrupt(graph, CONFIRMED)
    confirmed = sidecar.read(graph.root, operation)
    assert isinstance(confirmed, sidecar.Sidecar)
    armed = msgspec.structs.replace(confirmed, phase="Armed", updates=())
    sidecar.rewrite(graph.root, armed)
    reads = 0

    def confirm(op: str, uri: str, /) -> None:
        nonlocal reads
        reads += "__recovery" in uri and op == "read_text_if_exists"
        if reads == 2:
            sidecar.rewrite(graph.root, confirmed)

    sweep(newcomer(graph, confirm), only_forward=True)
    assert "eve" in people(graph)
    assert pending(graph) == []


# --- branches ------------------------------------------------------------------------------------


def test_the_record_of_a_deleted_branch_is_discarded(graph: OpenGraph) -> None:
    create_branch(graph, "draft")
    operation = interrupt(graph, FORKED, branch="draft")
    delete_branch(graph, "draft")
    before = look(graph)
    (report,) = sweep(newcomer(graph), only_forward=True)
    assert (report.status, report.branch) == (RecordStatus.DISCARDED, "draft")
    assert rows_of(look(graph)) == rows_of(before)
    require_settled(graph)
    found = note(graph)
    assert (found.operation_id, found.kind) == (operation, "OrphanedBranchDiscarded")
    assert found.commit_id == look(graph)[MAIN].chain[0].id
    create_branch(graph, "draft")
    change(graph, TWO, "draft")
    assert stray_forks(graph) == []


def test_a_discarded_record_is_noted_once_though_the_note_fails_at_first(graph: OpenGraph) -> None:
    create_branch(graph, "draft")
    interrupt(graph, FORKED, branch="draft")
    delete_branch(graph, "draft")
    point = failpoints.RECOVERY_RECORD_AUDIT
    with failpoints.arm(point, failpoints.error(point)), pytest.raises(OmnigraphError, match=point):
        sweep(graph, only_forward=False)
    commits = len(look(graph)[MAIN].chain)
    sweep(graph, only_forward=False)
    assert len(look(graph)[MAIN].chain) == commits
    assert note(graph).kind == "OrphanedBranchDiscarded"
    require_settled(graph)


def test_a_record_is_discarded_again_when_that_broke_off_before_it_was_noted(graph: OpenGraph) -> None:
    """Opening the graph reports it; a write elsewhere goes on, and so does what comes next."""
    create_branch(graph, "draft")
    operation = interrupt(graph, FORKED, branch="draft")
    delete_branch(graph, "draft")
    commits = len(look(graph)[MAIN].chain)
    point = failpoints.RECOVERY_ORPHAN_DISCARD_AUDIT_APPEND
    with failpoints.arm(point, failpoints.error(point)):
        with pytest.raises(OmnigraphError, match=point):
            open_graph(newcomer(graph).root)
        assert change(newcomer(graph), UPDATE).commit is not None
    assert pending(graph) == [operation]
    assert audit.read_audit(graph.root) == []
    open_graph(newcomer(graph).root)
    assert (note(graph).operation_id, note(graph).kind) == (operation, "OrphanedBranchDiscarded")
    assert len(look(graph)[MAIN].chain) == commits + 2
    require_settled(graph)


@pytest.mark.parametrize("point", [COMMITTED, CONFIRMED])
def test_a_record_of_an_earlier_life_of_a_branch_is_discarded(graph: OpenGraph, point: str) -> None:
    create_branch(graph, "draft")
    change(graph, 'insert Person { name: "dan" }', "draft")
    interrupt(graph, point, branch="draft")
    delete_branch(graph, "draft")
    create_branch(graph, "draft")
    change(newcomer(graph), UPDATE, "draft")
    assert people(graph, "draft") == {"ada", "bo", "cy"}
    require_settled(graph)
    assert note(graph).kind == "OrphanedBranchDiscarded"


def test_records_of_two_branches_are_dealt_with_each_for_itself(graph: OpenGraph) -> None:
    create_branch(graph, "draft")
    first = interrupt(graph, COMMITTED)
    with failpoints.arm(CONFIRMED, failpoints.error(CONFIRMED)), pytest.raises(RecoveryRequired):
        change(graph, TWO, "draft")
    reports = sweep(newcomer(graph), only_forward=True)
    assert {report.branch: report.status for report in reports} == {
        MAIN: RecordStatus.WAITING,
        "draft": RecordStatus.RECOVERED,
    }
    assert pending(graph) == [first]
    change(graph, UPDATE)
    assert "eve" not in people(graph, MAIN)
    assert "eve" in people(graph, "draft")
    require_settled(graph)


# --- places and foreign hands --------------------------------------------------------------------


@pytest.mark.parametrize("point", [COMMITTED, CONFIRMED])
def test_a_copy_of_a_graph_recovers_itself_and_not_the_original(graph: OpenGraph, point: str) -> None:
    interrupt(graph, point)
    original = graph.root.layout.root.path
    before = tree(original)
    copy = original.with_name("copy")
    shutil.copytree(original, copy)
    require_settled(open_graph(Root.at(Location.parse(copy))))
    assert tree(original) == before


def test_a_head_that_moved_makes_a_completed_write_one_to_be_undone(graph: OpenGraph) -> None:
    """A prepared write is never put on top of one it does not know."""
    operation = interrupt(graph, CONFIRMED)
    place = sidecar.place(graph.root, operation).path
    text = place.read_text()
    place.unlink()
    change(graph, 'insert Team { name: "ops" }')
    place.write_text(text)
    open_graph(graph.root)
    assert "eve" not in people(graph)
    assert note(graph).kind == "RolledBack"
    require_settled(graph)


def test_an_effect_buried_by_a_foreign_commit_is_left_to_a_person(graph: OpenGraph) -> None:
    create_branch(graph, "draft")
    operation = interrupt(graph, COMMITTED)
    entry = graph.load(MAIN).state.entries()[KNOWS]
    tip = graph.root.tables.tip(graph.root.layout.table(entry.path))
    commit_staged(stage_append(tip, tip.scan(limit=1)))
    other = open_graph(Root.at(graph.root.layout.root))
    assert pending(graph) == [operation]
    with pytest.raises(RecoveryRequired, match=KNOWS):
        change(other, UPDATE)
    assert change(other, UPDATE, "draft").commit is not None
    assert audit.read_audit(graph.root) == []


def test_restored_versions_carry_the_operation_and_the_version_they_went_back_to(graph: OpenGraph) -> None:
    operation = interrupt(graph, COMMITTED)
    open_graph(graph.root)
    entry = graph.load(MAIN).state.entries()[KNOWS]
    tip = graph.root.tables.tip(graph.root.layout.table(entry.path))
    (restore,) = read_transactions(tip, tip.version - 1, tip.version)
    assert (restore.operation, restore.restored) == ("Restore", 2)
    assert restore.properties == {"omnigraph.operation": operation, "omnigraph.restored": "2"}


# --- records of older releases -------------------------------------------------------------------


def rewrite_old(graph: OpenGraph, operation: str, version: int = 2) -> None:
    """Turn a record into one of an older form."""
    value = json.loads(sidecar.place(graph.root, operation).path.read_text())
    kept = ("operation_id", "started_at", "branch", "actor_id", "writer_kind")
    pins = ("table_key", "table_path", "expected_version", "post_commit_pin", "table_branch")
    old = {
        "schema_version": version,
        **{name: value.get(name) for name in kept},
        "tables": [{name: pin[name] for name in pins if name in pin} for pin in value["tables"]],
    }
    sidecar.place(graph.root, operation).path.write_text(json.dumps(old))


@pytest.mark.parametrize("version", [1, 2])
def test_an_old_record_with_every_table_moved_rolls_forward(graph: OpenGraph, version: int) -> None:
    rewrite_old(graph, interrupt(graph, CONFIRMED), version)
    open_graph(graph.root)
    assert "eve" in people(graph)
    require_settled(graph)
    assert note(graph).kind == "RolledForward"


@pytest.mark.parametrize("version", [1, 2])
def test_an_old_record_with_some_tables_moved_rolls_back_in_one_commit(
    graph: OpenGraph, version: int
) -> None:
    before = look(graph)
    rewrite_old(graph, interrupt(graph, COMMITTED), version)
    open_graph(graph.root)
    after = look(graph)
    assert rows_of(after) == rows_of(before)
    assert len(after[MAIN].chain) == len(before[MAIN].chain) + 1
    require_settled(graph)
    assert [(o.table_key, o.from_version, o.to_version) for o in note(graph).outcomes] == [(KNOWS, 3, 2)]


def expect_later_versions(graph: OpenGraph, operation: str, version: int, ahead: int) -> None:
    """Turn a record into one that expects versions which its tables never had."""
    record = sidecar.read(graph.root, operation)
    assert isinstance(record, sidecar.Sidecar)
    pins = tuple(
        msgspec.structs.replace(pin, expected_version=pin.expected_version + ahead) for pin in record.tables
    )
    sidecar.rewrite(graph.root, msgspec.structs.replace(record, tables=pins))
    if version < sidecar.CURRENT:
        rewrite_old(graph, operation, version)


@pytest.mark.parametrize("ahead", [1, 2, 40])
@pytest.mark.parametrize("version", [1, 2, 3])
def test_the_note_of_a_rollback_is_complete_when_the_record_expects_versions_that_never_were(
    graph: OpenGraph, version: int, ahead: int
) -> None:
    before = look(graph)
    expect_later_versions(graph, interrupt(graph, COMMITTED), version, ahead)
    open_graph(graph.root)
    assert rows_of(look(graph)) == rows_of(before)
    require_settled(graph)
    row = note(graph)
    assert (row.kind, row.outcomes) == ("RolledBack", (audit.TableOutcome(KNOWS, 3, 2),))


@pytest.mark.parametrize(("point", "kind"), [(CONFIRMED, "RolledForward"), (COMMITTED, "RolledBack")])
@pytest.mark.parametrize("version", [2, 3])
def test_a_note_that_fails_at_a_refresh_is_complete_once_it_is_made(
    graph: OpenGraph, tmp_path: Path, version: int, point: str, kind: str
) -> None:
    """As complete as the note of a recovery that nothing disturbed."""
    operation = interrupt(graph, point)
    if version < sidecar.CURRENT:
        rewrite_old(graph, operation, version)
    at = copy_graph(graph.root.layout.root, Location.parse(tmp_path / "undisturbed"))
    expected = note(open_graph(Root.at(at)))
    failing = failpoints.RECOVERY_RECORD_AUDIT
    with failpoints.arm(failing, failpoints.error(failing)):
        refreshed = reopen_graph(graph)
        with pytest.raises(OmnigraphError):
            change(refreshed, UPDATE)
    assert pending(graph) == [operation]
    assert audit.read_audit(graph.root) == []
    assert [one.operation_id for one in examine(graph).interrupted] == [operation]
    change(reopen_graph(refreshed), UPDATE)
    row = note(graph)
    assert (row.operation_id, row.kind, row.outcomes) == (operation, kind, expected.outcomes)
    assert row.outcomes != ()
    require_settled(graph)


@pytest.mark.parametrize("point", [failpoints.RECOVERY_POST_TABLE_RESTORE_PRE_PUBLISH, "audit"])
def test_undoing_an_old_record_can_be_taken_up_again(graph: OpenGraph, point: str) -> None:
    before = look(graph)
    rewrite_old(graph, interrupt(graph, COMMITTED))
    point = failpoints.RECOVERY_RECORD_AUDIT if point == "audit" else point
    with failpoints.arm(point, failpoints.error(point)), pytest.raises(OmnigraphError, match=point):
        change(newcomer(graph), UPDATE)
    open_graph(graph.root)
    after = look(graph)
    assert rows_of(after) == rows_of(before)
    assert len(after[MAIN].chain) == len(before[MAIN].chain) + 1
    require_settled(graph)
    assert note(graph).kind == "RolledBack"


def test_an_old_record_whose_fork_was_never_made_rolls_back(graph: OpenGraph) -> None:
    create_branch(graph, "draft")
    before = look(graph)
    rewrite_old(graph, interrupt(graph, failpoints.MUTATION_POST_SIDECAR_PRE_FORK, branch="draft"))
    open_graph(graph.root)
    assert rows_of(look(graph)) == rows_of(before)
    require_settled(graph)
    assert note(graph).kind == "RolledBack"


def test_an_old_record_of_a_published_write_is_stale(graph: OpenGraph) -> None:
    rewrite_old(graph, leave_stale(graph))
    before = look(graph)
    finish_completed_writes(newcomer(graph))
    after = look(graph)
    assert rows_of(after) == rows_of(before)
    require_settled(graph)
    assert note(graph).kind == "RolledForward"
    assert note(graph).commit_id == after[MAIN].chain[0].id


@pytest.mark.parametrize("point", [None, failpoints.FORK_BEFORE_RECLAIM, FORKED])
def test_a_branch_recreated_is_written_although_older_forks_of_its_name_are_left(
    graph: OpenGraph, point: str | None
) -> None:
    """Main has moved on since, so that those forks end before the new one begins."""
    create_branch(graph, "draft")
    change(graph, TWO, "draft")
    kept = failpoints.BRANCH_DELETE_BEFORE_TABLE_CLEANUP
    with failpoints.arm(kept, failpoints.error(kept)):
        delete_branch(graph, "draft")
    change(graph, TWO)
    change(graph, 'insert Knows { from: "bo", to: "ada" }')
    create_branch(graph, "draft")
    if point is not None:
        interrupt(graph, point, TWO.replace("eve", "fay"), "draft")
    assert change(newcomer(graph), TWO.replace("eve", "dan"), "draft").commit is not None
    require_settled(graph)
    people = {row["name"] for row in look(newcomer(graph))["draft"].rows[PERSON]}
    assert people == {"ada", "bo", "cy", "eve", "dan"}
