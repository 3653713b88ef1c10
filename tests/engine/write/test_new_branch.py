"""A branch that is made for a write goes with it, unless somebody else has begun to use it."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from omnigraph import failpoints
from omnigraph.engine.branches.manage import create_branch, delete_branch
from omnigraph.engine.graph.manifest import MAIN
from omnigraph.engine.graph.open_graph import AtBranch, OpenGraph
from omnigraph.engine.graph.snapshot_tables import open_table
from omnigraph.engine.write.new_branch import create_branch_for_write
from omnigraph.storage.location import Location
from tests.engine.graphs import PERSON, new_graph
from tests.engine.processes.people import run

NEW = "new"
BOB = 'insert Person { name: "bob" }'


class Refused(Exception):
    """The write that the branch was made for failed."""


@pytest.fixture
def graph(tmp_path: Path) -> OpenGraph:
    return new_graph(Location.parse(tmp_path / "graph"))


def refused_after(graph: OpenGraph, meanwhile: Callable[[], object]) -> None:
    """A write to a new branch that fails once something has happened there."""

    def write() -> None:
        with create_branch_for_write(graph, NEW, MAIN):
            meanwhile()
            raise Refused

    with pytest.raises(Refused):
        write()


def people(graph: OpenGraph) -> list[str]:
    rows = open_table(graph, graph.snapshot(AtBranch(NEW)), PERSON).scan()
    return sorted(rows.column("name").to_pylist())


def test_it_goes_with_a_write_that_is_refused(graph: OpenGraph) -> None:
    refused_after(graph, lambda: None)
    assert graph.branch_names() == [MAIN]


def test_it_stays_with_what_somebody_else_wrote(graph: OpenGraph) -> None:
    refused_after(graph, lambda: run(graph, BOB, NEW))
    assert people(graph) == ["bob"]


def test_it_stays_when_another_process_recreated_it(graph: OpenGraph) -> None:
    def recreate() -> None:
        delete_branch(graph, NEW)
        create_branch(graph, NEW)

    refused_after(graph, recreate)
    assert graph.branch_names() == [MAIN, NEW]


def test_it_stays_with_what_is_written_while_its_maker_waits_to_remove_it(graph: OpenGraph) -> None:
    """The other has the lock of the branch, and nothing to be seen yet."""
    gate = graph.root.locks._find_lock(NEW).gate
    has_the_lock = threading.Event()

    def wait_for_who_waits() -> None:
        has_the_lock.set()
        while not gate.waiting():
            os.sched_yield()

    def begin() -> None:
        other.start()
        assert has_the_lock.wait(60)

    other = threading.Thread(target=run, args=(graph, BOB, NEW))
    with failpoints.arm(failpoints.RECOVERY_SIDECAR_WRITE, wait_for_who_waits):
        refused_after(graph, begin)
        other.join()
    assert people(graph) == ["bob"]
