"""Writes for the crash matrix that meet what is rare: dead upkeep, index files that are gone, old records."""

from __future__ import annotations

import json
import os
from unittest.mock import patch

from omnigraph import failpoints
from omnigraph.engine.commit.recovery import sidecar
from omnigraph.engine.graph.open_graph import OpenGraph
from omnigraph.engine.maintenance.ensure_indexes import ensure_indices
from omnigraph.engine.maintenance.optimize import optimize
from omnigraph.engine.schema_apply.apply import SchemaRequest, apply_schema
from omnigraph.engine.upkeep import after_write as tidy
from omnigraph.engine.upkeep import index_catch_up as reach
from omnigraph.engine.upkeep import index_upkeep
from omnigraph.engine.upkeep.table_rewrite import MIN_FRAGMENTS
from omnigraph.engine.write.transaction import Author
from omnigraph.errors import InternalError
from omnigraph.lang.source import Source
from tests.engine.crash.steps import Step, Write, changes, interrupt_at, recovery
from tests.engine.crash.world import PERSON, SCHEMA, change

ONE = 'insert Person { name: "eve" }'
TWO = 'insert Person { name: "eve" }  insert Knows { from: "eve", to: "ada", since: 7 }'


def _left_by_upkeep(graph: OpenGraph) -> None:
    """A table that upkeep moved, without publishing it on its branch."""
    for number in range(MIN_FRAGMENTS - 1):
        change(graph, f'insert Person {{ name: "p{number}" }}')
    before = graph.load("main").state.entries()[PERSON]
    with patch.object(tidy, "repin", side_effect=InternalError("upkeep died")):
        change(graph, 'insert Person { name: "last" }')
    tip = graph.root.tables.tip(graph.root.layout.table(before.path))
    assert tip.version > graph.load("main").state.entries()[PERSON].version


def _without_index_files(graph: OpenGraph) -> None:
    """Rows in several fragments, and an index of which nothing is left but its name."""
    ensure_indices(graph, Author("main"))
    for number in range(3):
        change(graph, f'insert Person {{ name: "p{number}" }}')
    entry = graph.load("main").state.entries()[PERSON]
    graph.root.objects.delete_prefix(graph.root.layout.table(entry.path) / "_indices")


def _extends(text: str, limit: int = 1_000) -> Step:
    """A change whose rows are worth a segment of their own, as those of a large load are.

    Above the limit segments are built once the branch's lock is free.
    """

    def step(graph: OpenGraph) -> object:
        with (
            patch.object(reach, "EXTEND_ROWS", 1),
            patch.object(tidy, "MIN_ROWS_TO_CHECK", 1),
            patch.dict(os.environ, {index_upkeep.SETTING: str(limit)}),
        ):
            return change(graph, text)

    return step


def _rewrites(limit: int) -> Step:
    """A change of the schema that rewrites a table under indexes, which come back."""

    def step(graph: OpenGraph) -> object:
        with patch.dict(os.environ, {index_upkeep.SETTING: str(limit)}):
            wider = SCHEMA.replace("node Person {", "node Person {\n    more: I64?\n")
            return apply_schema(graph, SchemaRequest(Source(wider)))

    return step


def _publish_and_keep_record(graph: OpenGraph) -> None:
    """A write that was done, and whose record stayed."""
    with failpoints.arm(NOT_REMOVED, failpoints.error(NOT_REMOVED)):
        change(graph, TWO)


def _record_as_before(left: Step) -> Step:
    """A write that left a record, and that as earlier releases wrote it."""

    def step(graph: OpenGraph) -> None:
        left(graph)
        (operation,) = sidecar.operations(graph.root)
        at = sidecar.place(graph.root, operation)
        value = json.loads(graph.root.objects.read_text(at))
        kept = ("operation_id", "started_at", "branch", "actor_id", "writer_kind")
        pins = ("table_key", "table_path", "expected_version", "post_commit_pin", "table_branch")
        old = {
            "schema_version": 2,
            **{name: value.get(name) for name in kept},
            "tables": [{name: pin[name] for name in pins if name in pin} for pin in value["tables"]],
        }
        graph.root.objects.write_text(at, json.dumps(old))

    return step


NOT_REMOVED = failpoints.RECOVERY_SIDECAR_DELETE
COMMITTED = failpoints.MUTATION_POST_TABLE_COMMIT
CONFIRMED = failpoints.MUTATION_POST_FINALIZE_PRE_PUBLISHER


def _with_indexes(graph: OpenGraph) -> None:
    ensure_indices(graph, Author("main"))


LEFTOVERS: dict[str, Write] = {
    "settling-upkeep": Write(changes(TWO), _left_by_upkeep),
    "repairing-indexes": Write(lambda graph: optimize(graph, Author("main")), _without_index_files),
    "repairing-by-building": Write(lambda graph: ensure_indices(graph, Author("main")), _without_index_files),
    "extending-indexes": Write(_extends(ONE), _with_indexes),
    "extending-indexes-later": Write(_extends(ONE, limit=0), _with_indexes),
    "schema-apply-indexed": Write(_rewrites(1_000), _with_indexes, again=True),
    "schema-apply-indexed-later": Write(_rewrites(0), _with_indexes, again=True),
    "recover-published": Write(recovery, _publish_and_keep_record, recovers=True),
    "recover-old-record-back": Write(
        recovery, _record_as_before(interrupt_at(COMMITTED, TWO)), recovers=True
    ),
    "recover-old-record-forward": Write(
        recovery, _record_as_before(interrupt_at(CONFIRMED, TWO)), recovers=True
    ),
    "recover-old-record-published": Write(
        recovery, _record_as_before(_publish_and_keep_record), recovers=True
    ),
}
