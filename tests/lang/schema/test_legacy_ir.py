"""The compiled schema of earlier releases, read for its identities."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from omnigraph.lang.schema import AcceptedSchema, compile_schema, first_identities, resolve
from omnigraph.lang.schema.identity import follow, parse_identities, render_identities
from omnigraph.lang.schema.ir import is_legacy, legacy_hash, legacy_ir, read_legacy
from tests.lang.schema.test_ir import TEXT


def accept_schema(text: str = TEXT) -> AcceptedSchema:
    catalog = compile_schema(text)
    return AcceptedSchema(catalog, first_identities(catalog))


def test_fingerprint_and_identities_come_back() -> None:
    schema = accept_schema()
    stored = legacy_ir(schema)
    assert is_legacy(stored)
    assert read_legacy(copy.deepcopy(stored)) == (schema.catalog.fingerprint, schema.identities)
    assert legacy_hash(stored) == legacy_hash(dict(reversed(stored.items())))


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (["nodes"], 5),
        (["nodes", 0], None),
        (["nodes", 0, "type_id"], "1"),
        (["nodes", 0, "properties", 1, "prop_id"], None),
        (["next_prop_id"], True),
    ],
)
def test_a_damaged_one_is_an_error(path: list[Any], value: object) -> None:
    stored = copy.deepcopy(legacy_ir(accept_schema()))
    target: Any = stored
    for key in path[:-1]:
        target = target[key]
    target[path[-1]] = value
    with pytest.raises(ValueError, match="damaged"):
        read_legacy(stored)


# --- the file of identities ------------------------------------------------------------------------


def test_identities_in_their_file_come_back() -> None:
    known = first_identities(accept_schema().catalog)
    assert parse_identities(render_identities(known, "sha256:x")) == (known, "sha256:x")


STORED = render_identities(first_identities(accept_schema().catalog), "h")
DAMAGED = [
    *("", "{", "[]", "null", "{}", '{"format_version": 2}'),
    STORED.replace('"type_id": 1', '"type_id": 2'),
    STORED.replace('"next_type_id": 6', '"next_type_id": 1'),
]


@pytest.mark.parametrize("text", DAMAGED)
def test_a_damaged_file_of_identities_is_an_error(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        parse_identities(text)


BEFORE = (
    "interface I { x: I32? } node A implements I { k: String @key  b: I32? } "
    "node C { d: I32? } edge E: A -> C"
)
AFTER = [
    'interface I { y: I32? @rename_from("x") } node A implements I { k: String @key  b: I32? } node C { }',
    'node Z @rename_from("A") { k: String @key  q: I32? @rename_from("b") } node C { d: I32?  e: I32? }',
    "node C { d: I32? } node N { k: String }",
]


@pytest.mark.parametrize("text", AFTER)
def test_identities_that_follow_are_those_that_a_change_gives(text: str) -> None:
    before, after = accept_schema(BEFORE), compile_schema(text)
    assert before.identities is not None
    assert follow(before.identities, after) == resolve(before, after).identities


@pytest.mark.parametrize(
    "text",
    [
        'node A @rename_from("C") { k: String @key } node C { }',
        'node M @rename_from("gone") { z: I32 @rename_from("d") }',
        'node A { a: I32? @rename_from("b")  c: I32? @rename_from("b") }',
    ],
)
def test_hints_that_lead_nowhere_make_new_numbers(text: str) -> None:
    before, after = accept_schema(BEFORE), compile_schema(text)
    assert before.identities is not None
    found = follow(before.identities, after)
    numbers = [*found.types.values()]
    assert len(set(numbers)) == len(numbers)
    assert len(set(found.properties.values())) == len(found.properties)
    assert all(number < found.next_type for number in numbers)
