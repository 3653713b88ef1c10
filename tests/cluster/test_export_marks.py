"""A graph is not deleted while an export of it runs, in this process or in another one."""

from __future__ import annotations

import io
import json
import shutil
from pathlib import Path

import pytest

import omnigraph as og
from omnigraph.engine.graph.export_marks import (
    EXPIRY_SECONDS,
    LONGEST_EXPORT_SECONDS,
    list_exports,
    mark_export_if_possible,
    renew_mark,
    write_mark,
)
from omnigraph.engine.graph.root import Root, ulid
from omnigraph.errors import StorageFailure
from omnigraph.storage.failures import FailureKind
from omnigraph.storage.location import Location
from tests.cluster.deployment import GONE, Deployment, codes, outcomes
from tests.python_process import PIPE, Python

EXPORTER = """\
import sys
from omnigraph.engine.graph.export_marks import mark_export
from omnigraph.engine.graph.root import Root
from omnigraph.engine.lifecycle.open import open_graph
from omnigraph.errors import StorageFailure
from omnigraph.storage.failures import FailureKind
from omnigraph.storage.location import Location
with mark_export(open_graph(Root.at(Location.parse(sys.argv[1])))):
    print("exporting", flush=True)
    sys.stdin.read()
"""
IN_PROGRESS = ["graph_delete_export_in_progress"]


@pytest.fixture
def doomed(applied: Deployment) -> Deployment:
    """A deployment whose graph is about to be deleted, with approval."""
    with og.open(applied.graph()) as graph:
        graph.mutate('query q() { insert Person { name: "Ada" } }')
    applied.configure(GONE)
    assert applied.approve("graph.knowledge")["ok"]
    return applied


def marks_of(deployment: Deployment) -> list[Path]:
    return list((deployment.graph() / "__staging" / "exporting").glob("*.json"))


class Applying(io.BytesIO):
    """An output whose first bytes meet an apply."""

    def __init__(self, deployment: Deployment) -> None:
        super().__init__()
        self._deployment = deployment
        self.found: list[str] = []

    def write(self, data: object, /) -> int:
        if not self.found:
            self.found = codes(self._deployment.apply("ann"), "error")
        return super().write(data)  # type: ignore[arg-type]  # bytes, as an export writes


def test_graph_is_not_deleted_under_an_export(doomed: Deployment) -> None:
    output = Applying(doomed)
    with og.open(doomed.graph()) as graph:
        graph.export(output)
    assert output.found == IN_PROGRESS
    assert b"Ada" in output.getvalue()
    assert marks_of(doomed) == []
    result = doomed.apply("ann")
    assert outcomes(result)["graph.knowledge"] == "delete applied", "the approval still holds"
    assert result["converged"]


def test_reader_that_may_not_write_leaves_no_mark(doomed: Deployment) -> None:
    before = sorted(doomed.graph().rglob("*"))
    with og.open(doomed.graph(), read_only=True) as graph:
        graph.export(io.BytesIO())
    assert sorted(doomed.graph().rglob("*")) == before


def test_export_of_the_command_line_counts_though_it_only_reads(doomed: Deployment, tmp_path: Path) -> None:
    """It stops with its first byte in a pipe that is full, and goes on when the test has applied."""
    rows = "".join(f'  insert Person {{ name: "{number:0200}" }}' for number in range(2000))
    with og.open(doomed.graph()) as graph:
        graph.mutate(f"query q() {{ {rows} }}")
    command = ("-m", "omnigraph", "export", str(doomed.graph()))
    with Python(*command, stdout=PIPE, stderr=PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline()
        result = doomed.apply("ann")
        assert codes(result, "error") == IN_PROGRESS
        assert process.stdout.read()
        process.wait()
    assert marks_of(doomed) == []
    assert doomed.apply("ann")["converged"]


def test_export_that_may_not_write_runs_without_a_mark(doomed: Deployment) -> None:
    def refuse(op: str, uri: str, /) -> None:
        if op.startswith("write"):
            raise StorageFailure("read-only", kind=FailureKind.CONFIGURATION, uri=uri)

    with mark_export_if_possible(Root.at(Location.parse(str(doomed.graph())), refuse)):
        assert marks_of(doomed) == []


def test_mark_is_not_renewed_where_the_graph_is_gone(doomed: Deployment) -> None:
    root = Root.at(Location.parse(str(doomed.graph())))
    with mark_export_if_possible(root):
        [mark] = marks_of(doomed)
        at = root.layout.staging / f"exporting/{mark.name}"
        mark.unlink()
        renew_mark(root, at)
        assert mark.exists(), "a cleanup took it for a dead one"
        shutil.rmtree(doomed.graph())
        renew_mark(root, at)
        assert not doomed.graph().exists()


def test_export_of_another_process_counts_until_its_mark_expires(doomed: Deployment) -> None:
    with Python("-c", EXPORTER, str(doomed.graph()), stdin=PIPE, stdout=PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "exporting\n"
        result = doomed.apply("ann")
        assert codes(result, "error") == IN_PROGRESS
        assert outcomes(result)["graph.knowledge"] == "delete blocked graph_delete_failed"
        assert doomed.sidecars() == [], "nothing was begun"
        process.kill()
        process.wait()
    assert codes(doomed.apply("ann"), "error") == IN_PROGRESS, "it may be on another machine"
    [mark] = marks_of(doomed)
    written = json.loads(mark.read_text(encoding="utf-8"))
    written["renewed_at"] -= int(EXPIRY_SECONDS * 1_000_000)
    mark.write_text(json.dumps(written), encoding="utf-8")
    assert doomed.apply("ann")["converged"]


def test_renewed_mark_counts_and_cleanup_removes_dead_ones(applied: Deployment) -> None:
    root = Root.at(Location.parse(str(applied.graph())))
    dead, alive = (root.layout.staging / f"exporting/{name}.json" for name in ("dead", "alive"))
    for at in (dead, alive):
        write_mark(root, at)
    for mark in marks_of(applied):
        written = json.loads(mark.read_text(encoding="utf-8"))
        mark.write_text(json.dumps({**written, "renewed_at": 0}), encoding="utf-8")
    assert list_exports(root) == []
    renew_mark(root, alive)
    assert len(list_exports(root)) == 1
    with og.open(applied.graph()) as graph:
        graph.cleanup(keep=1)
    assert [mark.stem for mark in marks_of(applied)] == ["alive"]
    applied.write("graphs/knowledge.omni/__staging/exporting/odd.json", "{")
    assert len(list_exports(root)) == 2, "a mark that cannot be read counts"


def test_unreadable_mark_counts_for_a_week(applied: Deployment) -> None:
    root = Root.at(Location.parse(str(applied.graph())))
    now = root.clock() // 1000
    for age in (LONGEST_EXPORT_SECONDS - 60, LONGEST_EXPORT_SECONDS + EXPIRY_SECONDS + 60):
        name = ulid(now - int(age * 1000), bytes(10))
        applied.write(f"graphs/knowledge.omni/__staging/exporting/{name}.json", "{")
    assert len(list_exports(root)) == 1
    with og.open(applied.graph()) as graph:
        graph.cleanup(keep=1)
    assert len(marks_of(applied)) == 1
