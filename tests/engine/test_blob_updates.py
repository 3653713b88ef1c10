"""Updating other properties of a node keeps the bytes of its blobs."""

from __future__ import annotations

import base64
from pathlib import Path

from omnigraph.engine.graph.open_graph import AtBranch, OpenGraph
from omnigraph.engine.graph.root import Root
from omnigraph.engine.graph.snapshot_tables import open_table
from omnigraph.engine.lifecycle.create import create_graph
from omnigraph.engine.write.mutate import MutationResult, mutate
from omnigraph.engine.write.transaction import Author
from omnigraph.lang.query.compile import CompiledMutation, compile_query
from omnigraph.lang.query.parameters import decode_parameters
from omnigraph.storage.location import Location

SCHEMA = "node Doc { k: String @key  n: I32?  body: Blob? }"


def change_with(
    graph: OpenGraph, text: str, parameters: str = "", given: dict[str, str] | None = None
) -> MutationResult:
    compiled = compile_query(f"query q({parameters}) {{ {text} }}", graph.schema().catalog)
    assert isinstance(compiled, CompiledMutation)
    return mutate(graph, compiled, decode_parameters(compiled.parameters, given or {}), Author("main"))


def test_bytes_empty_and_null_survive_an_update(tmp_path: Path) -> None:
    root = Root.at(Location.parse(tmp_path / "g"))
    create_graph(root, SCHEMA)
    graph = OpenGraph.open(root)
    for key, data in (("full", b"\x00hello"), ("empty", b"")):
        body = f"base64:{base64.b64encode(data).decode()}"
        change_with(graph, f'insert Doc {{ k: "{key}", n: 1, body: $b }}', "$b: Blob", {"b": body})
    change_with(graph, 'insert Doc { k: "none", n: 1 }')

    assert change_with(graph, "update Doc set { n: 2 } where n = 1").affected_nodes == 3

    rows = open_table(graph, graph.snapshot(AtBranch()), "node:Doc").scan(["k", "n", "body"], blob_bytes=True)
    assert sorted(rows.to_pylist(), key=lambda row: row["k"]) == [
        {"k": "empty", "n": 2, "body": b""},
        {"k": "full", "n": 2, "body": b"\x00hello"},
        {"k": "none", "n": 2, "body": None},
    ]
