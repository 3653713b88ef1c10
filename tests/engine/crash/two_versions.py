"""Writes for the crash matrix that replace rows of a large table, which takes two versions of it.

In a bucket a table is never large enough for that: there they are what they are elsewhere in the matrix.
"""

from __future__ import annotations

from unittest.mock import patch

from omnigraph import failpoints
from omnigraph.engine.constraints.duplicates import Mode
from omnigraph.engine.graph.open_graph import OpenGraph
from omnigraph.storage import upsert as upserting
from tests.engine.crash.merges import merges, part_branches
from tests.engine.crash.steps import (
    BRANCH,
    Step,
    Write,
    changes,
    left_at,
    loads,
    make_branch,
    recovery,
    touch_branch,
)


def in_two(step: Step) -> Step:
    """The same, and every table is large."""

    def run(graph: OpenGraph) -> object:
        with patch.object(upserting, "_LARGE", 1):
            return step(graph)

    return run


UPDATE = 'update Person set { age: 99 } where name = "bo"'
KEYED = 'insert Person { name: "bo", age: 98 }  insert Person { name: "eve" }  insert Team { name: "core" }'

BETWEEN = failpoints.MUTATION_BETWEEN_TABLE_VERSIONS
COMMITTED = failpoints.MUTATION_POST_TABLE_COMMIT
CONFIRMED = failpoints.MUTATION_POST_FINALIZE_PRE_PUBLISHER

TWO_VERSIONS: dict[str, Write] = {
    "in-two-update": Write(in_two(changes(UPDATE))),
    "in-two-keyed-insert": Write(in_two(changes(KEYED))),
    "in-two-load-merge": Write(in_two(loads(Mode.MERGE))),
    "in-two-merge": Write(in_two(merges()), part_branches, again=True),
    "in-two-first-touch": Write(in_two(changes(KEYED, BRANCH)), make_branch, BRANCH),
    "in-two-second-touch": Write(in_two(changes(KEYED, BRANCH)), touch_branch, BRANCH),
}
RECOVERED_TWO_VERSIONS: dict[str, Write] = {
    "recover-in-two-between": Write(recovery, left_at(BETWEEN, in_two(changes(KEYED))), recovers=True),
    "recover-in-two-first-touch": Write(
        recovery, left_at(BETWEEN, in_two(changes(KEYED, BRANCH)), make_branch), BRANCH, recovers=True
    ),
    "recover-in-two-back": Write(recovery, left_at(COMMITTED, in_two(changes(KEYED))), recovers=True),
    "recover-in-two-forward": Write(recovery, left_at(CONFIRMED, in_two(changes(KEYED))), recovers=True),
}
