"""Records -> rows: every kind of value, and what is said about those that do not fit."""

from __future__ import annotations

import math
import pickle
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from omnigraph.engine.rows.ids import LoadIds
from omnigraph.engine.rows.json_columns import parse_column
from omnigraph.engine.rows.lines import Split
from omnigraph.engine.rows.row_builder import LoadReader
from omnigraph.errors import InvalidValue, ResourceLimitExceeded
from omnigraph.lang import dates
from omnigraph.lang.types import FLOATS, Scalar, ValueType, vector_type
from omnigraph.lang.values import column_to_json, integer_bounds
from tests.engine.write.support import (
    IDS,
    accept_schema,
    edge,
    fixture_lines,
    lines,
    list_problems,
    node,
    read,
)

NO_SOURCES = "this graph allows no external sources"
KINDS = """
node T {
  s: String?  b: Bool?  i: I32?  j: I64?  u: U32?  w: U64?  f: F32?  g: F64?  d: Date?  t: DateTime?
  v: Vector(2)?  l: [I32]?  m: [DateTime]?  e: enum(x, y)?  x: Blob?
}
node Must { k: String @key  n: I32  v: Vector(1)  x: Blob }
node Pair { tenant: String  slot: I32  @key(tenant, slot) }
edge E: T -> T { n: I32? }
"""


@pytest.mark.parametrize(
    ("name", "value", "reason"),
    [
        ("s", 7, "strict property 's' expects Utf8, got 7"),
        ("s", {"a": [1]}, "strict property 's' expects Utf8, got {\"a\":[1]}"),
        ("b", 1, "strict property 'b' expects Boolean, got 1"),
        ("b", "true", "strict property 'b' expects Boolean, got \"true\""),
        ("i", "7", "strict property 'i' expects Int32, got \"7\""),
        ("i", 7.0, "strict property 'i' expects Int32, got 7.0"),
        ("i", True, "strict property 'i' expects Int32, got true"),
        ("i", 3_000_000_000, "property 'i' value 3000000000 exceeds Int32 range"),
        ("j", 2**63, "property 'j' value 9223372036854775808 exceeds Int64 range"),
        ("u", -1, "property 'u' value -1 exceeds UInt32 range"),
        ("w", 2**64, "property 'w' value 18446744073709551616 exceeds UInt64 range"),
        ("w", 10**30, f"property 'w' value {10**30} exceeds UInt64 range"),
        ("f", "1", "strict property 'f' expects Float32, got \"1\""),
        ("f", 1e39, "property 'f': float value 1e+39 exceeds Float32 range"),
        ("g", False, "strict property 'g' expects Float64, got false"),
        ("g", 10**400, "property 'g': float value 2^1328 and more exceeds Float64 range"),
        ("d", "2023-02-29", "strict property 'd' expects Date32, got \"2023-02-29\""),
        ("d", 1.5, "strict property 'd' expects Date32, got 1.5"),
        ("d", 2**31, "property 'd' value 2147483648 exceeds Date32 range"),
        ("t", "noon", "strict property 't' expects Date64, got \"noon\""),
        ("t", "2024-01-01T10", "strict property 't' expects Date64, got \"2024-01-01T10\""),
        ("l", 7, "list property 'l' expects a JSON array, got 7"),
        ("l", [1, None], "strict list property 'l' contains a null or invalid item"),
        ("l", [1, "x"], "strict list property 'l' contains a null or invalid item"),
        ("l", [2**31], "strict list property 'l' contains a null or invalid item"),
        ("l", [[1]], "strict list property 'l' contains a null or invalid item"),
        ("v", 1.0, "vector property 'v' expects a JSON array, got 1.0"),
        ("v", [1], "vector property 'v' expects 2 dimensions, got 1"),
        ("v", [1, "a"], "vector property 'v' elements must be numeric, got \"a\""),
        ("v", [1, True], "vector property 'v' elements must be numeric, got true"),
        ("v", [1, 1e39], "property 'v': float value 1e+39 exceeds Float32 range"),
        ("e", "z", "invalid enum value 'z' for T.e (expected: x, y)"),
        ("e", 1, "strict property 'e' expects Utf8, got 1"),
        ("x", 1, "blob property 'x' must be a URI string or base64: prefixed data"),
        ("x", "base64:!", "blob property 'x': invalid base64 blob data: Only base64 data is allowed"),
        (
            "x",
            "s3://b/k",
            f"blob property 'x': external blob URI 's3://b/k' is not allowed: {NO_SOURCES}",
        ),
        ("nick", 1, "unknown input field 'nick' for 'node:T'"),
        ("_rowid", 1, "input field '_rowid' is reserved physical state"),
        ("_tombstone", True, "input field '_tombstone' is reserved physical state"),
        ("id", 7, "input entity of type 'T' field 'id' must be a string, got 7"),
        ("id", None, "input entity of type 'T' field 'id' must be a string, got null"),
    ],
)
def test_a_value_that_does_not_fit_is_reported(name: str, value: object, reason: str) -> None:
    good = node("T", s="fine", i=1)
    rows = read(lines(good, node("T", **{name: value}), good), KINDS)
    assert list_problems(rows) == [(2, reason)]
    assert rows.shaped[0].rows.column("s").to_pylist() == ["fine", "fine"]
    assert rows.shaped[0].lines.tolist() == [1, 3]


