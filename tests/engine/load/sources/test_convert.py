"""Columns of any Arrow type -> properties: what fits without loss, and what is said about the rest."""

from __future__ import annotations

from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import parquet as pq

from omnigraph.engine.load.sources.arrow_columns import convert_column, is_convertible
from omnigraph.engine.rows.blobs import reject_external
from omnigraph.engine.rows.json_columns import ParsedColumn
from omnigraph.errors import LoadRejected
from omnigraph.lang.types import Scalar, ValueType, vector_type
from omnigraph.lang.values import arrow_field, arrow_type, integer_bounds
from tests.engine.load.sources.support import plan, read

S, B, D, T = (
    ValueType(Scalar.STRING),
    ValueType(Scalar.BOOL),
    ValueType(Scalar.DATE),
    ValueType(Scalar.DATETIME),
)
I32, I64, U32, U64, F32, F64 = (
    ValueType(scalar) for scalar in (Scalar.I32, Scalar.I64, Scalar.U32, Scalar.U64, Scalar.F32, Scalar.F64)
)
LAST = UUID(int=2**128 - 1)
NEW_YEAR = 1_704_067_200_000
TEN = NEW_YEAR + 10 * 3_600_000
INTS, TEXTS = ValueType(Scalar.I32, is_list=True), ValueType(Scalar.STRING, is_list=True)


def _read(column: pa.Array, type_: ValueType) -> ParsedColumn:
    assert is_convertible(column.type, type_)
    cells = convert_column(column, "p", type_, arrow_field("p", type_), reject_external)
    cells.array.validate(full=True)
    assert cells.array.type == arrow_type(type_)
    assert len(cells.array) == len(column)
    return cells


def _values(cells: ParsedColumn) -> list[Any]:
    assert cells.faults == {}
    plain = cells.array.cast(pa.int64()) if pa.types.is_timestamp(cells.array.type) else cells.array
    found: list[Any] = plain.to_pylist()
    return found


