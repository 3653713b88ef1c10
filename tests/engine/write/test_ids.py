"""Ids of rows: the same as for single keys, whatever the column; and generated ones."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from ulid import ULID

from omnigraph.engine.rows.ids import LoadIds, compose_ids, generate_ids, render_keys
from omnigraph.engine.rows.json_columns import build_column
from omnigraph.errors import InvalidValue
from omnigraph.lang.schema.keys import compose_id, render_scalar
from omnigraph.lang.types import Scalar, ValueType, vector_type
from omnigraph.lang.values import integer_bounds

_FLOATS = st.floats(allow_nan=False, allow_infinity=False)
_STORED: dict[Scalar, st.SearchStrategy[Any]] = {
    Scalar.STRING: st.text() | st.text('a"\\\n\x00\x7fé\u2028', max_size=4),
    Scalar.BOOL: st.booleans(),
    Scalar.F32: st.floats(width=32, allow_nan=False, allow_infinity=False)
    | st.sampled_from([93738272.0, 2.0**24]),
    Scalar.F64: _FLOATS
    | st.integers(-(2**60), 2**60).map(float)
    | st.sampled_from([0.0, -0.0, 1e21, 1e-7, 2.0**53]),
}
_SCALARS = [scalar for scalar in Scalar if scalar not in (Scalar.VECTOR, Scalar.BLOB)]


def _stored_values(scalar: Scalar) -> st.SearchStrategy[Any]:
    return _STORED[scalar] if scalar in _STORED else st.integers(*integer_bounds(scalar))


@pytest.mark.fuzz
@given(st.sampled_from(_SCALARS), st.data())
def test_a_column_of_keys_renders_as_each_value_does(scalar: Scalar, data: st.DataObject) -> None:
    values = data.draw(st.lists(_stored_values(scalar) | st.none(), max_size=6))
    found = render_keys(build_column(values, ValueType(scalar)), ValueType(scalar))
    assert found.to_pylist() == [None if v is None else render_scalar(v, ValueType(scalar)) for v in values]


@pytest.mark.fuzz
@given(st.lists(st.sampled_from(_SCALARS), min_size=1, max_size=3), st.data())
def test_composite_ids_are_composed_as_single_ones_are(scalars: list[Scalar], data: st.DataObject) -> None:
    rows = data.draw(
        st.lists(st.tuples(*(_stored_values(scalar) | st.none() for scalar in scalars)), max_size=5)
    )
    columns = [
        build_column([row[at] for row in rows], ValueType(scalar)) for at, scalar in enumerate(scalars)
    ]
    found = compose_ids(
        [render_keys(column, ValueType(scalar)) for column, scalar in zip(columns, scalars, strict=True)]
    )
    expected = [
        None
        if None in row
        else compose_id([render_scalar(v, ValueType(s)) for v, s in zip(row, scalars, strict=True)])
        for row in rows
    ]
    assert found.to_pylist() == expected


def test_what_cannot_be_a_key_is_refused_at_its_first_value() -> None:
    lists = ValueType(Scalar.STRING, is_list=True)
    assert render_keys(pa.nulls(2, pa.list_(pa.string())), lists).to_pylist() == [None, None]
    with pytest.raises(InvalidValue, match=r"scalar key: unsupported column type \[String\]"):
        render_keys(pa.array([None, ["x"]]), lists)
    with pytest.raises(InvalidValue, match=r"scalar key: unsupported column type Vector\(1\)"):
        render_keys(pa.array([[1.0]], pa.list_(pa.float32(), 1)), vector_type(1))
    with pytest.raises(
        InvalidValue, match="scalar key: non-finite Float64 value NaN cannot identify an entity"
    ):
        render_keys(pa.array([1.0, float("nan")]), ValueType(Scalar.F64))


@pytest.mark.fuzz
@given(
    st.integers(0, 2**48 - 1),
    st.integers(0, 2**24 - 1),
    st.integers(0, 2**16 - 1),
    st.lists(st.integers(0, 2**40 - 1), max_size=4),
)
def test_a_generated_id_says_when_and_where_its_record_was_read(
    milliseconds: int, salt: int, file_number: int, positions: list[int]
) -> None:
    found = LoadIds(milliseconds, salt).ids(file_number, np.array(positions, np.int64)).to_pylist()
    bits = [(milliseconds << 80) | (salt << 56) | (file_number << 40) | position for position in positions]
    assert found == [str(ULID(number.to_bytes(16, "big"))) for number in bits]


def test_a_place_that_does_not_fit_an_id_is_refused() -> None:
    ids = LoadIds(0, 0)
    with pytest.raises(InvalidValue, match="file number 1099511627776 is beyond 1099511627775"):
        ids.ids(2**40, np.array([0]))
    with pytest.raises(InvalidValue, match="position 1099511627776 in a file is beyond 1099511627775"):
        ids.ids(0, np.array([0, 2**40]))


def test_files_beyond_the_numbers_of_an_id_go_by_groups_with_bits_of_their_own() -> None:
    ids, last = LoadIds(7, 2**24 - 1), LoadIds(7, 2**24 - 1).ids(2**16 - 1, np.array([3]))
    numbers = (0, 2**16 - 1, 2**16, 2**16 + 5, 2 * 2**16)
    found = [ids.ids(number, np.array([3]))[0].as_py() for number in numbers]
    assert (len(set(found)), found[1]) == (len(numbers), last[0].as_py())
    # The group after the last of all salts has the first.
    assert found[2:4] == [LoadIds(7, 0).ids(number, np.array([3]))[0].as_py() for number in (0, 5)]


def test_two_loads_of_one_moment_have_other_ids() -> None:
    assert len({LoadIds(1).salt for _ in range(20)}) > 1


@pytest.mark.parametrize("count", [1, 2, 25])
def test_fresh_ids_are_ulids_of_their_moment(count: int) -> None:
    entropy = bytes(range(10 * count))
    parts = [entropy[start : start + 10] for start in range(0, len(entropy), 10)]
    expected = [str(ULID((123).to_bytes(6, "big") + part)) for part in parts]
    assert generate_ids(count, 123, entropy).to_pylist() == expected


def test_fresh_ids_differ_and_there_may_be_none() -> None:
    assert generate_ids(0, 123).to_pylist() == []
    assert len(set(generate_ids(100, 123).to_pylist())) == 100