def test_what_is_required_is_missed() -> None:
    full = {"k": "a", "n": 1, "v": [1.0], "x": "base64:"}
    broken = [{**full, name: None} for name in full] + [{k: v for k, v in full.items() if k != "n"}]
    assert list_problems(read(lines(*(node("Must", **data) for data in broken)), KINDS)) == [
        (1, "non-nullable property 'k' has null or invalid values"),
        (2, "non-nullable property 'n' has null or invalid values"),
        (3, "non-nullable vector property 'v' has null values"),
        (4, "non-nullable blob property 'x' has null values"),
        (5, "non-nullable property 'n' has null or invalid values"),
    ]


def test_all_faults_of_all_rows_are_reported_in_input_order() -> None:
    rows = read(
        lines(
            node("Must", k="a", n="x", v=[], zz=1, x="base64:"),
            edge("E", "a", "b", n=1.5),
            node("Must", k="b", n=1, v=[1], x="base64:"),
            node("T", id=1),
        ),
        KINDS,
    )
    assert list_problems(rows) == [
        (1, "unknown input field 'zz' for 'node:Must'"),
        (1, "strict property 'n' expects Int32, got \"x\""),
        (1, "vector property 'v' expects 1 dimensions, got 0"),
        (2, "strict property 'n' expects Int32, got 1.5"),
        (4, "input entity of type 'T' field 'id' must be a string, got 1"),
    ]
    assert [wrong.entity for wrong in rows.violations][:3] == ["node:Must 'a'"] * 3
    assert str(rows.violations[3]) == "in.ndjson:2: strict property 'n' expects Int32, got 1.5"


def test_every_kind_of_value_arrives_as_it_was_written() -> None:
    first = {
        "s": "é\u0000",
        "b": True,
        "i": -(2**31),
        "j": 2**63 - 1,
        "u": 2**32 - 1,
        "w": 2**64 - 1,
        "f": 0.1,
        "g": 3,
        "d": "2024-01-01",
        "t": "2024-01-01T02:00:00+02:00",
        "v": [1, 0.5],
        "l": [1, 2],
        "m": ["1970-01-01", 5],
        "e": "y",
        "x": "base64:YWI=",
    }
    second = {"d": 19723, "t": 1704067200000, "l": [], "x": "base64:", "g": -0.0}
    (shaped,) = read(lines(node("T", **first), node("T", **second), node("T")), KINDS).shaped
    rows = shaped.rows
    assert rows.schema.equals(accepted_schema("node:T"))
    found = {name: rows.column(name) for name in rows.schema.names}
    assert [found[name][0].as_py() for name in ("s", "b", "i", "j", "u", "w", "g", "e")] == [
        "é\u0000",
        True,
        -(2**31),
        2**63 - 1,
        2**32 - 1,
        2**64 - 1,
        3.0,
        "y",
    ]
    assert found["f"][0].as_py() == 0.10000000149011612
    assert found["d"].cast(pa.int32()).to_pylist() == [19723, 19723, None]
    assert found["t"].cast(pa.int64()).to_pylist() == [1704067200000, 1704067200000, None]
    assert found["v"].to_pylist() == [[1.0, 0.5], None, None]
    assert found["l"].to_pylist() == [[1, 2], [], None]
    assert column_to_json(found["m"], ValueType(Scalar.DATETIME, is_list=True))[0] == [
        "1970-01-01T00:00:00.000Z",
        "1970-01-01T00:00:00.005Z",
    ]
    assert found["x"].storage.field("data").to_pylist()[:2] == [b"ab", b""]
    assert found["x"].storage.is_null().to_pylist() == [False, False, True]
    assert math.copysign(1, found["g"][1].as_py()) == -1


