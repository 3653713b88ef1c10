"""Optimizing for the crash matrix: a text index takes in new texts, which Lance commits by itself."""

from __future__ import annotations

from unittest.mock import patch

from omnigraph import failpoints
from omnigraph.engine.branches.manage import create_branch
from omnigraph.engine.graph.open_graph import OpenGraph
from omnigraph.engine.maintenance.ensure_indexes import ensure_indices
from omnigraph.engine.maintenance.optimize import optimize
from omnigraph.engine.schema_apply.apply import SchemaRequest, apply_schema
from omnigraph.engine.upkeep import after_write as tidy
from omnigraph.engine.upkeep import index_catch_up as reach
from omnigraph.engine.upkeep.declared_indexes import IndexKind
from omnigraph.engine.upkeep.index_catch_up import SMALL
from omnigraph.engine.write.transaction import Author
from omnigraph.lang.source import Source
from tests.engine.crash.steps import BRANCH, Step, Write, left_at, recovery
from tests.engine.crash.world import SCHEMA, change

WITH_INDEX = SCHEMA.replace("title: String?", "title: String? @index")
_TEAMS = "  ".join(f'insert Team {{ name: "t{number}", title: "old words" }}' for number in range(12))


def _optimizes(branch: str = "main") -> Step:
    def step(graph: OpenGraph) -> object:
        # What makes a table large is set to what a test can write.
        with patch.dict(SMALL, {IndexKind.TEXT: 4}):
            return optimize(graph, Author(branch))

    return step


def _updates(graph: OpenGraph) -> object:
    """A change after which upkeep completes the index, as it does in a large table."""
    with (
        patch.dict(SMALL, {IndexKind.TEXT: 4}),
        patch.multiple(reach, EXTEND_TEXTS=1, TEXT_ROWS=4),
        patch.object(tidy, "MIN_ROWS_TO_CHECK", 1),
    ):
        return change(graph, 'insert Team { name: "later", title: "new words" }')


def _index_text(graph: OpenGraph) -> None:
    apply_schema(graph, SchemaRequest(Source(WITH_INDEX)))
    change(graph, _TEAMS)
    ensure_indices(graph, Author("main"))


def _lagging(graph: OpenGraph, branch: str = "main") -> None:
    """A text index that lacks a new text, and still knows what another one was."""
    change(graph, 'update Team set { title: "new words" } where name = "t3"', branch)
    change(graph, 'insert Team { name: "late", title: "new words" }', branch)


def _outdate_index(graph: OpenGraph) -> None:
    _index_text(graph)
    _lagging(graph)


def _outdated_on_a_branch(graph: OpenGraph) -> None:
    """The same where the index is the branch's own."""
    _index_text(graph)
    create_branch(graph, BRANCH)
    change(graph, 'insert Team { name: "own" }', BRANCH)
    optimize(graph, Author(BRANCH))
    _lagging(graph, BRANCH)


COMMITTED = failpoints.MUTATION_POST_TABLE_COMMIT
OPTIMIZED = failpoints.OPTIMIZE_POST_PHASE_B_PRE_MANIFEST_COMMIT

TEXT_INDEXES: dict[str, Write] = {
    "optimize-texts": Write(_optimizes(), _outdate_index),
    "completing-texts": Write(_updates, _outdate_index),
    "optimize-texts-branch": Write(_optimizes(BRANCH), _outdated_on_a_branch, BRANCH),
    "recover-optimize-texts": Write(
        recovery, left_at(COMMITTED, _optimizes(), _outdate_index), recovers=True
    ),
    "recover-optimize-texts-forward": Write(
        recovery, left_at(OPTIMIZED, _optimizes(), _outdate_index), recovers=True
    ),
}
