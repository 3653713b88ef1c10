"""What somebody meets who tries things out: hints in errors, and results that show themselves in a line."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import omnigraph as og
from omnigraph.errors import OmnigraphError

SCHEMA = """
node Person { handle: String @key  name: String }
node Team { slug: String @key }
edge MemberOf: Person -> Team
"""
Call = Callable[[og.Graph], Any]


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> Iterator[og.Graph]:
    with og.init(tmp_path_factory.mktemp("first") / "g.omni", schema=SCHEMA) as made:
        yield made


def _insert(kind: str, **values: Any) -> Call:
    def insert(graph: og.Graph) -> None:
        with graph.write() as tx:
            tx.insert(kind, **values)

    return insert


WRONG: dict[str, tuple[Call, str, str]] = {
    "sql": (
        lambda graph: graph.query("SELECT * FROM Person"),
        "expected `query`, found `SELECT`",
        "a query is written as `query name() { match { ... } return { ... } }`",
    ),
    "a path as a text": (
        lambda graph: graph.query("team.gq"),
        "'team.gq' is not a query",
        "to read a file, write `Path('team.gq')`",
    ),
    "no parameter": (
        lambda graph: graph.query(
            "query q($h: String) { match { $p: Person { handle: $h } } return { $p } }"
        ),
        "parameter 'h' not provided",
        "give it: -p h=VALUE (`params`)",
    ),
    "type in a query": (
        lambda graph: graph.query("query q() { match { $p: Persn } return { $p } }"),
        "unknown node type `Persn`",
        "did you mean `Person`?",
    ),
    "edge in a query": (
        lambda graph: graph.query("query q() { match { $p: Person  $p member $t } return { $p } }"),
        "unknown edge type `member`",
        "did you mean `memberOf`?",
    ),
    "type in a mutation": (
        lambda graph: graph.mutate('query q() { insert Tem { slug: "x" } }'),
        "unknown node/edge type `Tem`",
        "did you mean `Team`?",
    ),
    "property in a mutation": (
        lambda graph: graph.mutate('query q() { update Person set { nme: "x" } where handle = "x" }'),
        "type `Person` has no property `nme`",
        "it has: handle, name",
    ),
    "type in a write": (
        _insert("Persn", handle="x"),
        "unknown node type `Persn`",
        "did you mean `Person`?",
    ),
    "property in a write, and not the one it was to be": (
        _insert("Person", handle="x", nme="X"),
        "type `Person` has no property `nme`",
        "it has: handle, name",
    ),
}


@pytest.mark.parametrize("mistake", WRONG)
def test_a_mistake_is_reported_with_what_was_meant(graph: og.Graph, mistake: str) -> None:
    call, message, remedy = WRONG[mistake]
    with pytest.raises(OmnigraphError) as failed:
        call(graph)
    assert message in failed.value.message
    assert failed.value.remedy == remedy


def test_results_show_themselves_in_a_line(graph: og.Graph, tmp_path: Path) -> None:
    done = graph.mutate('query q() { insert Person { handle: "ada", name: "Ada" } }')
    assert done.commit is not None
    assert repr(done) == f"<MutationResult 1 node, 0 edges, commit {done.commit.id}>"
    assert repr(graph.schema) == "<Catalog of Person, Team, MemberOf>"
    exported = graph.export(tmp_path / "out.ndjson")
    assert repr(exported) == f"<ExportResult 1 row of 3 types to '{tmp_path}/out.ndjson' as ndjson>"
    optimized = graph.optimize()
    commit = "no commit" if optimized.commit is None else f"commit {optimized.commit.id}"
    assert repr(optimized).startswith("<OptimizeResult of 'main': ")
    assert repr(optimized).endswith(f" of 3 tables moved, {commit}>")
    cleaned = graph.cleanup(keep=1, dry_run=True)
    assert (
        repr(cleaned)
        == f"<CleanupResult {cleaned.versions_removed} versions, {cleaned.bytes_removed} bytes, a dry run>"
    )
