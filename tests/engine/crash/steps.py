"""What writes of the crash matrix are made of: the graph they start from, and where they are left."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from omnigraph import failpoints
from omnigraph.engine.branches.manage import create_branch
from omnigraph.engine.constraints.duplicates import Mode
from omnigraph.engine.graph.open_graph import OpenGraph
from omnigraph.engine.lifecycle.open import open_graph
from omnigraph.errors import RecoveryRequired
from tests.engine.crash.world import change, load_rows, pending

BRANCH = "draft"

Step = Callable[[OpenGraph], object]


@dataclass(frozen=True, slots=True)
class Write:
    """A write, the graph it starts from, and where it is."""

    run: Step
    prepare: Step = lambda graph: None
    branch: str = "main"
    recovers: bool = False
    """It is a recovery: `prepare` leaves an interrupted write, and `run` deals with it."""
    again: bool = False
    """Whether it may be asked for once more, and then does what is left to do."""
    halfway: Step | None = None
    """The first part of a write that is two: the second may fail, and then the first stands by itself."""
    begins: Step | None = None
    """How it makes its branch first, which goes again when the rest fails, unless the end is open."""
    requires: Step | None = None
    """Fails when something that the write owes is still to be done."""
    restores: bool = False
    """It restores older content, and so removes what others committed before it began."""


def make_branch(graph: OpenGraph) -> None:
    """A branch on which nothing happened yet."""
    create_branch(graph, BRANCH)


def touch_branch(graph: OpenGraph) -> None:
    """A branch with tables of its own."""
    create_branch(graph, BRANCH)
    change(graph, 'insert Person { name: "fay" }  insert Knows { from: "fay", to: "ada" }', BRANCH)


def interrupt_at(point: str, text: str, branch: str = "main", before: Step = lambda graph: None) -> Step:
    """A step that leaves the record of a mutation that came as far as a failpoint."""
    return left_at(point, changes(text, branch), before)


def left_at(point: str, run: Step, before: Step = lambda graph: None) -> Step:
    """A step that leaves the record of a write that came as far as a failpoint."""

    def step(graph: OpenGraph) -> None:
        before(graph)
        with failpoints.arm(point, failpoints.error(point)):
            try:
                run(graph)
            except RecoveryRequired:
                return
        raise AssertionError(f"the write did not come to '{point}'")

    return step


def changes(text: str, branch: str = "main") -> Step:
    """A step that is a mutation."""
    return lambda graph: change(graph, text, branch)


def loads(mode: Mode, branch: str = "main") -> Step:
    """A step that is a load."""
    return lambda graph: load_rows(graph, rows_to_load(mode), mode, branch)


def recovery(graph: OpenGraph) -> None:
    """Deal with what is left, as opening a graph does; raise what a branch that has to wait raises."""
    open_graph(graph.root)
    for operation in pending(graph):
        raise RecoveryRequired(operation, "it waits for the next write to its branch")


def rows_to_load(mode: Mode) -> tuple[dict[str, Any], ...]:
    """Rows of two tables, or of three."""
    if mode is Mode.PATCH:
        return (
            {"type": "Person", "data": {"name": "bo", "age": 21}},
            {"edge": "Knows", "data": {"id": "k1", "since": 2020}},
        )
    rows: tuple[dict[str, Any], ...] = (
        {"type": "Person", "data": {"name": "bo" if mode is not Mode.APPEND else "gil", "age": 21}},
        {"type": "Person", "data": {"name": "hal"}},
        {"edge": "Knows", "from": "hal", "to": "hal", "data": {"id": "k9"}},
    )
    if mode is not Mode.OVERWRITE:
        return rows
    # The persons whom other rows need stay.
    return (
        *rows,
        {"type": "Person", "data": {"name": "ada"}},
        {"type": "Team", "data": {"name": "core", "title": "Again"}},
    )