@pytest.mark.parametrize(
    ("column", "type_", "values"),
    [
        (pa.array(["a", None], pa.large_string()), S, ["a", None]),
        (pa.array(["a", None], pa.string_view()), S, ["a", None]),
        (pa.array(["a", None, "a"]).dictionary_encode(), S, ["a", None, "a"]),
        (pa.RunEndEncodedArray.from_arrays(pa.array([2, 3], pa.int32()), pa.array([1, 2])), I64, [1, 1, 2]),
        (pa.array([1, None], pa.int8()), I32, [1, None]),
        (pa.array([1, None], pa.uint64()), I32, [1, None]),
        (pa.array([2**32 - 1], pa.int64()), U32, [2**32 - 1]),
        (pa.array([7], pa.int64()), U64, [7]),
        (pa.array([2**53, -5], pa.int64()), F64, [2.0**53, -5.0]),
        (pa.array([2**62], pa.int64()), F64, [2.0**62]),
        (pa.array([2**24], pa.int32()), F32, [2.0**24]),
        (pa.array([1.5, None], pa.float32()), F64, [1.5, None]),
        (pa.array(np.array([1.5], np.float16)), F32, [1.5]),
        (pa.array([1.5, -0.25], pa.float64()), F32, [1.5, -0.25]),
        (pa.array([36.0, None, -(2.0**53)]), I64, [36, None, -(2**53)]),
        (pa.array([7.0], pa.float32()), U64, [7]),
        (pa.array([36.0, float("nan")]), I32.with_nullable(), [36, None]),
        (pa.array([1.5, float("nan"), None]), F64.with_nullable(), [1.5, None, None]),
        (pa.array([Decimal("36.00"), None]), I32, [36, None]),
        (pa.array([Decimal(2**64 - 1)]), U64, [2**64 - 1]),
        (pa.array([Decimal(5), None], pa.decimal128(38, 30)), I64, [5, None]),
        (pa.array([Decimal(-5)], pa.decimal256(76, 70)), I32, [-5]),
        (pa.array([Decimal(5), None], pa.decimal32(5, 2)), U32, [5, None]),
        (pa.array([Decimal("1E+3")], pa.decimal128(5, -3)), I64, [1000]),
        (pa.array([Decimal("0.10"), None]), F64, [0.1, None]),
        (pa.array([Decimal("0.1000000000000000000")]), F64, [0.1]),
        (pa.array([Decimal("1.50"), None]), S, ["1.50", None]),
        (pa.array([UUID(int=10), None, LAST]), S, [f"{'0' * 8}{'-0000' * 3}-{'0' * 11}a", None, str(LAST)]),
        (pa.array([[1.0, 2.0]]), INTS, [[1, 2]]),
        (pa.array([Decimal("1.0")]).dictionary_encode(), I32, [1]),
        (pa.array([NEW_YEAR], pa.timestamp("ms", "UTC")), D, [date(2024, 1, 1)]),
        (pa.array([NEW_YEAR - 3_600_000], pa.timestamp("ms", "Europe/Rome")), D, [date(2024, 1, 1)]),
        (pa.array([NEW_YEAR], pa.timestamp("ms", "Europe/Rome")), D, [date(2024, 1, 1)]),
        (pa.nulls(2), I32, [None, None]),
        (pa.nulls(2), INTS, [None, None]),
        (pa.nulls(2), vector_type(2), [None, None]),
        (pa.array([date(2024, 5, 1)], pa.date64()), D, [date(2024, 5, 1)]),
        (pa.array(["2024-05-01", "2024-05-01T10:00:00Z"]), D, [date(2024, 5, 1)] * 2),
        (pa.array([-1], pa.int16()), D, [date(1969, 12, 31)]),
        (pa.array(["2024-05-01", None]).cast(pa.timestamp("ns")), D, [date(2024, 5, 1), None]),
        (pa.array([1999], pa.timestamp("us")), T, [1]),
        (pa.array([-1, -1000, -1001, None], pa.timestamp("us")), T, [-1, -1, -2, None]),
        (pa.array([-1], pa.timestamp("ns", "Asia/Tokyo")), T, [-1]),
        (pa.array([7], pa.timestamp("s", "+02:00")), T, [7000]),
        (pa.array([1], pa.date32()), T, [86_400_000]),
        (pa.array([date(1970, 1, 2)], pa.date64()), T, [86_400_000]),
        (pa.array([12], pa.int64()), T, [12]),
        (
            pa.array(["2024-01-01T02:00:00+02:00", "2024-01-01", None]),
            T,
            [NEW_YEAR, NEW_YEAR, None],
        ),
        (pa.array(["2024-01-01 10:00:00", "2024-01-01T10:00:00.5"]), T, [TEN, TEN + 500]),
        (pa.array([[1, 2], [], None], pa.large_list(pa.int64())), INTS, [[1, 2], [], None]),
        (pa.array([[1, 2], None], pa.list_(pa.uint8(), 2)), INTS, [[1, 2], None]),
        (pa.array([[1], []], pa.list_view(pa.int32())), INTS, [[1], []]),
        (pa.array([["a"]], pa.list_(pa.large_string())), TEXTS, [["a"]]),
        (pa.array([[], None], pa.list_(pa.null())), INTS, [[], None]),
        (
            pa.array([[1, 2], None, [3, 4]], pa.list_(pa.int64())),
            vector_type(2),
            [[1.0, 2.0], None, [3.0, 4.0]],
        ),
        (pa.array([[0.1, 2.0]], pa.list_(pa.float64())), vector_type(2), [[float(np.float32(0.1)), 2.0]]),
        (pa.array([0.1, None]), F32, [float(np.float32(0.1)), None]),
        (pa.array([None, [1, 2]], pa.list_(pa.float32(), 2)), vector_type(2), [None, [1.0, 2.0]]),
    ],
)  # fmt: skip
def test_what_fits_is_taken_without_loss(column: pa.Array, type_: ValueType, values: list[Any]) -> None:
    assert _values(_read(column, type_)) == values
    padded = pa.concat_arrays([column, column]) if not isinstance(column, pa.RunEndEncodedArray) else None
    if padded is not None:
        assert _values(_read(padded.slice(len(column)), type_)) == values


