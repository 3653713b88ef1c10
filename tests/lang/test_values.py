"""Values: their Arrow types, what may be stored in them, and their JSON."""

from __future__ import annotations

import json
import math
import struct
import subprocess
import sys
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from omnigraph.errors import InternalError, InvalidValue
from omnigraph.lang import dates
from omnigraph.lang.types import (
    BOOL,
    DATE,
    DATETIME,
    F64,
    I64,
    INTEGERS,
    STRING,
    Scalar,
    ValueType,
    vector_type,
)
from omnigraph.lang.values import (
    JS_SAFE,
    arrow_field,
    arrow_type,
    column_to_json,
    convert,
    integer_bounds,
    shorten_legibly,
    stored_name,
    to_json_value,
)

I32, U32, U64, F32 = (ValueType(scalar) for scalar in (Scalar.I32, Scalar.U32, Scalar.U64, Scalar.F32))
BLOB = ValueType(Scalar.BLOB)
ENUM = ValueType(Scalar.STRING, enum_values=("high", "low"))
STORABLE = [scalar for scalar in Scalar if scalar not in (Scalar.BLOB, Scalar.VECTOR)]
LARGEST_F32 = struct.unpack("<f", b"\xff\xff\x7f\x7f")[0]


def list_of(type_: ValueType) -> ValueType:
    return ValueType(type_.scalar, is_list=True)


# --- Arrow types ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("type_", "arrow", "name"),
    [
        (STRING, pa.string(), "Utf8"),
        (ENUM, pa.string(), "Utf8"),
        (BOOL, pa.bool_(), "Boolean"),
        (I32, pa.int32(), "Int32"),
        (I64, pa.int64(), "Int64"),
        (U32, pa.uint32(), "UInt32"),
        (U64, pa.uint64(), "UInt64"),
        (F32, pa.float32(), "Float32"),
        (F64, pa.float64(), "Float64"),
        (DATE, pa.date32(), "Date32"),
        (DATETIME, pa.timestamp("ms", tz="UTC"), "Date64"),
        (list_of(I32), pa.list_(pa.int32()), "[Int32]"),
        (list_of(DATETIME), pa.list_(pa.timestamp("ms", tz="UTC")), "[Date64]"),
        (vector_type(3), pa.list_(pa.float32(), 3), "Vector(3)"),
    ],
)
def test_every_type_has_one_arrow_type_and_one_name(type_: ValueType, arrow: pa.DataType, name: str) -> None:
    assert arrow_type(type_) == arrow
    assert stored_name(type_) == name == stored_name(type_.with_nullable())
    assert arrow_field("p", type_) == pa.field("p", arrow, nullable=False)
    assert arrow_field("p", type_.with_nullable()) == pa.field("p", arrow, nullable=True)


def test_items_of_lists_are_called_item() -> None:
    assert arrow_type(list_of(STRING)).value_field.name == "item"
    assert arrow_type(vector_type(2)).value_field.name == "item"


def test_a_blob_has_no_arrow_type_here_and_is_no_result() -> None:
    assert stored_name(BLOB) == "Blob"
    with pytest.raises(InternalError, match="the storage lays it out"):
        arrow_type(BLOB)
    with pytest.raises(InternalError, match="never part of a result"):
        to_json_value("x", BLOB)
    with pytest.raises(InternalError, match="never part of a result"):
        column_to_json(pa.chunked_array([], pa.binary()), BLOB)


@pytest.mark.parametrize("scalar", [*sorted(INTEGERS), Scalar.DATE, Scalar.DATETIME])
def test_bounds_are_those_of_the_arrow_type(scalar: Scalar) -> None:
    low, high = integer_bounds(scalar)
    type_ = arrow_type(ValueType(scalar))
    assert len(pa.array([low, high], type_)) == 2
    for outside in (low - 1, high + 1):
        with pytest.raises((OverflowError, pa.ArrowInvalid, pa.ArrowTypeError)):
            pa.array([outside], type_)


@pytest.mark.parametrize("scalar", [Scalar.STRING, Scalar.F64, Scalar.VECTOR])
def test_only_integers_and_dates_have_bounds(scalar: Scalar) -> None:
    with pytest.raises(InternalError, match="is not stored as an integer"):
        integer_bounds(scalar)


