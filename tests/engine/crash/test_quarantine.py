"""A record that cannot be read stops writes where it belongs, and nowhere else."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import omnigraph
from omnigraph.engine.branches.manage import create_branch
from omnigraph.engine.commit.recovery import audit
from omnigraph.engine.commit.recovery.forecast import forecast_recovery
from omnigraph.engine.commit.recovery.sweep import RecordStatus, sweep
from omnigraph.engine.graph.manifest import MAIN
from omnigraph.engine.graph.open_graph import OpenGraph
from omnigraph.engine.lifecycle.open import open_graph
from omnigraph.errors import RecoveryRequired
from tests.engine.crash.test_heal import CONFIRMED, UPDATE, interrupt, newcomer
from tests.engine.crash.world import change, look, make_graph, pending

OPERATION = "01J00000000000000000000000"


@pytest.fixture
def graph(tmp_path: Path) -> OpenGraph:
    """The small graph, with two branches beside main."""
    graph = make_graph(tmp_path / "graph")
    for branch in ("draft", "other"):
        create_branch(graph, branch)
    return graph


def put(graph: OpenGraph, content: bytes | str, operation: str = OPERATION) -> Path:
    folder = graph.root.layout.recovery.path
    folder.mkdir(exist_ok=True)
    at = folder / f"{operation}.json"
    at.write_bytes(content if isinstance(content, bytes) else content.encode())
    return at


def refused_branches(graph: OpenGraph) -> set[str]:
    """The branches that cannot be written because of the record."""
    return {branch for branch in graph.branch_names() if _is_refused(graph, branch)}


def _is_refused(graph: OpenGraph, branch: str) -> bool:
    try:
        change(newcomer(graph), UPDATE, branch)
    except RecoveryRequired as error:
        return error.operation_id == OPERATION
    return False


ALL = {MAIN, "draft", "other"}


@pytest.mark.parametrize(
    ("content", "concerned"),
    [
        ('{"schema_version": 3, "branch": "draft", "checksum": "0"}', {"draft"}),
        ('{"schema_version": 3, "branch": null, "checksum": "0"}', {MAIN}),
        ('{"schema_version": 99, "branch": "draft", "tables": 5}', {"draft"}),
        ('{"schema_version": 2, "branch": "draft", "tables": 5}', {"draft"}),
        ('{"schema_version": 3, "checksum": "0"}', ALL),
        ("", ALL),
        ("{", ALL),
        (b"\xff\xfe\x00", ALL),
    ],
)
def test_writes_are_refused_on_the_branch_it_names_or_everywhere(
    graph: OpenGraph, content: bytes | str, concerned: set[str]
) -> None:
    at = put(graph, content)
    kept = at.read_bytes()
    assert refused_branches(graph) == concerned
    assert at.read_bytes() == kept
    assert audit.read_audit(graph.root) == []


@pytest.mark.parametrize("content", ["{", b"\xff", '{"schema_version": 99, "branch": null}'])
def test_the_graph_opens_and_reads_as_ever(graph: OpenGraph, content: bytes | str) -> None:
    before = look(graph)
    put(graph, content)
    for read_only in (False, True):
        with omnigraph.open(graph.root.uri, read_only=read_only) as held:
            held.refresh()
            assert held.snapshot().tables["node:Person"].rows == 3
    assert look(graph) == before
    (report,) = sweep(graph, only_forward=False)
    assert (report.operation_id, report.status) == (OPERATION, RecordStatus.UNREADABLE)
    (prospect,) = forecast_recovery(graph)
    assert prospect.would.startswith("refuse writes: ")


def test_a_torn_record_is_placed_by_the_lock_that_was_taken_for_it(graph: OpenGraph) -> None:
    with graph.root.locks.hold(["draft"], operation_id=OPERATION):
        put(graph, '{"schema_version": 3, "bra')
    assert refused_branches(graph) == {"draft"}


def test_a_newer_record_tells_to_upgrade(graph: OpenGraph) -> None:
    put(graph, json.dumps({"schema_version": 99, "branch": None, "operation_id": OPERATION}))
    with pytest.raises(RecoveryRequired, match="upgrade"):
        change(graph, UPDATE)


def test_removing_the_unreadable_record_ends_it(graph: OpenGraph) -> None:
    at = put(graph, "{")
    with pytest.raises(RecoveryRequired, match="it is not JSON"):
        change(graph, UPDATE)
    at.rename(at.with_suffix(".json.bad"))
    assert change(graph, UPDATE).commit is not None


def test_readable_records_beside_it_are_dealt_with(graph: OpenGraph) -> None:
    interrupt(graph, CONFIRMED, branch="other")
    put(graph, '{"schema_version": 3, "branch": "draft"}')
    open_graph(graph.root)
    assert pending(graph) == [OPERATION]
    assert {row["id"] for row in look(graph)["other"].rows["node:Person"]} == {"ada", "bo", "cy", "eve"}
    assert refused_branches(graph) == {"draft"}


@pytest.mark.parametrize("name", ["x.txt", "01J.json.bad", f"{OPERATION}.json#123", "json"])
def test_files_of_other_names_are_nobodys_record(graph: OpenGraph, name: str) -> None:
    folder = graph.root.layout.recovery.path
    folder.mkdir(exist_ok=True)
    (folder / name).write_text("{")
    assert pending(graph) == []
    assert refused_branches(graph) == set()
