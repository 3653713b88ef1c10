"""Parameters of a query: JSON in, stored values out, and every refusal in the user's own names."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from omnigraph.errors import ParameterError
from omnigraph.lang.query import ast
from omnigraph.lang.query.parameters import check_count, decode_parameters
from omnigraph.lang.types import INTEGERS, SCALARS, Scalar, ValueType, vector_type
from omnigraph.lang.values import JS_SAFE, integer_bounds

ENGINE_MAX = 2**63 - 1


def type_of(text: str) -> ValueType:
    """`I32`, `[I32]?` or `Vector(2)`."""
    bare = text.removesuffix("?")
    nullable = bare != text
    if bare.startswith("Vector("):
        return vector_type(int(bare[len("Vector(") : -1]), nullable=nullable)
    return ValueType(SCALARS[bare.strip("[]")], nullable=nullable, is_list=bare.startswith("["))


def decode(type_: str, value: object, *, js_safe: bool = False) -> Any:
    return decode_parameters([ast.Parameter("n", type_of(type_))], {"n": value}, js_safe=js_safe)["n"]


def refusal(type_: str, value: object, *, js_safe: bool = False) -> str:
    with pytest.raises(ParameterError) as found:
        decode(type_, value, js_safe=js_safe)
    assert found.value.name == "n"
    assert found.value.message.startswith("param 'n': ")
    return found.value.message.removeprefix("param 'n': ")


# --- the object ----------------------------------------------------------------------------------


def test_all_declared_parameters_come_back_in_order_and_nothing_else() -> None:
    declared = [ast.Parameter("b", type_of("I32")), ast.Parameter("a", type_of("String?"))]
    found = decode_parameters(declared, {"a": "x", "other": [1, 2], "more": None, "b": 1, 7: 8})
    assert list(found.items()) == [("b", 1), ("a", "x")]


def test_nullable_parameters_default_to_null() -> None:
    declared = [ast.Parameter("a", type_of("String?")), ast.Parameter("v", type_of("Vector(2)?"))]
    assert decode_parameters(declared, {}) == {"a": None, "v": None}
    assert decode_parameters(declared, None) == {"a": None, "v": None}
    assert decode_parameters(declared, {"a": None}) == {"a": None, "v": None}


@pytest.mark.parametrize("given_", [[], "", "{}", 0, 1.5, False, [("n", 1)]])
def test_parameters_are_an_object(given_: object) -> None:
    with pytest.raises(ParameterError) as found:
        decode_parameters([], given_)
    assert found.value.message == "params must be a JSON object"


@pytest.mark.parametrize("given_", [None, {}, {"N": 1}])
def test_a_missing_parameter_is_named(given_: object) -> None:
    with pytest.raises(ParameterError) as found:
        decode_parameters([ast.Parameter("n", type_of("I32"))], given_)
    assert found.value.message == "parameter 'n' not provided"
    assert found.value.name == "n"
    assert found.value.remedy == "give it: -p n=VALUE (`params`)"


def test_a_name_given_with_a_dollar_sign_is_explained() -> None:
    with pytest.raises(ParameterError) as found:
        decode_parameters([ast.Parameter("n", type_of("I32"))], {"$n": 1})
    assert found.value.message == "parameter 'n' not provided"
    assert found.value.remedy == "write parameter names without `$`"


def test_an_object_is_refused_even_under_an_unknown_name() -> None:
    with pytest.raises(ParameterError) as found:
        decode_parameters([], {"filter": {"a": 1}})
    assert found.value.message == "param 'filter': object is not supported"
    assert found.value.name == "filter"


ALL_TYPES = [*SCALARS, "[String]", "[I32]", "[Date]", "Vector(2)"]


@pytest.mark.parametrize("type_", ALL_TYPES)
def test_null_is_refused_unless_the_type_says_otherwise(type_: str) -> None:
    assert refusal(type_, None) == "null is not accepted for non-nullable parameter"
    assert decode(f"{type_}?", None) is None


# --- values --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("type_", "value", "stored"),
    [
        ("String", "", ""),
        ("String", "a\0ü", "a\0ü"),
        ("Blob", "base64:AA==", "base64:AA=="),
        ("Bool", False, False),
        ("I32", -5, -5),
        ("I32", "-5", -5),
        ("I32", "+5", 5),
        ("I32", "0005", 5),
        ("I32", "-0", 0),
        ("I64", "9007199254740993", 9007199254740993),
        ("I64", 9007199254740993, 9007199254740993),
        ("I64", "-9223372036854775808", -(2**63)),
        pytest.param("I64", "0" * 10_000 + "7", 7, id="many zeros"),
        ("U32", 4294967295, 4294967295),
        ("U64", ENGINE_MAX, ENGINE_MAX),
        ("U64", "9223372036854775807", ENGINE_MAX),
        ("F64", 0.1, 0.1),
        ("F64", 3, 3.0),
        ("F32", 0.1, 0.10000000149011612),
        ("Date", "2024-02-29", 19_782),
        ("Date", "2024-02-29T23:00:00-05:00", 19_782),
        ("DateTime", "2024-01-01T02:00:00+02:00", 1_704_067_200_000),
        ("DateTime", "2024-01-01", 1_704_067_200_000),
        ("[String]", [], ()),
        ("[I64]", [1, "2"], (1, 2)),
        ("[Date]", ["1970-01-02"], (1,)),
        ("[F64]", (1, 2.5), (1.0, 2.5)),
        ("Vector(2)", [1, 0.1], (1.0, 0.10000000149011612)),
    ],
)
def test_a_fitting_value_is_stored(type_: str, value: object, stored: object) -> None:
    found = decode(type_, value)
    assert found == stored
    assert type(found) is type(stored)


@pytest.mark.parametrize(
    ("type_", "value", "reason"),
    [
        ("I32", 5.0, "expected integer number"),
        ("I64", 1e300, "expected integer number"),
        ("I64", math.nan, "expected integer number"),
        ("I32", 3_000_000_000, "value 3000000000 exceeds I32"),
        ("I32", "3000000000", "value 3000000000 exceeds I32"),
        ("I32", -(2**31) - 1, "value -2147483649 exceeds I32"),
        ("I64", 2**63, "value 9223372036854775808 exceeds I64"),
        ("I64", "-9223372036854775809", "value -9223372036854775809 exceeds I64"),
        pytest.param("I64", "9" * 100_000, "value 2^664 and more exceeds I64", id="huge text"),
        pytest.param("I64", 10**5000, "value 2^16609 and more exceeds I64", id="huge number"),
        ("I32", "", "expected integer string, got ''"),
        ("I32", "5.0", "expected integer string, got '5.0'"),
        ("I32", " 5", "expected integer string, got ' 5'"),
        ("I32", "5\n", "expected integer string, got '5\\n'"),
        ("I32", "1_000", "expected integer string, got '1_000'"),
        ("I32", "٣", "expected integer string, got '٣'"),
        ("I32", "\ud800", r"expected integer string, got '\ud800'"),
        ("Date", "\ud800", r"invalid Date literal '\ud800'"),
        ("I32", "--5", "expected integer string, got '--5'"),
        ("I32", "x" * 100, f"expected integer string, got '{'x' * 60}…'"),
        ("U32", 5.0, "expected unsigned integer number"),
        ("U32", -1, "expected unsigned integer number"),
        ("U64", -1, "expected unsigned integer number"),
        ("U32", "-1", "expected unsigned integer string, got '-1'"),
        ("U64", "x", "expected unsigned integer string, got 'x'"),
        ("U32", 2**32, "value 4294967296 exceeds U32"),
        ("U64", 2**63, f"value {2**63} exceeds current engine range for U64 (max 9223372036854775807)"),
        ("U64", str(2**65), f"value {2**65} exceeds current engine range for U64 (max 9223372036854775807)"),
        ("F32", 1e39, "float value 1e+39 exceeds Float32 range"),
        ("F64", 10**400, "float value 2^1328 and more exceeds Float64 range"),
        ("F64", math.nan, "float value NaN must be finite"),
        ("F32", -math.inf, "float value -Infinity must be finite"),
        ("F64", "1.5", "expected float"),
        ("Date", "2023-02-29", "invalid Date literal '2023-02-29'"),
        ("DateTime", "yesterday", "invalid DateTime literal 'yesterday'"),
        ("String", "\ud800", r"text '\ud800' contains a lone surrogate"),
        ("Blob", "\ud800", r"text '\ud800' contains a lone surrogate"),
        ("[I32]", [1, None], "expected integer"),
        ("[String]", ["a", None], "expected string, got null"),
        ("[String]", ["a", ["b"]], "expected string, got array"),
        ("[I32]", [2**31], "value 2147483648 exceeds I32"),
        ("[Date]", ["x"], "invalid Date literal 'x'"),
        ("[I32]?", 1, "expected array for [I32]"),
        ("Vector(2)", [1], "expected 2 values for Vector(2), got 1"),
        ("Vector(2)", [], "expected 2 values for Vector(2), got 0"),
        ("Vector(2)?", [1, 2, 3], "expected 2 values for Vector(2), got 3"),
        ("Vector(2)", [1, "2"], "vector element is not numeric"),
        ("Vector(2)", [1, None], "vector element is not numeric"),
        ("Vector(2)", [1, True], "vector element is not numeric"),
        ("Vector(2)", [1, [2]], "vector element is not numeric"),
        ("Vector(2)", [1, 1e39], "float value 1e+39 exceeds Float32 range"),
        ("Vector(2)", [math.nan, 1], "float value NaN must be finite"),
    ],
)
def test_a_value_that_does_not_fit_is_refused(type_: str, value: object, reason: str) -> None:
    assert refusal(type_, value) == reason


JSON_KINDS: dict[str, object] = {
    "null": None,
    "boolean": True,
    "number": 5,
    "fraction": 1.5,
    "string": "2024-01-01",
    "array": [1, 2],
    "object": {"a": 1},
}


def expected_kinds(type_: str) -> set[str]:
    return {
        "String": {"string"},
        "Blob": {"string"},
        "Bool": {"boolean"},
        "F32": {"number", "fraction"},
        "F64": {"number", "fraction"},
        "Date": {"string"},
        "DateTime": {"string"},
        "[I32]": {"array"},
        "Vector(2)": {"array"},
    }.get(type_, {"number"})


def expected_reason(type_: str, kind: str) -> str:
    json_kind = "number" if kind == "fraction" else kind
    integer = "unsigned integer" if type_.startswith("U") else "integer"
    return {
        "String": f"expected string, got {json_kind}",
        "Blob": f"expected blob URI string, got {json_kind}",
        "Bool": "expected boolean",
        "F32": "expected float",
        "F64": "expected float",
        "Date": "expected date string",
        "DateTime": "expected datetime string",
        "[I32]": "expected array for [I32]",
        "Vector(2)": "expected array for Vector(2)",
    }.get(
        type_,
        {
            "fraction": f"expected {integer} number",
            "string": f"expected {integer} string, got '2024-01-01'",
        }.get(kind, f"expected {integer}"),
    )


@pytest.mark.parametrize("type_", [*SCALARS, "[I32]", "Vector(2)"])
@pytest.mark.parametrize("kind", sorted(set(JSON_KINDS) - {"null"}))
def test_every_type_names_the_kind_it_wants(type_: str, kind: str) -> None:
    if kind in expected_kinds(type_):
        assert decode(type_, JSON_KINDS[kind]) is not None
    else:
        assert refusal(type_, JSON_KINDS[kind]) == expected_reason(type_, kind)


@pytest.mark.parametrize("type_", [name for name in SCALARS if name != "Blob"])
@pytest.mark.parametrize("kind", sorted(JSON_KINDS))
def test_items_of_lists_are_refused_as_single_values_are(type_: str, kind: str) -> None:
    if kind in expected_kinds(type_):
        assert len(decode(f"[{type_}]", [JSON_KINDS[kind]])) == 1
    else:
        assert refusal(f"[{type_}]", [JSON_KINDS[kind]]) == expected_reason(type_, kind)


def test_a_value_python_has_and_json_has_not_is_refused_by_its_python_name() -> None:
    assert refusal("String", b"x") == "expected string, got bytes"


def test_the_remedy_of_a_refused_date_is_kept() -> None:
    with pytest.raises(ParameterError) as found:
        decode("Date", "29.2.2024")
    assert found.value.remedy == "write a date as YYYY-MM-DD"


# --- JavaScript's numbers ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("type_", "value", "stored"),
    [
        ("I32", 5.0, 5),
        ("U64", 5.0, 5),
        ("I64", -0.0, 0),
        ("I64", JS_SAFE, JS_SAFE),
        ("I64", float(-JS_SAFE), -JS_SAFE),
        ("I64", "9007199254740993", 9007199254740993),
        ("[I64]", [1.0, 2], (1, 2)),
        ("F64", 1e300, 1e300),
        ("F64", 2**60, 2.0**60),
    ],
)
def test_js_safe_takes_whole_floats_for_integers(type_: str, value: object, stored: object) -> None:
    found = decode(type_, value, js_safe=True)
    assert found == stored
    assert type(found) is type(stored)


UNSAFE = "exceeds JS safe integer range; pass a decimal string for exact values"


@pytest.mark.parametrize(
    ("type_", "value", "reason"),
    [
        ("I64", JS_SAFE + 1, f"value 9007199254740992 {UNSAFE}"),
        ("I64", -JS_SAFE - 1, f"value -9007199254740992 {UNSAFE}"),
        ("U64", 2.0**53, f"value 9007199254740992 {UNSAFE}"),
        ("[I64]", [JS_SAFE + 1], f"value 9007199254740992 {UNSAFE}"),
        ("I32", 5.5, "expected integer number"),
        ("I32", math.nan, "expected integer number"),
        ("I32", math.inf, "expected integer number"),
        ("U32", -1.0, "expected unsigned integer number"),
        ("I32", 3e9, "value 3000000000 exceeds I32"),
    ],
)
def test_js_safe_refuses_integers_that_javascript_rounds(type_: str, value: object, reason: str) -> None:
    assert refusal(type_, value, js_safe=True) == reason


# --- counts of rows ------------------------------------------------------------------------------


def test_a_count_of_rows_is_not_negative() -> None:
    assert check_count("n", 0) == 0
    assert check_count("n", 7) == 7
    with pytest.raises(ParameterError) as found:
        check_count("n", -1)
    assert found.value.message == "param 'n': must not be negative"


# --- anything ------------------------------------------------------------------------------------

json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text()
    | st.sampled_from(["1", "2024-01-01"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=6,
)


@pytest.mark.fuzz
@given(st.sampled_from([*ALL_TYPES, "[F32]?", "Vector(1)?"]), json_values, st.booleans())
def test_any_json_is_a_value_or_refused(type_: str, value: object, js_safe: bool) -> None:
    try:
        found = decode(type_, value, js_safe=js_safe)
    except ParameterError as refused:
        sound = refused.message.startswith("param 'n': ") and bool(refused.message.encode("utf-8"))
    else:
        sound = (found is None) == (value is None)
    assert sound


@pytest.mark.fuzz
@given(st.sampled_from(sorted(INTEGERS)), st.data())
def test_integers_mean_the_same_as_numbers_and_as_text(scalar: Scalar, data: st.DataObject) -> None:
    low, high = integer_bounds(scalar)
    number = data.draw(st.integers(low, min(high, ENGINE_MAX)))
    assert decode(scalar.value, number) == decode(scalar.value, str(number)) == number
