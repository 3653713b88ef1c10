"""An interrupted write whose table or branch is damaged stops its own branch, and no other."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

import omnigraph
from omnigraph import failpoints
from omnigraph.engine.branches.manage import create_branch, delete_branch
from omnigraph.engine.commit.recovery import audit
from omnigraph.engine.commit.recovery.damage import is_damage
from omnigraph.engine.commit.recovery.forecast import abandon_record, forecast_recovery
from omnigraph.engine.commit.recovery.sweep import RecordStatus, sweep
from omnigraph.engine.graph.layout import table_path
from omnigraph.engine.graph.manifest import MAIN
from omnigraph.engine.graph.open_graph import OpenGraph
from omnigraph.engine.graph.root import Root
from omnigraph.engine.lifecycle.open import open_graph, open_without_recovery, recover_all, reopen_graph
from omnigraph.engine.maintenance.doctor import examine
from omnigraph.errors import (
    BranchInUse,
    Conflict,
    CorruptGraph,
    OmnigraphError,
    RecoveryRequired,
    StorageFailure,
    UnsupportedFormat,
    WriterBusy,
)
from omnigraph.storage.failures import FailureKind, TableFailureKind, wrap_lance_errors, wrap_os_errors
from tests.engine.crash.test_heal import COMMITTED, CONFIRMED, UPDATE, interrupt, newcomer
from tests.engine.crash.world import KNOWS, PERSON, change, make_graph, pending, require_settled

TEAM = 'insert Team { name: "ops" }'
DRAFT = "draft"
KNOWS_AT = table_path("edge", "Knows")

Spoil = Callable[[Path], None]


def empty(folder: Path) -> None:
    _newest_version(folder).write_bytes(b"")


def scramble(folder: Path) -> None:
    at = _newest_version(folder)
    at.write_bytes(bytes((byte * 7 + 13) % 256 for byte in at.read_bytes()))


def without_its_first_version(folder: Path) -> None:
    """The newest version can be read, and the one that undoing goes back to cannot."""
    max((folder / "_versions").glob("*.manifest")).write_bytes(b"")


def without_versions(folder: Path) -> None:
    for at in (folder / "_versions").iterdir():
        at.unlink()


def with_a_spoiled_reference(folder: Path) -> None:
    """What a fork's reference says cannot be understood."""
    table = folder.parent.parent
    (table / "_refs/branches" / f"{folder.name}.json").write_text("{")


def _newest_version(folder: Path) -> Path:
    # They are named by what is left up to the greatest number, so that the newest comes first.
    return min((folder / "_versions").glob("*.manifest"))


@dataclass(frozen=True, slots=True)
class Damage:
    """Which branch was written, how far the write came, and which folder is spoiled how."""

    branch: str
    point: str
    folder: str
    spoil: Spoil
    tells: str
    """A part of what is reported about it."""

    @property
    def elsewhere(self) -> str:
        return DRAFT if self.branch == MAIN else MAIN


FORK = f"{KNOWS_AT}/tree/{DRAFT}"
MANIFEST = f"__manifest/tree/{DRAFT}"
DAMAGES = {
    "table": Damage(MAIN, COMMITTED, KNOWS_AT, empty, f"table '{KNOWS}' cannot be read"),
    "fork": Damage(DRAFT, COMMITTED, FORK, scramble, f"table '{KNOWS}' cannot be read"),
    "fork-base": Damage(DRAFT, COMMITTED, FORK, without_its_first_version, f"table '{KNOWS}' cannot be read"),
    "fork-reference": Damage(
        DRAFT, CONFIRMED, FORK, with_a_spoiled_reference, f"table '{KNOWS}' cannot be read"
    ),
    "branch": Damage(DRAFT, CONFIRMED, MANIFEST, empty, f"branch '{DRAFT}' cannot be read"),
    "branch-without-versions": Damage(
        DRAFT, CONFIRMED, MANIFEST, without_versions, f"branch '{DRAFT}' cannot be read"
    ),
}


@pytest.fixture(params=DAMAGES)
def damage(request: pytest.FixtureRequest) -> Damage:
    return DAMAGES[request.param]


@pytest.fixture
def graph(tmp_path: Path) -> OpenGraph:
    """The small graph, with a branch beside main."""
    graph = make_graph(tmp_path / "graph")
    create_branch(graph, DRAFT)
    return graph


def test_a_branch_that_cannot_be_read_keeps_only_those_that_it_was_made_from(graph: OpenGraph) -> None:
    for name, source in (("beside", MAIN), ("below", DRAFT), ("deep", "below")):
        create_branch(graph, name, from_branch=source)
    empty(graph.root.layout.root.path / "__manifest/tree/deep")
    stranger = newcomer(graph)
    delete_branch(stranger, "beside")
    with pytest.raises(BranchInUse, match=f"branch '{DRAFT}' cannot be deleted: 'below', 'deep'"):
        delete_branch(stranger, DRAFT)
    for name in ("deep", "below", DRAFT):
        delete_branch(stranger, name)
    assert stranger.branch_names() == [MAIN]


