"""Writes for the crash matrix that make their branch first, and take it back when the rest fails."""

from __future__ import annotations

import pyarrow as pa

from omnigraph import failpoints
from omnigraph.engine.branches.manage import create_branch
from omnigraph.engine.constraints.duplicates import Mode
from omnigraph.engine.graph.open_graph import OpenGraph
from omnigraph.errors import InternalError
from omnigraph.query.algorithms.algorithm_request import Destination
from omnigraph.query.algorithms.solver import write_values
from tests.engine.crash.steps import BRANCH, Step, Write, rows_to_load
from tests.engine.crash.world import ACTOR, load_rows

_STAGED = failpoints.MUTATION_POST_STAGE_PRE_EFFECT_GATE


def _loads(mode: Mode, rows: Mode | None = None) -> Step:
    return lambda graph: load_rows(graph, rows_to_load(rows or mode), mode, BRANCH, from_="main")


def _fails_to_load(graph: OpenGraph) -> object:
    """A load that fails once its branch is there: what is disturbed is how it goes again."""
    with failpoints.arm(_STAGED, failpoints.error(_STAGED)):
        try:
            _loads(Mode.APPEND)(graph)
        except InternalError:
            return None
    raise AssertionError("the load did not fail")


def _writes_values(graph: OpenGraph) -> object:
    """What an algorithm found, as the property of a type."""
    values = pa.table({"type": ["Person"] * 3, "id": ["ada", "bo", "cy"], "value": [3, 2, 1]})
    return write_values(graph, values, Destination("Person", "age", BRANCH, "main", ACTOR), "local")


def _makes_the_branch(graph: OpenGraph) -> None:
    create_branch(graph, BRANCH)


NEW_BRANCHES: dict[str, Write] = {
    "onto-new-append": Write(_loads(Mode.APPEND), branch=BRANCH, begins=_makes_the_branch),
    # Rows that no other write touches, so that it may be loaded once more.
    "onto-new-merge": Write(
        _loads(Mode.MERGE, rows=Mode.APPEND), branch=BRANCH, begins=_makes_the_branch, again=True
    ),
    "onto-new-overwrite": Write(_loads(Mode.OVERWRITE), branch=BRANCH, begins=_makes_the_branch),
    "onto-new-taken-back": Write(
        _fails_to_load, branch=BRANCH, begins=_makes_the_branch, halfway=_makes_the_branch
    ),
    "onto-new-values": Write(_writes_values, branch=BRANCH, begins=_makes_the_branch),
}
