"""Schemas guessed from frames."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any
from uuid import UUID

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import omnigraph as og
from omnigraph.errors import BadRequest

DAY = dt.date(2024, 2, 29)
MOMENT = dt.datetime(2024, 2, 29, 12, tzinfo=dt.UTC)

COLUMNS: dict[str, tuple[Any, str]] = {
    "text": (["a", "b"], "String?"),
    "a boolean": ([True, None], "Bool?"),
    "integers of 8 bits": (pa.array([1, 2], pa.int8()), "I32?"),
    "integers of 64 bits": ([1, 2**40], "I64?"),
    "unsigned of 16 bits": (pa.array([1, 2], pa.uint16()), "U32?"),
    "unsigned of 64 bits": (pa.array([1, 2**63], pa.uint64()), "U64?"),
    "floats": ([1.0, 2.0], "F64?"),
    "floats of 32 bits": (pa.array([1.5, 2], pa.float32()), "F32?"),
    "whole floats, one missing": (
        [1.0, float("nan")],
        "I64?  // whole numbers, in floats because some are missing",
    ),
    "floats, one missing": ([1.5, None], "F64?"),
    "days": ([DAY, None], "Date?"),
    "moments": ([MOMENT, MOMENT], "DateTime?"),
    "moments of a zone": (
        pa.array([MOMENT, None], pa.timestamp("ns", "Europe/Rome")),
        "DateTime?  // moments of Europe/Rome, stored in UTC",
    ),
    "short decimals": ([Decimal("1.50"), None], "F64?  // decimal128(3, 2)"),
    "whole decimals": ([Decimal(7), None], "I64?  // decimal128(1, 0)"),
    "long decimals": (
        [Decimal("0.1234567890123456789"), None],
        "String?  // decimal128(19, 19): as text, because a float would round it",
    ),
    "UUIDs": ([UUID(int=1), UUID(int=2)], "String?  // UUIDs, as text"),
    "categories": (pa.array(["a", "b"]).dictionary_encode(), "String?"),
    "lists": ([["a"], None], "[String]?"),
    "lists of numbers": ([[1], [2, 3]], "[I64]?"),
    "vectors": ([[0.5] * 8, [0.25] * 8], "Vector(8)?  // every list has 8 numbers"),
    "lists of a fixed size": (
        pa.array([[1.0, 2.0], [3.0, 4.0]], pa.list_(pa.float32(), 2)),
        "Vector(2)?  // every list has 2 numbers",
    ),
    "bytes": ([b"a", b"b"], "Blob?"),
    "nothing": ([None, None], "String?  // no row has a value"),
}


@pytest.mark.parametrize(("values", "declared"), COLUMNS.values(), ids=COLUMNS)
def test_a_column_gets_the_type_of_its_values(values: Any, declared: str) -> None:
    found = og.infer_schema({"T": pa.table({"k": ["x", "y"], "c": pa.array(values)})}, keys={"T": "k"})
    assert f"\n  c: {declared}\n" in found


@pytest.mark.parametrize("values", [[{"a": 1}], [dt.timedelta(1)], [dt.time(1)], [[[1]]], [[{"a": 1}]]])
def test_a_column_that_no_property_can_hold_is_left_out_with_a_comment(values: Any) -> None:
    column = pa.array(values)
    found = og.infer_schema({"T": pa.table({"k": ["x"], "c": column})})
    assert f'\n  // column "c" is left out: no property can hold {column.type}\n' in found


def test_edges_decide_the_key_and_find_their_ends() -> None:
    people = pd.DataFrame({"name": ["A", "B"], "handle": ["ada", "bo"]})
    teams = pl.DataFrame({"slug": ["core", "ops"]})
    member = pa.table({"from": ["ada", "bo"], "to": ["core", "core"]})
    found = og.infer_schema({"Person": people, "Team": teams, "MemberOf": member})
    assert found.splitlines()[3:] == [
        "// 2 rows",
        "node Person {",
        "  name: String?",
        "  handle: String @key  // guessed: edges refer to it, and no value is missing or repeated",
        "}",
        "",
        "// 2 rows",
        "node Team {",
        "  slug: String @key  // guessed: edges refer to it, and no value is missing or repeated",
        "}",
        "",
        "// 2 rows",
        "// guessed: 2 of 2 values of 'from' are ids of Person; 2 of 2 values of 'to' are ids of Team",
        "edge MemberOf: Person -> Team",
    ]


def test_integers_and_whole_floats_refer_to_integer_keys() -> None:
    nodes = pd.DataFrame({"number": [1, 2, 3]})
    edges = pd.DataFrame({"source": [1.0, 2.0], "target": [2, 3], "weight": [0.5, 1.5]})
    found = og.infer_schema({"Stop": nodes, "Leg": edges})
    assert "  number: I64 @key" in found
    assert "edge Leg: Stop -> Stop {" in found


def test_a_triple_names_the_ends() -> None:
    ids = pa.table({"k": ["a"]})
    found = og.infer_schema({"A": ids, "B": ids, ("B", "Link", "A"): pa.table({"x": ["a"], "y": ["a"]})})
    assert "edge Link: B -> A" in found


def test_without_matching_ids_the_ends_are_marked_for_checking() -> None:
    ids = pa.table({"k": ["a"]})
    found = og.infer_schema({"A": ids, "B": ids, "Link": pa.table({"src": ["x"], "dst": ["y"]})})
    assert "// guessed: no node type has such ids, so check the ends\nedge Link: A -> A" in found


def test_a_column_id_holds_the_ids() -> None:
    found = og.infer_schema({"T": pa.table({"id": ["a", "b"], "n": [1, 2]})})
    assert "// the column `id` holds the ids\nnode T {\n  n: I64?\n}" in found


def test_rows_that_nothing_identifies_have_no_key() -> None:
    found = og.infer_schema({"T": [{"n": 1}, {"n": 1}]})
    assert "// no column identifies a row, so ids are generated\nnode T {\n  n: I64?\n}" in found


def test_columns_get_names_that_properties_can_have() -> None:
    rows = pd.DataFrame([[1] * 6], columns=["First Name", "ZIP", "Länge", "2nd", "first_name", "_rowid"])
    found = og.infer_schema({"T": rows})
    declared = [line.split(":")[0].strip() for line in found.splitlines() if line.startswith("  ")]
    assert declared == ["first_name", "zip", "lange", "column_2nd", "first_name_2", "_rowid_2"]


def test_keys_of_several_properties() -> None:
    rows = [{"carrier": "AA", "number": 1}, {"carrier": "AA", "number": 2}]
    found = og.infer_schema({"Flight": rows}, keys={"Flight": ["carrier", "number"]})
    assert "  carrier: String\n  number: I64\n  @key(carrier, number)\n" in found


def test_what_was_inferred_takes_the_data(tmp_path: Any) -> None:
    people = pl.DataFrame({"handle": ["ada", "bo"], "born": [DAY, None], "tags": [["x"], []]})
    knows = pa.table({"from": ["ada"], "to": ["bo"], "weight": pa.array([0.5], pa.float32())})
    data = {"Person": people, "Knows": knows}
    with og.init(tmp_path / "g", schema=og.infer_schema(data)) as graph:
        assert graph.load(data, mode="append").total == 3


@pytest.mark.parametrize(
    ("data", "keys", "message", "remedy"),
    [
        (
            {"person": pa.table({"a": [1]})},
            {},
            "'person' cannot be the name of a type",
            "begin it with an uppercase letter A to Z; letters, digits and _ may follow",
        ),
        (
            {"P": pa.table({"a": [1]})},
            {"P": "b"},
            "P has no property 'b'",
            "it has: a",
        ),
        (
            {"P": pa.table({"id": ["x"]})},
            {"P": "id"},
            "P has no property 'id'",
            "leave the key out: the column `id` holds the ids already",
        ),
        (
            {"P": pa.table({"a": [1]})},
            {"Q": "a"},
            "there is no node type 'Q' for the key 'Q.a'",
            "it may be: P",
        ),
        (
            {"K": pa.table({"from": ["x"], "to": ["y"]})},
            {},
            "edges 'K' have no nodes to join",
            "add the table of the nodes",
        ),
        (
            {"P": 7},
            {},
            "'int' for 'P' is neither rows nor a path",
            "give a DataFrame, an Arrow table, a list of dictionaries, or a path",
        ),
        (
            {("A", "B"): pa.table({"a": [1]})},
            {},
            "('A', 'B') is not the name of a type",
            'write "Person", or for edges ("Person", "Knows", "Person")',
        ),
    ],
)
def test_what_cannot_be_inferred_is_reported(
    data: dict[Any, Any], keys: dict[str, str], message: str, remedy: str
) -> None:
    with pytest.raises(BadRequest) as failure:
        og.infer_schema(data, keys=keys)
    assert (failure.value.message, failure.value.remedy) == (message, remedy)


def test_arrays_of_numpy_in_cells_are_lists() -> None:
    found = og.infer_schema({"T": pd.DataFrame({"k": ["a"], "v": [np.arange(3)]})})
    assert "  v: [I64]?" in found