def leave_damage(graph: OpenGraph, damage: Damage) -> str:
    """Leave the record of a write whose table or branch is damaged then; its operation."""
    operation = interrupt(graph, damage.point, branch=damage.branch)
    damage.spoil(graph.root.layout.root.path / damage.folder)
    return operation


def test_only_its_own_branch_stands_still_until_a_person_gives_it_up(
    graph: OpenGraph, damage: Damage
) -> None:
    operation = leave_damage(graph, damage)

    (found,) = forecast_recovery(open_without_recovery(newcomer(graph).root, read_only=True))
    assert (found.branch, found.stuck) == (damage.branch, True)
    assert found.would.startswith("refuse writes: ")
    assert damage.tells in f"{found.would} {found.tables}"
    assert not examine(open_without_recovery(newcomer(graph).root, read_only=True)).ok

    with omnigraph.open(graph.root.uri) as held:
        held.refresh()
        assert held.snapshot().tables[PERSON].rows == 3
    assert change(newcomer(graph), UPDATE, damage.elsewhere).commit is not None
    reopen_graph(newcomer(graph))

    with pytest.raises(RecoveryRequired) as refused:
        change(newcomer(graph), TEAM, damage.branch)
    assert refused.value.operation_id == operation
    assert damage.tells in refused.value.reason
    assert refused.value.remedy is not None

    (report,) = recover_all(newcomer(graph))
    assert (report.operation_id, report.branch, report.status) == (
        operation,
        damage.branch,
        RecordStatus.STUCK,
    )
    assert damage.tells in report.reason
    assert pending(graph) == [operation]
    assert audit.read_audit(graph.root) == []

    assert abandon_record(newcomer(graph), operation).branch == damage.branch
    assert pending(graph) == []
    assert change(newcomer(graph), UPDATE, damage.elsewhere).commit is not None


def test_tables_beside_a_damaged_one_can_be_written_once_its_record_is_given_up(graph: OpenGraph) -> None:
    damage = DAMAGES["table"]
    abandon_record(graph, leave_damage(graph, damage))
    assert change(newcomer(graph), TEAM, damage.branch).commit is not None
    with pytest.raises(OmnigraphError):
        change(newcomer(graph), 'insert Knows { from: "ada", to: "cy" }', damage.branch)


@pytest.mark.parametrize("name", ["fork", "branch"])
def test_a_record_is_dealt_with_as_soon_as_the_damage_is_repaired(graph: OpenGraph, name: str) -> None:
    damage = DAMAGES[name]
    interrupt(graph, damage.point, branch=damage.branch)
    at = _newest_version(graph.root.layout.root.path / damage.folder)
    kept = at.read_bytes()
    at.write_bytes(b"")
    assert [one.status for one in sweep(newcomer(graph), only_forward=False)] == [RecordStatus.STUCK]
    at.write_bytes(kept)
    assert change(newcomer(graph), TEAM, damage.branch).commit is not None
    require_settled(graph)
    assert len(audit.read_audit(graph.root)) == 1


def test_a_second_record_is_dealt_with_beside_the_damaged_one(graph: OpenGraph) -> None:
    stuck = leave_damage(graph, DAMAGES["branch"])
    with pytest.raises(RecoveryRequired):
        # The same write on main breaks off as well, and can be undone.
        _break_off(graph)
    (second,) = [one for one in pending(graph) if one != stuck]
    fates = {one.operation_id: one.status for one in sweep(newcomer(graph), only_forward=False)}
    assert fates == {stuck: RecordStatus.STUCK, second: RecordStatus.RECOVERED}
    assert pending(graph) == [stuck]


def _break_off(graph: OpenGraph) -> None:
    with failpoints.arm(COMMITTED, failpoints.error(COMMITTED)):
        change(newcomer(graph), UPDATE, MAIN)


def test_a_table_that_is_damaged_while_a_write_is_undone_is_reported_alike(graph: OpenGraph) -> None:
    """The decision to undo is visible already, and a dry run predicts that it cannot be carried out."""
    operation = interrupt(graph, COMMITTED)
    point = failpoints.GRAPH_PUBLISH_AFTER_MANIFEST_COMMIT
    with failpoints.arm(point, failpoints.error(point)), pytest.raises(OmnigraphError, match=point):
        change(newcomer(graph), UPDATE)
    empty(graph.root.layout.root.path / KNOWS_AT)
    (found,) = forecast_recovery(newcomer(graph))
    (report,) = sweep(newcomer(graph), only_forward=False)
    assert (found.stuck, report.status) == (True, RecordStatus.STUCK)
    assert found.would == f"refuse writes: {report.reason}"
    assert found.tables == {KNOWS: "damaged", PERSON: "untouched"}
    abandon_record(newcomer(graph), operation)
    assert change(newcomer(graph), TEAM).commit is not None