@pytest.mark.parametrize(
    ("column", "type_", "faults"),
    [
        (pa.array([1, 2**31]), I32, {1: "property 'p' value 2147483648 exceeds Int32 range"}),
        (pa.array([-1, None]), U64, {0: "property 'p' value -1 exceeds UInt64 range"}),
        (pa.array([2**63], pa.uint64()), I64, {0: f"property 'p' value {2**63} exceeds Int64 range"}),
        (pa.array([2**31]), D, {0: "property 'p' value 2147483648 exceeds Date32 range"}),
        (pa.array([2**53 + 1, 1]), F64, {0: f"property 'p' value {2**53 + 1} is not exact in Float64"}),
        (pa.array([2**24 + 1, 1]), F32, {0: "property 'p' value 16777217 is not exact in Float32"}),
        (pa.array([1e39, 1.0]), F32, {0: "property 'p': float value 1e+39 exceeds Float32 range"}),
        (
            pa.array([float("nan"), float("-inf"), 1.0]),
            F64,
            {
                0: "property 'p': float value NaN must be finite",
                1: "property 'p': float value -Infinity must be finite",
            },
        ),
        (pa.array([36.5, 36.0, float("inf")]), I32, {
            0: "strict property 'p' expects Int32, got 36.5",
            2: "strict property 'p' expects Int32, got Infinity",
        }),
        (pa.array([float("nan"), 1.0]), I32, {0: "strict property 'p' expects Int32, got NaN"}),
        (pa.array([3e9, 1.0]), I32, {0: "property 'p' value 3000000000 exceeds Int32 range"}),
        (
            pa.array([2.0**53 + 2, 1.0]),
            I64,
            {0: "property 'p' value 9007199254740994 is beyond what a float holds exactly"},
        ),
        (pa.array([Decimal("1.50"), Decimal(1)]), I32, {0: "strict property 'p' expects Int32, got 1.5"}),
        (pa.array([Decimal(2**63), Decimal(1)]), I64, {0: f"property 'p' value {2**63} exceeds Int64 range"}),
        (
            pa.array([Decimal("1.25"), Decimal(4)], pa.decimal128(38, 30)),
            I64,
            {0: "strict property 'p' expects Int64, got 1.25"},
        ),
        (pa.array([Decimal(10**37 + 1)]), I64, {0: f"property 'p' value {10**37 + 1} exceeds Int64 range"}),
        (
            pa.array([Decimal("0.1234567890123456789"), Decimal("0.5")]),
            F64,
            {0: "property 'p' value 0.1234567890123456789 is not exact in Float64"},
        ),
        (
            pa.array([Decimal(10) ** 39, Decimal(1)]),
            F32,
            {0: "property 'p': float value 1e+39 exceeds Float32 range"},
        ),
        (pa.array(["2023-02-29", "x", "2024-02-29"]), D, {
            0: 'strict property \'p\' expects Date32, got "2023-02-29"',
            1: 'strict property \'p\' expects Date32, got "x"',
        }),
        (
            pa.array(["x", None, "x"]),
            T,
            dict.fromkeys((0, 2), 'strict property \'p\' expects Date64, got "x"'),
        ),
        (
            pa.array(["2024-05-01 10:00"]).cast(pa.timestamp("us")),
            D,
            {0: 'strict property \'p\' expects Date32, got "2024-05-01T10:00:00.000Z"'},
        ),
        (
            pa.array([2**62], pa.timestamp("s")),
            T,
            {0: f"property 'p' value {2**62 * 1000} exceeds Date64 range"},
        ),
        (
            pa.array([[1, None], [2], None, [2**31]]),
            INTS,
            dict.fromkeys((0, 3), "strict list property 'p' contains a null or invalid item"),
        ),
        (
            pa.array([[1.0], [1.0, None], [1.0, float("nan")], [1.0, 1e39], [1.0, 2.0]]),
            vector_type(2),
            {
                0: "vector property 'p' expects 2 dimensions, got 1",
                1: "vector property 'p' elements must be numeric, got null",
                2: "property 'p': float value NaN must be finite",
                3: "property 'p': float value 1e+39 exceeds Float32 range",
            },
        ),
        (
            pa.array([b"ok", b"\xff", None], pa.binary()).view(pa.string()),
            S,
            {1: "strict property 'p' expects Utf8, got text that is not UTF-8"},
        ),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_reported_and_the_rest_is_kept(
    column: pa.Array, type_: ValueType, faults: dict[int, str]
) -> None:
    cells = _read(column, type_)
    assert cells.faults == faults
    kept = [row for row in range(len(column)) if row not in faults]
    assert cells.array.is_null().to_pylist() == [
        row in faults or not column[row].is_valid for row in range(len(column))
    ]
    rest = column.take(pa.array(kept, pa.int64()))
    assert _read(rest, type_).array.equals(cells.array.take(pa.array(kept, pa.int64())))


@pytest.mark.parametrize(
    ("found", "type_"),
    [
        (pa.string(), I64),
        (pa.float64(), B),
        (pa.decimal128(10, 2), B),
        (pa.decimal128(10, 2), T),
        (pa.list_(pa.decimal128(10, 2)), vector_type(2)),
        (pa.string(), F64),
        (pa.string(), B),
        (pa.bool_(), I32),
        (pa.int8(), B),
        (pa.int64(), S),
        (pa.binary(), S),
        (pa.float64(), T),
        (pa.time64("us"), T),
        (pa.duration("s"), I64),
        (pa.int32(), INTS),
        (pa.list_(pa.int32()), I32),
        (pa.list_(pa.string()), vector_type(2)),
        (pa.struct([("a", pa.int32())]), S),
        (pa.map_(pa.string(), pa.string()), TEXTS),
        (pa.int64(), ValueType(Scalar.BLOB)),
    ],
)
def test_a_column_of_another_kind_is_refused_as_a_whole(found: pa.DataType, type_: ValueType) -> None:
    assert not is_convertible(found, type_)


def test_a_file_with_columns_that_cannot_fit_is_refused_before_it_is_read(tmp_path: Path) -> None:
    table = pa.table({"handle": [1], "age": [1.5], "nick": ["x"], "_rowid": [1], "big": [True]})
    pq.write_table(table, tmp_path / "Person.parquet")
    with pytest.raises(LoadRejected) as refused:
        plan(tmp_path / "Person.parquet")
    assert [wrong.reason for wrong in refused.value.violations] == [
        "unknown input field 'nick' for 'node:Person'",
        "input field '_rowid' is reserved physical state",
        "strict property 'handle' expects Utf8, got int64",
        "strict property 'big' expects UInt64, got bool",
    ]
    assert str(refused.value.violations[0]).endswith(
        "Person.parquet: unknown input field 'nick' for 'node:Person'"
    )
    assert refused.value.violations[0].entity == "node:Person"


def test_required_properties_and_ends_need_columns(tmp_path: Path) -> None:
    pq.write_table(pa.table({"name": ["x"]}), tmp_path / "Person.parquet")
    pq.write_table(pa.table({"from": ["x"], "src": ["x"], "id": [True]}), tmp_path / "KNOWS.parquet")
    with pytest.raises(LoadRejected) as refused:
        plan(tmp_path)
    assert [wrong.reason for wrong in refused.value.violations] == [
        "edge data field 'src' is reserved structural state",
        "graph batch record requires field 'to'",
        "input entity of type 'Knows' field 'id' must be a string, got bool",
        "non-nullable property 'handle' has no column",
    ]


def test_rules_about_single_rows_hold_for_columns_and_name_row_group_and_row(tmp_path: Path) -> None:
    table = pa.table(
        {
            "handle": ["a", "b", None, "d", "e", "f"],
            "id": [None, "b", None, "x", None, None],
            "age": [200, 1, 1, 1, 1, 2**40],
            "role": ["dev", "boss", None, None, None, None],
            "name": [None, None, None, None, "n0", None],
        }
    )
    path = tmp_path / "Person.parquet"
    pq.write_table(table, path, row_group_size=2)
    whole, split = read(path), read(path, split=1)
    for found in (whole, split):
        assert [(w.row_group, w.line, w.entity, w.reason) for w in found.violations] == [
            (1, 1, "node:Person 'a'", "@range violation on Person.age: value 200 > max 150"),
            (1, 2, "node:Person 'b'", "invalid enum value 'boss' for Person.role (expected: dev, lead)"),
            (2, 1, "node:Person", "non-nullable property 'handle' has null or invalid values"),
            (2, 2, "node:Person 'd'", "node Person explicit id 'x' does not match its canonical @key id 'd'"),
            (
                3,
                1,
                "node:Person 'e'",
                "@check violation on Person.name: value 'n0' does not match pattern '^[^0]*$'",
            ),
            (3, 2, "node:Person 'f'", "property 'age' value 1099511627776 exceeds Int32 range"),
        ]
        assert found.rows["node:Person"] == []
    wrong = split.violations[3]
    assert str(wrong) == f"{path}: row group 2, row 2: {wrong.reason}"
    assert wrong.to_json() == {
        "file": str(path),
        "row_group": 2,
        "row": 2,
        "entity": "node:Person 'd'",
        "reason": wrong.reason,
    }


def test_ends_of_edges_must_be_there(tmp_path: Path) -> None:
    pq.write_table(pa.table({"from": ["a", None], "to": [None, "b"]}), tmp_path / "Knows.parquet")
    assert read(tmp_path / "Knows.parquet").problems == [
        (1, "graph batch field 'to' must be a string, got null"),
        (2, "graph batch field 'from' must be a string, got null"),
    ]


def test_integers_and_whole_floats_are_ids(tmp_path: Path) -> None:
    table = pa.table({"from": [1, 2, 3], "to": [7.0, 8.5, None], "id": pa.array([UUID(int=1), None, None])})
    pq.write_table(table, tmp_path / "LivesIn.parquet")
    found = read(tmp_path / "LivesIn.parquet")
    (row,) = found.rows["edge:LivesIn"]
    assert (row["src"], row["dst"], row["id"]) == ("1", "7", str(UUID(int=1)))
    assert found.problems == [
        (2, "graph batch field 'to' must be a string, got 8.5"),
        (3, "graph batch field 'to' must be a string, got null"),
    ]
    pq.write_table(pa.table({"from": [True], "to": [7]}), tmp_path / "LivesIn.parquet")
    with pytest.raises(LoadRejected, match="graph batch field 'from' must be a string, got bool"):
        plan(tmp_path / "LivesIn.parquet")


@pytest.mark.fuzz
@given(
    numbers=st.lists(st.none() | st.integers(-(2**63), 2**63 - 1) | st.integers(-(2**31) - 2, 2**31 + 2)),
    scalar=st.sampled_from([Scalar.I32, Scalar.I64, Scalar.U32, Scalar.U64]),
)
def test_integers_are_taken_exactly_when_they_are_in_range(numbers: list[int | None], scalar: Scalar) -> None:
    cells = _read(pa.array(numbers, pa.int64()), ValueType(scalar))
    low, high = integer_bounds(scalar)
    assert cells.array.to_pylist() == [n if n is not None and low <= n <= high else None for n in numbers]
    assert set(cells.faults) == {at for at, n in enumerate(numbers) if n is not None and not low <= n <= high}


@pytest.mark.fuzz
@given(
    numbers=st.lists(st.none() | st.integers(-(2**63), 2**63 - 1)),
    unit=st.sampled_from(["s", "ms", "us", "ns"]),
)
def test_moments_of_any_unit_are_rounded_down_to_milliseconds(numbers: list[int | None], unit: str) -> None:
    cells = _read(pa.array(numbers, pa.int64()).view(pa.timestamp(unit)), T)
    nanos = {"s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1}[unit]
    wanted = [None if n is None else n * nanos // 10**6 for n in numbers]
    fits = [n is not None and -(2**63) <= n < 2**63 for n in wanted]
    assert cells.array.view(pa.int64()).to_pylist() == [
        n if ok else None for n, ok in zip(wanted, fits, strict=True)
    ]
    assert set(cells.faults) == {at for at, n in enumerate(wanted) if n is not None and not fits[at]}
