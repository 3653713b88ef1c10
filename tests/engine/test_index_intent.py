"""Which index a column is to have."""

from __future__ import annotations

import pytest

from omnigraph.engine.index_intent import Kind, Wish, index_kind, missing, wishes
from omnigraph.lang.schema import compile_schema
from omnigraph.lang.types import Scalar, Type
from omnigraph.storage.indexes import IndexCoverage

KINDS = {
    "enum(low, high)": Kind.SCALAR,
    "DateTime": Kind.SCALAR,
    "Date": Kind.SCALAR,
    "I32": Kind.SCALAR,
    "I64": Kind.SCALAR,
    "U32": Kind.SCALAR,
    "U64": Kind.SCALAR,
    "F32": Kind.SCALAR,
    "F64": Kind.SCALAR,
    "Bool": Kind.SCALAR,
    "String": Kind.TEXT,
    "Vector(3)": Kind.VECTOR,
}


def wished(schema: str, key: str) -> dict[str, Kind]:
    return {wish.column: wish.kind for wish in wishes(compile_schema(schema), key)}


@pytest.mark.parametrize(("declared", "kind"), KINDS.items())
def test_a_declared_index_is_of_the_kind_its_type_needs(declared: str, kind: Kind) -> None:
    assert wished(f"node A {{ p: {declared} @index }}", "node:A") == {"id": Kind.SCALAR, "p": kind}
    assert wished(f"node A {{ p: {declared} }}", "node:A") == {"id": Kind.SCALAR}


def test_ids_and_ends_are_always_indexed() -> None:
    schema = "node A { name: String @key }\nedge Knows: A -> A { since: Date @index }"
    assert wished(schema, "node:A") == {"id": Kind.SCALAR}, "a key of text is the id"
    assert wished(schema, "edge:Knows") == dict.fromkeys(("id", "src", "dst", "since"), Kind.SCALAR)


def test_a_key_that_is_no_text_is_indexed_by_its_own_values() -> None:
    assert wished("node A { number: I64 @key }", "node:A") == {"id": Kind.SCALAR, "number": Kind.SCALAR}


def test_an_index_over_several_columns_is_not_built() -> None:
    assert wished("node A { a: I32  b: I32\n@index(a, b) }", "node:A") == {"id": Kind.SCALAR}


@pytest.mark.parametrize("declared", [Type(Scalar.I32, is_list=True), Type(Scalar.BLOB)])
def test_lists_and_blobs_have_no_index(declared: Type) -> None:
    assert index_kind(declared) is None


def test_an_index_that_somebody_else_named_is_not_missing() -> None:
    asked = (Wish("a", Kind.SCALAR), Wish("b", Kind.TEXT), Wish("c", Kind.VECTOR))
    stored = {
        name: IndexCoverage(name, (column,), kind, 1, 1, 1)
        for name, column, kind in [("x", "a", "BTree"), ("y", "b", "BTree"), ("z", "c", "IVF_PQ")]
    }
    assert missing(asked, stored) == (Wish("b", Kind.TEXT),)


def test_more_vectors_get_more_partitions() -> None:
    parts = [Wish("v", Kind.VECTOR).spec(count).options["num_partitions"] for count in (1, 10_000, 1_000_000)]
    assert parts == [1, 2, 244]