def test_arrow_is_loaded_only_when_it_is_used() -> None:
    script = (
        "import sys; from omnigraph.lang import types, values; from omnigraph.lang.query import parameters;"
        "values.convert('2024-01-01', types.DATE); sys.exit('pyarrow' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0


# --- what may be stored --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "type_", "stored"),
    [
        ("", STRING, ""),
        ("a\0ü😀", STRING, "a\0ü😀"),
        ("high", ENUM, "high"),
        ("base64:AA==", BLOB, "base64:AA=="),
        (True, BOOL, True),
        (-(2**31), I32, -(2**31)),
        (2**63 - 1, I64, 2**63 - 1),
        (2**32 - 1, U32, 2**32 - 1),
        (2**64 - 1, U64, 2**64 - 1),
        (0.1, F64, 0.1),
        (0.1, F32, 0.10000000149011612),
        (3, F64, 3.0),
        (3, F32, 3.0),
        (2**53 + 1, F64, 2.0**53),
        (LARGEST_F32, F32, LARGEST_F32),
        (3.4028235677973362e38, F32, LARGEST_F32),  # the range is that of the rounded value
        ("1970-01-02", DATE, 1),
        (1, DATE, 1),
        ("1970-01-01T00:00:01Z", DATETIME, 1000),
        (1000, DATETIME, 1000),
        ([1, 2.5], vector_type(2), (1.0, 2.5)),
        ((0.1,), vector_type(1), (0.10000000149011612,)),
        ([], list_of(STRING), ()),
        (["1970-01-02", 5], list_of(DATE), (1, 5)),
        ((1, 2), list_of(F32), (1.0, 2.0)),
        (None, I32.with_nullable(), None),
        (None, vector_type(2, nullable=True), None),
    ],
)
def test_a_fitting_value_is_stored(value: object, type_: ValueType, stored: object) -> None:
    found = convert(value, type_)
    assert found == stored
    assert type(found) is type(stored)


@pytest.mark.parametrize(
    ("value", "type_", "message"),
    [
        (2**31, I32, "integer value 2147483648 exceeds Int32 range"),
        (-(2**31) - 1, I32, "integer value -2147483649 exceeds Int32 range"),
        (2**63, I64, "integer value 9223372036854775808 exceeds Int64 range"),
        (-1, U32, "integer value -1 exceeds UInt32 range"),
        (2**32, U32, "integer value 4294967296 exceeds UInt32 range"),
        (-1, U64, "integer value -1 exceeds UInt64 range"),
        (2**64, U64, "integer value 18446744073709551616 exceeds UInt64 range"),
        (2**31, DATE, "integer value 2147483648 exceeds Date32 range"),
        (2**63, DATETIME, "integer value 9223372036854775808 exceeds Date64 range"),
        pytest.param(10**5000, I64, "integer value 2^16609 and more exceeds Int64 range", id="huge"),
        (1e39, F32, "float value 1e+39 exceeds Float32 range"),
        (-3.4028235677973366e38, F32, "float value -3.4028235677973366e+38 exceeds Float32 range"),
        (10**39, F32, f"float value {10**39} exceeds Float32 range"),
        (10**400, F64, "float value 2^1328 and more exceeds Float64 range"),
        (math.nan, F32, "float value NaN must be finite"),
        (math.inf, F64, "float value Infinity must be finite"),
        (-math.inf, F32, "float value -Infinity must be finite"),
        ([1.0], vector_type(2), "vector property expects 2 dimensions, got 1"),
        ([], vector_type(2), "vector property expects 2 dimensions, got 0"),
        ([0.0, 1e39], vector_type(2), "float value 1e+39 exceeds Float32 range"),
        ([0, 10**400], vector_type(2), "float value 2^1328 and more exceeds Float32 range"),
        ([0.0, math.nan], vector_type(2), "float value NaN must be finite"),
        ([0.0, "1"], vector_type(2), 'cannot convert String("1") to Float32'),
        ([0.0, None], vector_type(2), "cannot convert Null to Float32"),
        ([True, 0.0], vector_type(2), "cannot convert Bool(true) to Float32"),
        ("2024-02-30", DATE, "invalid Date literal '2024-02-30'"),
        ("2024-02-30", DATETIME, "invalid DateTime literal '2024-02-30'"),
        (["2024-02-30"], list_of(DATE), "invalid Date literal '2024-02-30'"),
        ([1, 2**31], list_of(I32), "integer value 2147483648 exceeds Int32 range"),
        ([1, None], list_of(I32), "cannot convert Null to Int32"),
        ([[1]], list_of(I32), "cannot convert List of 1 to Int32"),
        ("\ud800", STRING, r"text '\ud800' contains a lone surrogate"),
        (["a", "\udfff"], list_of(STRING), r"text '\udfff' contains a lone surrogate"),
        (None, STRING, "null is not accepted for a non-nullable property"),
        (3.0, I64, "cannot convert Float(3.0) to Int64"),
        (2.7, U32, "cannot convert Float(2.7) to UInt32"),
        (1, BOOL, "cannot convert Integer(1) to Boolean"),
        (False, I32, "cannot convert Bool(false) to Int32"),
        ({}, I32, "cannot convert dict to Int32"),
        ("x" * 1000, I32, f'cannot convert String("{"x" * 60}…") to Int32'),
        ('"ü\ud800', I32, 'cannot convert String("\\"ü\\\\ud800") to Int32'),
    ],
)
def test_a_value_that_does_not_fit_is_refused(value: object, type_: ValueType, message: str) -> None:
    with pytest.raises(InvalidValue) as found:
        convert(value, type_)
    assert found.value.message == message