def test_a_damaged_branch_can_be_deleted_and_its_record_goes_with_it(graph: OpenGraph) -> None:
    operation = leave_damage(graph, DAMAGES["branch"])
    delete_branch(newcomer(graph), DRAFT)
    (report,) = recover_all(newcomer(graph))
    assert (report.operation_id, report.status) == (operation, RecordStatus.DISCARDED)
    require_settled(graph)


def test_a_damaged_audit_keeps_only_what_is_to_be_noted_waiting(graph: OpenGraph) -> None:
    interrupt(graph, COMMITTED)
    open_graph(newcomer(graph).root)
    operation = interrupt(graph, CONFIRMED, branch=DRAFT)
    notes = graph.root.layout.audit.path
    empty(notes)
    (report,) = recover_all(open_without_recovery(newcomer(graph).root))
    assert (report.status, report.operation_id) == (RecordStatus.WAITING, operation)
    assert report.reason.startswith("the audit of recoveries cannot be read: ")
    assert change(newcomer(graph), UPDATE).commit is not None
    with pytest.raises(StorageFailure, match="the audit of recoveries cannot be read") as refused:
        change(newcomer(graph), TEAM, DRAFT)
    assert refused.value.remedy == f"move '{notes.name}' out of the graph: a new one is begun"
    notes.rename(notes.with_name("elsewhere"))
    assert change(newcomer(graph), TEAM, DRAFT).commit is not None
    require_settled(graph)
    assert [one.operation_id for one in audit.read_audit(graph.root)] == [operation]


# --- what is not there at this moment is not damaged ---------------------------------------------


def test_every_kind_of_failure_is_damage_or_passes() -> None:
    lasting = {
        *(
            TableFailureKind.NOT_FOUND,
            TableFailureKind.RECLAIMED,
            TableFailureKind.INDEX_LOST,
            TableFailureKind.UNKNOWN,
        ),
        *(TableFailureKind.INVALID, TableFailureKind.DUPLICATE_KEYS, TableFailureKind.FOREIGN),
        *(FailureKind.NOT_FOUND, FailureKind.PERMANENT, FailureKind.UNKNOWN),
    }
    for kind in (*TableFailureKind, *FailureKind):
        assert is_damage(StorageFailure("", kind=kind)) is (kind in lasting), kind
    assert is_damage(CorruptGraph("", object_id=""))
    assert not is_damage(UnsupportedFormat("", found=9, supported="1 to 4"))
    assert not is_damage(WriterBusy(MAIN, owner="somebody", waited=0.0))


def through(graph: OpenGraph, part: str, kind: str) -> OpenGraph:
    """The graph through storage that does not hand out one of its parts."""

    def observe(_: str, uri: str, /) -> None:
        if part in uri:
            raise StorageFailure("the store does not answer", kind=kind, uri=uri)

    return OpenGraph.open(Root.at(graph.root.layout.root, observe))


@pytest.mark.parametrize(
    ("number", "damage"),
    [
        (errno.EIO, False),
        (errno.EFBIG, False),
        (errno.ENOTCONN, False),
        (errno.ENXIO, False),
        (errno.ENOENT, True),
        (errno.ENOTDIR, True),
    ],
)
def test_a_disk_that_does_not_answer_is_no_damage_in_either_layer(number: int, damage: bool) -> None:
    by_the_system = OSError(number, os.strerror(number))
    by_lance = OSError(f"LanceError(IO): Generic error: {os.strerror(number)} (os error {number}), a.rs:1:2")
    with pytest.raises(StorageFailure) as ours, wrap_os_errors("read", "x"):
        raise by_the_system
    with pytest.raises(StorageFailure) as lances, wrap_lance_errors("scan", "x"):
        raise by_lance
    assert [is_damage(caught.value) for caught in (ours, lances)] == [damage, damage]


@pytest.mark.parametrize(
    ("folder", "kind"),
    [
        (FORK, TableFailureKind.TRANSIENT),
        (MANIFEST, TableFailureKind.CONFIGURATION),
        (f"__manifest/_refs/branches/{DRAFT}", FailureKind.TRANSIENT),
    ],
)
def test_a_store_that_does_not_answer_for_one_branch_keeps_no_other_one_from_writing(
    graph: OpenGraph, folder: str, kind: str
) -> None:
    operation = interrupt(graph, COMMITTED, branch=DRAFT)
    held = through(graph, folder, kind)
    assert open_graph(held.root).load(MAIN).state.head is not None
    assert change(held, UPDATE).commit is not None
    (report,) = sweep(held, only_forward=False)
    assert (report.status, report.reason) == (RecordStatus.WAITING, "the store does not answer")
    (found,) = forecast_recovery(held)
    assert (found.would, found.stuck) == ("wait: the store does not answer", False)
    with pytest.raises(Conflict, match="can be recovered"):
        abandon_record(held, operation)
    with pytest.raises(StorageFailure, match="the store does not answer"):
        change(held, TEAM, DRAFT)
    assert pending(graph) == [operation]
    assert change(newcomer(graph), TEAM, DRAFT).commit is not None
    require_settled(graph)