def accepted_schema(key: str) -> pa.Schema:
    return LoadReader(accept_schema(KINDS), IDS).targets[key].schema


def test_an_external_source_is_kept_as_reference_where_it_is_allowed() -> None:
    reader = LoadReader(
        accept_schema(KINDS), IDS, external=lambda uri: None if uri.startswith("s3://ok/") else "no"
    )
    rows = reader.read(Split("f", lines(node("T", x="s3://ok/k"), node("T", x="s3://bad/k"))))
    assert rows.shaped[0].rows.column("x").storage.field("uri").to_pylist() == ["s3://ok/k"]
    assert list_problems(rows) == [
        (2, "blob property 'x': external blob URI 's3://bad/k' is not allowed: no")
    ]


def test_ids_follow_from_keys_are_given_or_are_generated() -> None:
    data = lines(
        node("Pair", tenant="acme", slot=7),
        node("Pair", tenant="acme", slot=8, id='["8","acme"]'),
        node("Pair", tenant="acme", slot=9, id="9"),
        node("T"),
        node("T", id="mine"),
        edge("e", "a", "b", id="e1"),
    )
    rows = read(data, KINDS)
    found = {shaped.key: shaped.rows.column("id").to_pylist() for shaped in rows.shaped}
    assert list_problems(rows) == [
        (3, "node Pair explicit id '9' does not match its canonical @key id '[\"9\",\"acme\"]'")
    ]
    assert found["node:Pair"] == ['["7","acme"]', '["8","acme"]']
    assert found["edge:E"] == ["e1"]
    offset = data.index(b'{"type": "T", "data": {}}')
    assert found["node:T"] == [IDS.ids(0, np.array([offset]))[0].as_py(), "mine"]
    assert {shaped.key: shaped.generated.tolist() for shaped in rows.shaped} == {
        "edge:E": [False],
        "node:Pair": [False, False],
        "node:T": [True, False],
    }


def test_a_reader_works_the_same_in_another_process() -> None:
    reader = LoadReader(accept_schema(), LoadIds(5))
    split = Split("f", fixture_lines() + lines(node("Log", msg="x"), node("Log")))
    there = pickle.loads(pickle.dumps(pickle.loads(pickle.dumps(reader)).read(split)))
    here = reader.read(split)
    assert there.violations == here.violations
    assert [
        shaped.rows.equals(other.rows) for shaped, other in zip(there.shaped, here.shaped, strict=True)
    ] == [True] * 5


# --- a column at once is the same as value by value ----------------------------------------------

_NUMBERS = st.integers(-(2**65), 2**65) | st.integers(-3, 3) | st.floats()
_DATE_TEXTS = st.sampled_from(
    [
        "2024-01-01",
        "0000-01-01",
        "9999-12-31",
        "2024-02-30",
        "2024-1-1",
        "+12024-01-01",
        "-0001-01-01",
        "2024-01-01 ",
        "2024-01-01T00:00:00Z",
        "2024-01-01 23:59:59.9Z",
        "2024-01-01T23:59:59.999Z",
        "1969-12-31T23:59:59.1239Z",
        "2024-01-01T24:00:00Z",
        "2024-01-01T00:00:60Z",
        "2024-01-01T00:00:00",
        "2024-01-01T00:00:00+02:00",
        "1500-02-29",
        "2024-01-01t00:00:00z",
        "2024-01-01T00:00",
        "0000-02-29T00:00:00.001Z",
        "\uff12024-01-01",
    ]
)
_ANY = st.none() | st.booleans() | _NUMBERS | st.text(max_size=3) | _DATE_TEXTS
_TYPES = [ValueType(scalar, nullable=True) for scalar in Scalar if scalar not in (Scalar.VECTOR, Scalar.BLOB)]