KINDS: dict[str, object] = {
    "Null": None,
    "Bool(true)": True,
    "Integer(1)": 1,
    "Float(1.5)": 1.5,
    'String("x")': "x",
    "List of 1": [1],
    "dict": {"a": 1},
    "bytes": b"x",
}
ACCEPTED = {
    Scalar.STRING: {'String("x")'},
    Scalar.BLOB: {'String("x")'},
    Scalar.BOOL: {"Bool(true)"},
    **{scalar: {"Integer(1)"} for scalar in INTEGERS},
    **{scalar: {"Integer(1)", "Float(1.5)"} for scalar in (Scalar.F32, Scalar.F64)},
    # Text is the right kind; that `x` names no day is another refusal.
    **{scalar: {"Integer(1)", 'String("x")'} for scalar in (Scalar.DATE, Scalar.DATETIME)},
}


WRONG_KINDS = [
    (scalar, kind) for scalar in sorted(ACCEPTED) for kind in KINDS if kind not in ACCEPTED[scalar]
]


@pytest.mark.parametrize(("scalar", "kind"), WRONG_KINDS)
def test_no_kind_becomes_another(scalar: Scalar, kind: str) -> None:
    refused = f"cannot convert {kind} to {stored_name(ValueType(scalar))}"
    single = refused if kind != "Null" else "null is not accepted for a non-nullable property"
    for value, type_, message in (
        (KINDS[kind], ValueType(scalar), single),
        ([KINDS[kind]], list_of(ValueType(scalar)), refused),
    ):
        with pytest.raises(InvalidValue) as found:
            convert(value, type_)
        assert found.value.message == message


@pytest.mark.parametrize("type_", [list_of(I32), list_of(STRING), vector_type(1)], ids=str)
@pytest.mark.parametrize("kind", sorted(set(KINDS) - {"Null", "List of 1"}))
def test_only_a_list_becomes_a_list_or_vector(type_: ValueType, kind: str) -> None:
    with pytest.raises(InvalidValue) as found:
        convert(KINDS[kind], type_)
    assert found.value.message == f"cannot convert {kind} to {stored_name(type_)}"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("ünï 🙂", "ünï 🙂"),
        ("nick\x1b[31m", r"nick\x1b[31m"),
        ("a\nb\tc\x7f\x9b", r"a\nb\tc\x7f\x9b"),
        ("\u202eevil\u2028", r"\u202eevil\u2028"),
        ("\ud800", r"\ud800"),
        ("x" * 61, "x" * 60 + "…"),
    ],
)
def test_a_text_in_a_message_steers_no_terminal(text: str, shown: str) -> None:
    assert shorten_legibly(text) == shown


# --- JSON ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("stored", "type_", "expected"),
    [
        ("a", STRING, "a"),
        (True, BOOL, True),
        (-5, I32, -5),
        (2**53 + 1, I64, 9007199254740993),
        (2**64 - 1, U64, 18446744073709551615),
        (0.10000000149011612, F32, 0.10000000149011612),
        (math.nan, F64, "NaN"),
        (math.inf, F32, "Infinity"),
        (-math.inf, F64, "-Infinity"),
        (19_782, DATE, "2024-02-29"),
        (1_704_067_200_000, DATETIME, "2024-01-01T00:00:00.000Z"),
        ((), list_of(I32), []),
        ((0, 1), list_of(DATE), ["1970-01-01", "1970-01-02"]),
        ((1.5, math.inf), list_of(F64), [1.5, "Infinity"]),
        ((1.5, math.nan, -math.inf), vector_type(3), [1.5, None, None]),
        (None, I64.with_nullable(), None),
        (None, vector_type(3, nullable=True), None),
    ],
)
def test_results_are_json(stored: Any, type_: ValueType, expected: object) -> None:
    assert to_json_value(stored, type_) == expected
    column = pa.array([stored, stored], arrow_type(type_))
    assert column_to_json(column, type_) == [expected, expected]
    assert json.loads(json.dumps(column_to_json(column, type_), allow_nan=False)) == [expected, expected]


