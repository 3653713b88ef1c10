"""Which index a column is to have."""

from __future__ import annotations

import pytest

from omnigraph.engine.upkeep.declared_indexes import (
    DeclaredIndex,
    IndexKind,
    declared_indexes,
    find_missing_indexes,
    index_kind,
)
from omnigraph.lang.schema import compile_schema
from omnigraph.lang.types import Scalar, ValueType
from omnigraph.storage.indexes import IndexCoverage

KINDS = {
    "enum(low, high)": IndexKind.SCALAR,
    "DateTime": IndexKind.SCALAR,
    "Date": IndexKind.SCALAR,
    "I32": IndexKind.SCALAR,
    "I64": IndexKind.SCALAR,
    "U32": IndexKind.SCALAR,
    "U64": IndexKind.SCALAR,
    "F32": IndexKind.SCALAR,
    "F64": IndexKind.SCALAR,
    "Bool": IndexKind.SCALAR,
    "String": IndexKind.TEXT,
    "Vector(3)": IndexKind.VECTOR,
}


def declared_kinds(schema: str, key: str) -> dict[str, IndexKind]:
    return {wish.column: wish.kind for wish in declared_indexes(compile_schema(schema), key)}


@pytest.mark.parametrize(("declared", "kind"), KINDS.items())
def test_a_declared_index_is_of_the_kind_its_type_needs(declared: str, kind: IndexKind) -> None:
    assert declared_kinds(f"node A {{ p: {declared} @index }}", "node:A") == {
        "id": IndexKind.SCALAR,
        "p": kind,
    }
    assert declared_kinds(f"node A {{ p: {declared} }}", "node:A") == {"id": IndexKind.SCALAR}


def test_ids_and_ends_are_always_indexed() -> None:
    schema = "node A { name: String @key }\nedge Knows: A -> A { since: Date @index }"
    assert declared_kinds(schema, "node:A") == {"id": IndexKind.SCALAR}, "a key of text is the id"
    assert declared_kinds(schema, "edge:Knows") == dict.fromkeys(
        ("id", "src", "dst", "since"), IndexKind.SCALAR
    )


def test_a_key_that_is_no_text_is_indexed_by_its_own_values() -> None:
    assert declared_kinds("node A { number: I64 @key }", "node:A") == {
        "id": IndexKind.SCALAR,
        "number": IndexKind.SCALAR,
    }


def test_an_index_over_several_columns_is_not_built() -> None:
    assert declared_kinds("node A { a: I32  b: I32\n@index(a, b) }", "node:A") == {"id": IndexKind.SCALAR}


@pytest.mark.parametrize("declared", [ValueType(Scalar.I32, is_list=True), ValueType(Scalar.BLOB)])
def test_lists_and_blobs_have_no_index(declared: ValueType) -> None:
    assert index_kind(declared) is None


def test_an_index_that_somebody_else_named_is_not_missing() -> None:
    asked = (
        DeclaredIndex("a", IndexKind.SCALAR),
        DeclaredIndex("b", IndexKind.TEXT),
        DeclaredIndex("c", IndexKind.VECTOR),
    )
    stored = {
        name: IndexCoverage(name, (column,), kind, 1, 1, 1)
        for name, column, kind in [("x", "a", "BTree"), ("y", "b", "BTree"), ("z", "c", "IVF_PQ")]
    }
    assert find_missing_indexes(asked, stored) == (DeclaredIndex("b", IndexKind.TEXT),)


def test_more_vectors_get_more_partitions() -> None:
    parts = [
        DeclaredIndex("v", IndexKind.VECTOR).spec(count).options["num_partitions"]
        for count in (1, 10_000, 1_000_000)
    ]
    assert parts == [1, 2, 244]
