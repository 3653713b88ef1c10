"""Key values become ids the same way for ever."""

from __future__ import annotations

import json
import math
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from omnigraph.errors import InvalidValue
from omnigraph.lang.schema.keys import compose_id, render_scalar
from omnigraph.lang.types import F64, STRING, Scalar, ValueType, vector_type

F32 = ValueType(Scalar.F32)


def as_f32(text: str) -> float:
    return float(struct.unpack("<f", struct.pack("<f", float(text)))[0])


@pytest.mark.parametrize(
    ("value", "width", "shown"),
    [
        (math.nan, F64, "NaN"),
        (math.inf, F64, "inf"),
        (-math.inf, F64, "-inf"),
        (math.nan, F32, "NaN"),
        (1e39, F32, "inf"),
    ],
)
def test_a_value_that_is_no_number_has_no_id(value: float, width: ValueType, shown: str) -> None:
    name = "Float32" if width is F32 else "Float64"
    with pytest.raises(InvalidValue) as caught:
        render_scalar(value, width)
    expected = f"scalar key: non-finite {name} value {shown} cannot identify an entity"
    assert caught.value.message == expected


@pytest.mark.parametrize(
    "kind", [ValueType(Scalar.BLOB), vector_type(3), ValueType(Scalar.I32, is_list=True)], ids=str
)
def test_only_scalars_identify(kind: ValueType) -> None:
    with pytest.raises(InvalidValue, match="scalar key: unsupported column type"):
        render_scalar(1, kind)


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        (None, STRING),
        (1, STRING),
        (True, ValueType(Scalar.I32)),
        ("1", ValueType(Scalar.I64)),
        (1, ValueType(Scalar.BOOL)),
        (1.0, ValueType(Scalar.DATE)),
        (True, F64),
    ],
)
def test_a_value_of_another_kind_is_refused(value: object, kind: ValueType) -> None:
    with pytest.raises(InvalidValue, match="scalar key: "):
        render_scalar(value, kind)


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_doubles_round_trip_without_exponent(value: float) -> None:
    text = render_scalar(value, F64)
    assert float(text) == value
    assert not set(text) & set("eE+")
    assert not text.endswith(".0")


@given(st.floats(allow_nan=False, allow_infinity=False, width=32))
def test_floats_round_trip_at_their_own_width(value: float) -> None:
    text = render_scalar(value, F32)
    assert as_f32(text) == value
    digits = text.strip("-").replace(".", "").strip("0")
    assert len(digits) <= 9
    shorter = [f"{value:.{precision}e}" for precision in range(max(0, len(digits) - 1))]
    assert all(_reads_differently(each, value) for each in shorter), "a shorter text reads back as well"


def _reads_differently(text: str, value: float) -> bool:
    try:
        return as_f32(text) != value
    except OverflowError:
        return True


@pytest.mark.parametrize(
    ("bits", "text"),
    [
        (0x00000001, f"0.{'0' * 44}1"),
        (0x00800000, f"0.{'0' * 37}11754944"),
        (0x0F800000, f"0.{'0' * 28}12621775"),
        (0x35800000, "0.0000009536743"),
        (0x3DCCCCCD, "0.1"),
        (0x4B800000, "16777216"),
        (0x4C000000, "33554432"),
        (0x5E800000, "4611686000000000000"),
        (0x6C800000, f"12379401{'0' * 20}"),
        (0x7F7FFFFF, f"34028235{'0' * 31}"),
        (0xBF800000, "-1"),
    ],
)
def test_floats_of_known_bits_have_their_shortest_text(bits: int, text: str) -> None:
    assert render_scalar(struct.unpack("<f", struct.pack("<I", bits))[0], F32) == text


@given(st.lists(st.text(st.characters(exclude_categories=["Cs"])), min_size=2, max_size=4))
def test_composite_ids_are_compact_json_and_tell_tuples_apart(parts: list[str]) -> None:
    found = compose_id(parts)
    assert json.loads(found) == parts
    assert compose_id([found]) == found
