"""The stored form of an accepted schema."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from omnigraph.errors import CorruptGraph
from omnigraph.lang.schema import AcceptedSchema, compile_schema, first_identities
from omnigraph.lang.schema.ir import from_json, ir_hash, to_json

TEXT = """
interface I { t: String? @index }
node P @description("people") implements I {
  k: String @key  n: I32?  v: Vector(3)? @embed(k, model="m")  e: enum(b, a) @owner("x", since=3)
  @unique(n, e)  @range(n, -1.5..)  @check(k, "^a")
}
edge E: P -> P @card(0..2) { w: F64? @unique(src, dst) }
"""


def accepted(text: str = TEXT) -> AcceptedSchema:
    catalog = compile_schema(text)
    return AcceptedSchema(catalog, first_identities(catalog))


def test_the_stored_form_is_sorted_and_numbered() -> None:
    found = to_json(accepted("node B { z: I32 a: I32 } node A { } edge E: A -> B @card(1..)"))
    assert found["ir_version"] == 1
    assert [each["name"] for each in found["nodes"]] == ["A", "B"]
    assert [each["type_id"] for each in found["nodes"]] == [1, 2]
    assert [(each["name"], each["prop_id"]) for each in found["nodes"][1]["properties"]] == [
        ("z", 2),
        ("a", 1),
    ]
    assert (found["edges"][0]["from"], found["edges"][0]["to"]) == ("A", "B")
    assert found["edges"][0]["cardinality"] == {"min": 1, "max": None}
    assert (found["next_type_id"], found["next_prop_id"]) == (4, 3)


def test_it_reads_back_what_was_written() -> None:
    schema = accepted()
    assert from_json(to_json(schema)) == schema


def test_rename_hints_are_not_stored() -> None:
    hinted = accepted('node P @rename_from("Q") { a: I32 @rename_from("b") }')
    assert to_json(hinted) == to_json(accepted("node P { a: I32 }"))


def test_the_hash_depends_on_the_content_only() -> None:
    stored = to_json(accepted())
    assert ir_hash(stored) == ir_hash(dict(reversed(stored.items())))
    assert ir_hash(stored).startswith("sha256:")
    assert len(ir_hash(stored)) == len("sha256:") + 64
    assert ir_hash(stored) != ir_hash(to_json(accepted(TEXT.replace("0..2", "0..3"))))


def change(path: list[Any], value: object) -> Any:
    stored = copy.deepcopy(to_json(accepted()))
    target = stored
    for key in path[:-1]:
        target = target[key]
    target[path[-1]] = value
    return stored


@pytest.mark.parametrize(
    ("path", "value", "reason"),
    [
        (["ir_version"], 2, "ir_version is 2"),
        (["ir_version"], True, "ir_version of the schema is not a whole number"),
        (["nodes"], {}, "nodes of the schema is not an array"),
        (["nodes", 0], None, "an entry of nodes is not an object"),
        (["nodes", 0, "name"], 5, "name of an entry of nodes is not a string"),
        (["nodes", 0, "type_id"], 1, "a type_id is used twice"),
        (["nodes", 0, "type_id"], 0, "a type_id is not below the next one to give"),
        (["next_prop_id"], 2, "a prop_id is not below the next one to give"),
        (["nodes", 0, "properties", 1, "name"], "k", "property P.k is there twice"),
        (["nodes", 0, "properties", 1, "prop_id"], -1, "prop_id of property P.n is not a whole number"),
        (
            ["nodes", 0, "properties", 0, "type", "scalar"],
            "Int",
            "scalar of property k of node P is not known",
        ),
        (
            ["nodes", 0, "properties", 0, "type", "enum_values"],
            [],
            "type of property k of node P is not possible",
        ),
        (["nodes", 0, "properties", 2, "type", "scalar"], {"Vector": 0}, "is not possible"),
        (["nodes", 0, "properties", 2, "embed", "source"], "zz", "unknown property 'zz'"),
        (
            ["nodes", 0, "properties", 0, "inherited"],
            0,
            "inherited of property k of node P is not true or false",
        ),
        (["nodes", 0, "properties", 3, "annotations", 0, "arguments"], [["a"]], "are not pairs of strings"),
        (["nodes", 0, "implements"], ["J"], "node P implements unknown interface 'J'"),
        (["nodes", 0, "constraints"], [{"Key": ["k"]}, {"Key": ["n"]}], "node P has more than one key"),
        (["nodes", 0, "constraints"], [{"Key": []}], "a constraint of node P names no column"),
        (["nodes", 0, "constraints"], [{"Unique": ["zz"]}], "unknown property 'zz'"),
        (["nodes", 0, "constraints"], [{"Nope": ["k"]}], "a constraint of node P is not known"),
        (
            ["nodes", 0, "constraints"],
            [{"Range": {"column": "n", "min": "0", "max": None}}],
            "is not a number",
        ),
        (["edges", 0, "to"], "Q", "edge E references unknown type 'Q'"),
        (["edges", 0, "constraints"], [{"Key": ["w"]}], "edge E has a constraint only nodes can have"),
        (["edges", 0, "cardinality", "max"], "2", "max of edge E is not a whole number"),
    ],
)
def test_a_damaged_form_says_what_is_wrong(path: list[Any], value: object, reason: str) -> None:
    with pytest.raises(CorruptGraph) as caught:
        from_json(change(path, value))
    assert caught.value.message.startswith("invalid accepted SchemaIR: ")
    assert reason in caught.value.message


@pytest.mark.parametrize(
    "key", ["ir_version", "interfaces", "nodes", "edges", "next_type_id", "next_prop_id"]
)
def test_a_missing_part_is_named(key: str) -> None:
    stored = to_json(accepted())
    del stored[key]
    with pytest.raises(CorruptGraph, match=f"invalid accepted SchemaIR: the schema has no {key}"):
        from_json(stored)


@pytest.mark.parametrize("value", [None, [], "x", 5])
def test_something_else_is_refused(value: object) -> None:
    with pytest.raises(CorruptGraph, match="the schema is not an object"):
        from_json(value)
