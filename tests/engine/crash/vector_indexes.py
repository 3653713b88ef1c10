"""Indexes of vectors for the crash matrix: built, extended by what came later, and rebuilt."""

from __future__ import annotations

from unittest.mock import patch

from omnigraph import failpoints
from omnigraph.engine.branches.manage import create_branch
from omnigraph.engine.graph.open_graph import OpenGraph
from omnigraph.engine.maintenance import ensure_indexes as indexing
from omnigraph.engine.maintenance.ensure_indexes import ensure_indices
from omnigraph.engine.maintenance.optimize import optimize
from omnigraph.engine.schema_apply.apply import SchemaRequest, apply_schema
from omnigraph.engine.upkeep.declared_indexes import IndexKind
from omnigraph.engine.upkeep.index_catch_up import SMALL
from omnigraph.engine.write.transaction import Author
from omnigraph.lang.source import Source
from tests.engine.crash.steps import BRANCH, Step, Write, left_at, recovery
from tests.engine.crash.world import SCHEMA, change

WITH_VECTORS = f"{SCHEMA}\nnode Doc {{ name: String @key  about: Vector(4)? @index }}"


def _few_are_enough(step: Step) -> Step:
    """A step in which as many vectors as a test can write are worth an index, and a segment of it."""

    def run(graph: OpenGraph) -> object:
        with patch.object(indexing, "VECTOR_ROWS", 4), patch.dict(SMALL, {IndexKind.VECTOR: 4}):
            return step(graph)

    return run


def _builds(branch: str = "main") -> Step:
    return _few_are_enough(lambda graph: ensure_indices(graph, Author(branch)))


def _optimizes(branch: str = "main") -> Step:
    return _few_are_enough(lambda graph: optimize(graph, Author(branch)))


def _docs(graph: OpenGraph, first: int, last: int, branch: str = "main") -> None:
    rows = (
        f'insert Doc {{ name: "d{number}", about: [{number}.0, 1.0, 0.5, 2.0] }}'
        for number in range(first, last)
    )
    change(graph, "  ".join(rows), branch)


def _with_vectors(graph: OpenGraph) -> None:
    apply_schema(graph, SchemaRequest(Source(WITH_VECTORS)))
    _docs(graph, 0, 12)
    change(graph, 'insert Doc { name: "without" }')


def _branch_off(graph: OpenGraph) -> None:
    """A branch without a table of its own."""
    _with_vectors(graph)
    create_branch(graph, BRANCH)


def _lags(graph: OpenGraph, branch: str = "main") -> None:
    """Of the vectors the index knows one is another now, and one is gone; others are new."""
    change(graph, 'update Doc set { about: [9.0, 9.0, 9.0, 9.0] } where name = "d3"', branch)
    change(graph, 'delete Doc where name = "d5"', branch)
    _docs(graph, 12, 14, branch)


def _lagging(graph: OpenGraph) -> None:
    _with_vectors(graph)
    _builds()(graph)
    _lags(graph)


def _lagging_on_a_branch(graph: OpenGraph) -> None:
    """The same where the index is main's."""
    _with_vectors(graph)
    _builds()(graph)
    create_branch(graph, BRANCH)
    _lags(graph, BRANCH)


def _in_parts(graph: OpenGraph) -> None:
    """An index in several segments, and so much outside of it that some of them go together."""
    _lagging(graph)
    _optimizes()(graph)
    _docs(graph, 14, 17)
    _optimizes()(graph)
    _docs(graph, 17, 23)


COMMITTED = failpoints.MUTATION_POST_TABLE_COMMIT
STAGED = failpoints.ENSURE_INDICES_POST_STAGE_PRE_COMMIT_BTREE
REINDEXING = failpoints.OPTIMIZE_INJECT_REINDEX_CONFLICT
OPTIMIZED = failpoints.OPTIMIZE_POST_PHASE_B_PRE_MANIFEST_COMMIT

VECTOR_INDEXES: dict[str, Write] = {
    "vectors-build": Write(_builds(), _with_vectors),
    "vectors-build-first-touch": Write(_builds(BRANCH), _branch_off, BRANCH),
    "vectors-optimize": Write(_optimizes(), _lagging),
    "vectors-optimize-parts": Write(_optimizes(), _in_parts),
    "vectors-optimize-branch": Write(_optimizes(BRANCH), _lagging_on_a_branch, BRANCH),
    "recover-vectors-build": Write(recovery, left_at(COMMITTED, _builds(), _with_vectors), recovers=True),
    "recover-vectors-staged": Write(recovery, left_at(STAGED, _builds(), _with_vectors), recovers=True),
    "recover-vectors-optimize": Write(recovery, left_at(REINDEXING, _optimizes(), _in_parts), recovers=True),
    "recover-vectors-optimize-forward": Write(
        recovery, left_at(OPTIMIZED, _optimizes(), _in_parts), recovers=True
    ),
}
