"""The compiled schema as a graph stores it, in the shape of the reference implementation."""

from __future__ import annotations

import json
from typing import Any

import pytest

from omnigraph.lang.schema.ir import compile_with_ir, has_same_meaning, hash_fnv1a32, ir_hash, render

TEXT = """
interface I { t: String? @index }
interface H { u: U64 @unique }
node P @zeta @description("people") @description2("x", b=2, a="1") implements I, H {
  k: String @key  n: I32?  v: Vector(3)? @embed(k, model="m")  e: enum(b, a) @owner("x", since=3)
  l: [DateTime]  z: Blob?  old: Bool @rename_from("older")
  @unique(n, e)  @range(n, -1.5..)  @range(n, 1..5)  @check(k, "^a\\"ä")  @index(n, e)  @index(k)
}
edge E: P -> P @card(0..2) { w: F64? @unique  @unique(src, dst) }
edge D: P -> P
"""


def compile_ir(text: str = TEXT) -> Any:
    return compile_with_ir(text)[1]


def test_members_come_in_the_order_of_the_reference() -> None:
    found = compile_ir()
    assert list(found) == ["ir_version", "interfaces", "nodes", "edges"]
    assert list(found["interfaces"][0]) == ["name", "type_id", "properties"]
    assert list(found["nodes"][0]) == [
        "name", "type_id", "annotations", "implements", "properties", "constraints",
    ]  # fmt: skip
    assert list(found["edges"][0]) == [
        "name", "type_id", "from_type", "to_type", "cardinality", "annotations", "properties", "constraints",
    ]  # fmt: skip
    assert list(found["nodes"][0]["properties"][0]) == ["name", "prop_id", "prop_type", "annotations"]


def test_everything_is_sorted_by_name() -> None:
    found = compile_ir()
    assert [each["name"] for each in found["interfaces"]] == ["H", "I"]
    assert [each["name"] for each in found["edges"]] == ["D", "E"]
    (node,) = found["nodes"]
    assert [each["name"] for each in node["properties"]] == ["e", "k", "l", "n", "old", "t", "u", "v", "z"]
    assert node["implements"] == ["H", "I"]
    assert node["annotations"] == [
        {"name": "description", "value": "people"},
        {"name": "description2", "value": "x", "kwargs": {"a": "1", "b": "2"}},
        {"name": "zeta", "value": None},
    ]


def test_constraints_stand_in_the_order_of_their_texts_and_keep_repetitions() -> None:
    (node,) = compile_ir()["nodes"]
    assert node["constraints"] == [
        {"Check": {"property": "k", "pattern": '^a"ä'}},
        {"Index": ["e", "n"]},
        {"Index": ["k"]},
        {"Index": ["t"]},
        {"Key": ["k"]},
        {"Range": {"property": "n", "min": {"Float": -1.5}, "max": None}},
        {"Range": {"property": "n", "min": {"Integer": 1}, "max": {"Integer": 5}}},
        {"Unique": ["e", "n"]},
        {"Unique": ["u"]},
    ]
    assert compile_ir()["edges"][1]["constraints"] == [{"Unique": ["dst", "src"]}, {"Unique": ["w"]}]


def test_properties_keep_their_annotations_and_inherited_ones_those_of_the_interface() -> None:
    (node,) = compile_ir()["nodes"]
    found = {each["name"]: each for each in node["properties"]}
    assert found["k"]["annotations"] == [{"name": "key", "value": None}]
    assert found["t"]["annotations"] == [{"name": "index", "value": None}]
    assert found["v"]["annotations"] == [{"name": "embed", "value": "k", "kwargs": {"model": "m"}}]
    assert found["old"]["annotations"] == [{"name": "rename_from", "value": "older"}]
    assert found["e"]["prop_type"] == {
        "scalar": "String", "nullable": False, "list": False, "enum_values": ["a", "b"],
    }  # fmt: skip
    assert found["v"]["prop_type"]["scalar"] == {"Vector": 3}
    assert (found["l"]["prop_type"]["scalar"], found["l"]["prop_type"]["list"]) == ("DateTime", True)


def test_numbers_are_hashes_of_names() -> None:
    assert hash_fnv1a32("node:Person") == 3227219152
    assert hash_fnv1a32("interface:Named:name") == 1864229240
    (node,) = compile_ir("node Person { age: I32? }")["nodes"]
    assert (node["type_id"], node["properties"][0]["prop_id"]) == (3227219152, 3446138241)


def test_the_compact_form_is_that_of_the_reference() -> None:
    text = (
        'node Team {\n  slug: String @key\n  title: String\n  @check(title, "^[a-z]+$")\n}\n'
        "edge Next: Team -> Team @card(0..2) { at: Date? }"
    )
    edge, member = hash_fnv1a32("edge:Next"), hash_fnv1a32("edge:Next:at")
    assert render(compile_ir(text)) == (
        '{"ir_version":1,"interfaces":[],"nodes":[{"name":"Team","type_id":4231627740,"annotations":[],'
        '"implements":[],"properties":[{"name":"slug","prop_id":432351005,"prop_type":{"scalar":"String",'
        '"nullable":false,"list":false,"enum_values":null},"annotations":[{"name":"key","value":null}]},'
        '{"name":"title","prop_id":3087768500,"prop_type":{"scalar":"String","nullable":false,"list":false,'
        '"enum_values":null},"annotations":[]}],"constraints":[{"Check":{"property":"title","pattern":'
        '"^[a-z]+$"}},{"Key":["slug"]}]}],"edges":[{"name":"Next","type_id":'
        f"{edge}"
        ',"from_type":"Team","to_type":"Team","cardinality":{"min":0,"max":2},"annotations":[],'
        '"properties":[{"name":"at","prop_id":'
        f"{member}"
        ',"prop_type":{"scalar":"Date","nullable":true,"list":false,"enum_values":null},'
        '"annotations":[]}],"constraints":[]}]}'
    )


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, "0.0"), (-2.5, "-2.5"), (1e15, "1000000000000000.0"), (1e16, "1e16"), (1e-5, "0.00001"),
        (-1.25e-5, "-0.0000125"), (1e-6, "1e-6"), (1.5e300, "1.5e300"), (0.1, "0.1"), (7, "7"),
        ("ä\n\x01\"", '"ä\\n\\u0001\\""'), ([], "[]"), ({}, "{}"), (None, "null"), (True, "true"),
    ],
)  # fmt: skip
def test_values_are_written_as_rust_writes_them(value: object, text: str) -> None:
    assert render(value) == text


def test_the_indented_form_is_the_usual_one() -> None:
    found = compile_ir()
    assert render(found, indent=2) == json.dumps(found, indent=2, ensure_ascii=False)
    assert json.loads(render(found)) == found


def test_the_hash_depends_on_the_meaning_only() -> None:
    assert ir_hash(compile_ir()) == ir_hash(compile_ir("// more\n" + TEXT))
    assert ir_hash(compile_ir()).startswith("sha256:")
    assert ir_hash(compile_ir()) != ir_hash(compile_ir(TEXT.replace("0..2", "0..3")))


def test_order_and_repetition_are_no_difference() -> None:
    one = compile_ir()
    other = json.loads(json.dumps(one))
    other["nodes"][0]["constraints"].reverse()
    other["nodes"][0]["constraints"].append({"Index": ["k"]})
    other["edges"][1]["constraints"][0]["Unique"].reverse()
    assert has_same_meaning(one, other)
    other["nodes"][0]["constraints"].pop(0)
    assert not has_same_meaning(one, other)