@pytest.mark.parametrize("type_", [I64, U64])
def test_js_safe_results_write_large_integers_as_text(type_: ValueType) -> None:
    column = pa.array([0, JS_SAFE, JS_SAFE + 1, None], arrow_type(type_))
    assert column_to_json(column, type_, js_safe=True) == [0, JS_SAFE, "9007199254740992", None]
    assert column_to_json(column[:2], type_, js_safe=True) == [0, JS_SAFE]
    assert column_to_json(column, type_) == [0, JS_SAFE, JS_SAFE + 1, None]
    assert to_json_value((JS_SAFE + 1, 1), list_of(type_), js_safe=True) == ["9007199254740992", 1]


def test_js_safe_results_write_large_negative_integers_as_text() -> None:
    column = pa.array([-JS_SAFE, -JS_SAFE - 1], pa.int64())
    assert column_to_json(column, I64, js_safe=True) == [-JS_SAFE, "-9007199254740992"]


def test_js_safe_leaves_other_types_alone() -> None:
    assert column_to_json(pa.array([2.0**60]), F64, js_safe=True) == [2.0**60]
    assert column_to_json(
        pa.array([2**60], pa.int64()).cast(pa.float32(), safe=False), F32, js_safe=True
    ) == [2.0**60]


@pytest.mark.parametrize("type_", [STRING, I64, F64, DATE, DATETIME, list_of(DATE), vector_type(2)], ids=str)
def test_a_column_without_values_is_null_throughout(type_: ValueType) -> None:
    assert column_to_json(pa.nulls(2), type_) == [None, None]
    assert column_to_json(pa.nulls(2, arrow_type(type_)), type_) == [None, None]
    assert column_to_json(pa.array([], arrow_type(type_)), type_) == []
    assert column_to_json(pa.chunked_array([], arrow_type(type_)), type_) == []


def test_moments_stored_with_a_finer_unit_must_be_whole_milliseconds() -> None:
    assert column_to_json(pa.array([1_000], pa.timestamp("us")), DATETIME) == ["1970-01-01T00:00:00.001Z"]
    with pytest.raises(pa.ArrowInvalid):
        column_to_json(pa.array([1_001], pa.timestamp("us")), DATETIME)


def stored_atoms(scalar: Scalar) -> st.SearchStrategy[Any]:
    """Stored values, with the edges of the range often among them, and floats that are not finite."""
    if scalar is Scalar.STRING:
        return st.text(st.characters(exclude_categories=["Cs"]))
    if scalar is Scalar.BOOL:
        return st.booleans()
    if scalar in (Scalar.F32, Scalar.VECTOR):
        return st.floats(width=32)
    if scalar is Scalar.F64:
        return st.floats()
    usual = {
        Scalar.DATE: st.integers(-800_000, 3_000_000),
        Scalar.DATETIME: st.integers(-800_000 * dates.DAY, 3_000_000 * dates.DAY),
    }
    return st.integers(*integer_bounds(scalar)) | usual.get(scalar, st.integers(0, 9))


types = st.one_of(
    st.sampled_from(STORABLE).map(ValueType),
    st.sampled_from(STORABLE).map(ValueType).map(list_of),
    st.integers(1, 4).map(vector_type),
)


@st.composite
def columns(draw: st.DrawFn) -> tuple[ValueType, list[Any]]:
    type_ = draw(types)
    values = stored_atoms(type_.scalar)
    if type_.scalar is Scalar.VECTOR:
        values = st.tuples(*[values] * type_.dimension)
    elif type_.is_list:
        values = st.lists(values, max_size=4).map(tuple)
    return type_, draw(st.lists(st.none() | values, max_size=8))


@pytest.mark.fuzz
@given(columns(), st.booleans(), st.integers(0, 8))
def test_columns_and_single_values_give_the_same_json(
    column: tuple[ValueType, list[Any]], js_safe: bool, cut: int
) -> None:
    type_, values = column
    expected = [to_json_value(value, type_, js_safe=js_safe) for value in values]
    array = pa.array(values, arrow_type(type_))
    assert column_to_json(array, type_, js_safe=js_safe) == expected
    chunked = pa.chunked_array([array[:cut], array[cut:]], arrow_type(type_))
    assert column_to_json(chunked, type_, js_safe=js_safe) == expected
    assert column_to_json(array[cut:], type_, js_safe=js_safe) == expected[cut:]
    json.dumps(expected, allow_nan=False)


@pytest.mark.fuzz
@given(columns())
def test_finite_stored_values_survive_json_and_conversion(column: tuple[ValueType, list[Any]]) -> None:
    type_, values = column
    for value in values:
        items = value if isinstance(value, tuple) else (value,)
        if value is None or not all(math.isfinite(item) for item in items if isinstance(item, float)):
            continue
        assert convert(value, type_) == value
        assert convert(to_json_value(value, type_), type_) == value