def _model(value: Any, type_: ValueType) -> Any:
    """The stored value by the rules themselves; raises when there is none."""
    if value is None:
        return None
    if type_.scalar is not Scalar.VECTOR and not type_.is_list:
        return _model_atom(value, type_.scalar)
    size = type_.dimension if type_.scalar is Scalar.VECTOR else None
    if not isinstance(value, list) or None in value or size not in (None, len(value)):
        raise InvalidValue("")
    return [_model_atom(item, Scalar.F32 if size else type_.scalar) for item in value]


def _model_atom(value: Any, scalar: Scalar) -> Any:
    kind = type(value)
    if kind is bool and scalar is Scalar.BOOL:
        return value
    if kind is str and scalar is Scalar.STRING and value.encode("utf-8", "replace").decode() == value:
        return value
    if kind is str and scalar in (Scalar.DATE, Scalar.DATETIME):
        return dates.parse_date(value) if scalar is Scalar.DATE else dates.parse_datetime(value)
    if kind in (int, float) and scalar in FLOATS:
        width = pa.float32() if scalar is Scalar.F32 else pa.float64()
        rounded = pa.array([float(value)]).cast(width, safe=False)[0].as_py()
        if math.isfinite(rounded):
            return rounded
    elif kind is int and scalar not in (Scalar.STRING, Scalar.BOOL):
        low, high = integer_bounds(scalar)
        if low <= value <= high:
            return value
    raise InvalidValue("")


def _check(values: list[Any], type_: ValueType) -> None:
    expected, faults = [], set()
    for row, value in enumerate(values):
        try:
            expected.append(_model(value, type_))
        except InvalidValue:
            expected.append(None)
            faults.add(row)
    cells = parse_column(values, "p", type_)
    array = cells.array
    if type_.scalar is Scalar.DATE:
        array = array.cast(pa.list_(pa.int32()) if type_.is_list else pa.int32())
    elif type_.scalar is Scalar.DATETIME:
        array = array.cast(pa.list_(pa.int64()) if type_.is_list else pa.int64())
    assert set(cells.faults) == faults
    assert array.to_pylist() == expected
    array.validate(full=True)


@pytest.mark.fuzz
@given(st.sampled_from(_TYPES), st.data())
def test_columns_are_read_as_their_values_are(type_: ValueType, data: st.DataObject) -> None:
    fitting = {
        Scalar.STRING: st.text(),
        Scalar.BOOL: st.booleans(),
        Scalar.F32: st.floats(width=32, allow_nan=False, allow_infinity=False) | st.integers(-(2**60), 2**60),
        Scalar.F64: st.floats(allow_nan=False) | st.integers(-(2**60), 2**60),
        Scalar.DATE: _DATE_TEXTS,
        Scalar.DATETIME: _DATE_TEXTS,
    }.get(type_.scalar, st.integers(-(2**33), 2**33))
    one = data.draw(st.sampled_from([fitting, fitting | st.none(), _ANY]))
    _check(data.draw(st.lists(one, max_size=6)), type_)


@pytest.mark.fuzz
@given(st.sampled_from(_TYPES), st.lists(st.none() | st.integers() | st.lists(_ANY, max_size=3), max_size=5))
def test_lists_are_read_as_their_items_are(type_: ValueType, values: list[Any]) -> None:
    _check(values, ValueType(type_.scalar, nullable=True, is_list=True))


@pytest.mark.fuzz
@given(st.lists(st.none() | st.text(max_size=1) | st.lists(_NUMBERS, min_size=1, max_size=3), max_size=5))
def test_vectors_are_read_as_their_numbers_are(values: list[Any]) -> None:
    _check(values, vector_type(2, nullable=True))


def test_a_uri_that_is_too_long_is_reported_with_its_property_and_what_helps() -> None:
    with pytest.raises(ResourceLimitExceeded, match="of property 'x': actual") as found:
        read(lines(node("T", x="s3://" + "k" * 70_000)), KINDS)
    assert found.value.remedy == "give a shorter URI, or the bytes themselves after `base64:`"
