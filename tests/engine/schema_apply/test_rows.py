"""Rows carried over to other columns: Blobs, vectors, many batches, and rebuilt indexes."""

from __future__ import annotations

import json
from base64 import b64encode
from pathlib import Path

import pyarrow as pa
import pytest

import omnigraph as og
from omnigraph.engine.graph.open_graph import AtBranch
from omnigraph.engine.graph.snapshot_tables import open_table
from omnigraph.engine.schema_apply import migration as carried
from omnigraph.engine.schema_apply.migration import Column, read_batches
from omnigraph.graph import Graph
from omnigraph.storage.blobs import read_blob_bytes
from omnigraph.storage.tables import Table

MANY = 20_000


def load(graph: Graph, folder: Path, records: list[dict[str, object]]) -> None:
    (folder / "rows.jsonl").write_text("".join(f"{json.dumps(record)}\n" for record in records))
    graph.load(folder / "rows.jsonl", mode="append")


def blobs(graph: Graph, type_name: str, column: str) -> dict[str, bytes | None]:
    opened = graph._opened
    table = open_table(opened, opened.snapshot(AtBranch()), f"node:{type_name}")
    found = table.scan(["id", column], blob_bytes=True)
    return dict(zip(found.column("id").to_pylist(), found.column(column).to_pylist(), strict=True))


BYTES = {"small": b"x", "empty": b"", "full": b"\x00\xff" * 500, "none": None, "last": b"y" * 700}


@pytest.fixture
def documents(tmp_path: Path) -> Graph:
    graph = og.init(tmp_path / "g.omni", schema="node Doc { k: String @key  body: Blob?  more: Blob? }")
    load(graph, tmp_path, [
        {"type": "Doc", "data": {"k": k, "body": None if it is None else f"base64:{b64encode(it).decode()}"}}
        for k, it in BYTES.items()
    ])  # fmt: skip
    return graph


def test_bytes_nothing_and_null_of_blobs_stay_apart(documents: Graph) -> None:
    documents.apply_schema("node Doc { k: String @key  body: Blob?  more: Blob?  n: I32? }")
    assert blobs(documents, "Doc", "body") == BYTES
    documents.apply_schema(
        'node Doc { k: String @key  text: Blob? @rename_from("body")  n: I32?  new: Blob? }'
    )
    assert blobs(documents, "Doc", "text") == BYTES
    assert blobs(documents, "Doc", "new") == dict.fromkeys(BYTES)
    documents.apply_schema(
        'node Paper @rename_from("Doc") { k: String @key  text: Blob?  n: I32?  new: Blob? }'
    )
    assert blobs(documents, "Paper", "text") == BYTES


def test_large_blobs_are_carried_a_few_at_a_time(documents: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(carried, "_BLOB_BYTES", 600)
    sizes: list[int] = []

    def fetched(table: Table, column: str, row_ids: pa.Array) -> pa.Array:
        sizes.append(len(row_ids))
        return read_blob_bytes(table, column, row_ids)

    monkeypatch.setattr(carried, "read_blob_bytes", fetched)
    documents.apply_schema("node Doc { k: String @key  body: Blob?  more: Blob?  n: I32? }")
    assert blobs(documents, "Doc", "body") == BYTES
    assert sizes == [2, 2, 2, 2, 1, 1]  # two columns, in three parts


def test_a_large_table_is_carried_batch_by_batch(tmp_path: Path) -> None:
    graph = og.init(tmp_path / "g.omni", schema="node P { k: I32 @key  a: I32?  v: Vector(2)? }")
    load(graph, tmp_path, [
        {"type": "P", "data": {"k": n, "a": n if n % 2 else None, "v": [n, 0.5] if n % 3 else None}}
        for n in range(MANY)
    ])  # fmt: skip
    ids = graph.snapshot().rows("P", columns=["id"]).column("id")
    graph.apply_schema(
        'node P { k: I64 @key  b: I64 @rename_from("a") @default("-1")  v: Vector(2)?  w: Vector(1)? }'
    )
    rows = graph.snapshot().rows("P")
    assert rows.column("id") == ids
    assert rows.column("b").to_pylist() == [n if n % 2 else -1 for n in range(MANY)]
    assert rows.column("v").to_pylist() == [[n, 0.5] if n % 3 else None for n in range(MANY)]
    assert rows.column("w").null_count == MANY
    opened = graph._opened
    table = open_table(opened, opened.snapshot(AtBranch()), "node:P")
    column = Column(pa.field("k", pa.int64(), nullable=False), "k")
    assert max(batch.num_rows for batch in read_batches(table, [column])) < MANY


def test_offences_in_many_batches_are_counted_and_the_first_are_reported(tmp_path: Path) -> None:
    graph = og.init(tmp_path / "g.omni", schema="node P { k: I32 @key  a: I32 }")
    load(graph, tmp_path, [{"type": "P", "data": {"k": n, "a": n % 100}} for n in range(MANY)])
    with pytest.raises(og.errors.SchemaDataViolation) as refused:
        graph.apply_schema("node P { k: I32 @key  a: I32 @unique  @range(a, 10..) }")
    (low, same) = refused.value.breaches
    assert (low.count, [example.id for example in low.examples]) == (MANY // 10, ["0", "1", "2", "3", "4"])
    assert (same.count, [example.id for example in same.examples]) == (
        MANY - 100,
        ["100", "101", "102", "103", "104"],
    )
    assert refused.value.data()["breaches"][0] == {
        "type_kind": "node",
        "type_name": "P",
        "constraint": "@range(a, 10..)",
        "count": MANY // 10,
        "examples": [
            {"id": str(n), "reason": f"@range violation on P.a: value {n} < min 10"} for n in range(5)
        ],
    }


def test_reads_are_right_without_the_indexes_a_rewrite_drops_and_optimize_builds_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OMNIGRAPH_AUTO_UPKEEP", "off")
    schema = "node P { k: String @key  a: I32 @index  t: String @index }"
    graph = og.init(tmp_path / "g.omni", schema=schema)
    load(graph, tmp_path, [
        {"type": "P", "data": {"k": str(n), "a": n, "t": f"word{n % 7}"}} for n in range(2000)
    ])  # fmt: skip
    graph.optimize()
    asked = [
        "query q() { match { $p: P { a: 1234 } } return { $p.k } }",
        'query q() { match { $p: P search($p.t, "word3") } return { count($p) as n } }',
        'query q() { match { $p: P { k: "77" } } return { $p.a } }',
    ]
    before = [graph.query(query).rows() for query in asked]
    graph.apply_schema(schema.replace("a: I32", "a: I64").replace("t: String", "x: Bool?  t: String"))
    assert [graph.query(query).rows() for query in asked] == before
    built = {table.key: sorted(table.indexes) for table in graph.optimize().tables}
    assert {"a", "id", "t"} <= set(built["node:P"])
    assert [graph.query(query).rows() for query in asked] == before


def test_a_new_index_is_a_wish_that_touches_no_table(tmp_path: Path) -> None:
    graph = og.init(tmp_path / "g.omni", schema="node P { k: String @key  a: I32? }")
    graph.mutate('query q() { insert P { k: "x", a: 1 } }')
    tables = graph.snapshot().tables
    done = graph.apply_schema('node P @description("d") { k: String @key  a: I32? @index }')
    assert done.commit is not None
    assert done.manifest_version == graph.snapshot().version
    assert graph.snapshot().tables == tables
    assert {one.key: one.indexes for one in graph.optimize().tables}["node:P"] != ()
