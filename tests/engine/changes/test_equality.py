"""When two stored values are the same."""

from __future__ import annotations

import struct
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from omnigraph.engine.changes.equality import values_differ

FLOATS = st.floats(allow_nan=False) | st.sampled_from([0.0, -0.0])
COLUMNS: list[tuple[pa.DataType, st.SearchStrategy[Any]]] = [
    (pa.string(), st.text(max_size=2)),
    (pa.bool_(), st.booleans()),
    (pa.int64(), st.integers(-1, 1)),
    (pa.uint64(), st.integers(2**64 - 2, 2**64 - 1)),
    (pa.float64(), FLOATS),
    (pa.float32(), st.sampled_from([0.0, -0.0, 1.5])),
    (pa.date32(), st.dates()),
    (pa.large_binary(), st.binary(max_size=1)),
    (pa.list_(pa.string()), st.lists(st.sampled_from(["", "a"]), max_size=2)),
    (pa.list_(pa.float64()), st.lists(st.sampled_from([0.0, -0.0]), max_size=2)),
    (pa.list_(pa.float32(), 2), st.lists(st.sampled_from([0.0, -0.0]), min_size=2, max_size=2)),
]


def plain(value: Any) -> Any:
    """Something whose equality in Python is that of stored values."""
    if isinstance(value, float):
        return struct.pack("<d", value)
    return [plain(item) for item in value] if isinstance(value, list) else value


@pytest.mark.parametrize(("kind", "values"), COLUMNS, ids=[str(kind) for kind, _ in COLUMNS])
def test_columns_differ_where_their_values_do(kind: pa.DataType, values: st.SearchStrategy[Any]) -> None:
    cells = st.none() | values

    @given(st.lists(st.tuples(cells, cells)))
    def check(rows: list[tuple[Any, Any]]) -> None:
        left, right = (pa.chunked_array([pa.array([row[side] for row in rows], kind)]) for side in (0, 1))
        expected = [plain(a) != plain(b) for a, b in rows]
        assert values_differ(left, right).tolist() == expected
        halves = pa.chunked_array([left.slice(0, 1).combine_chunks(), left.slice(1).combine_chunks()], kind)
        assert values_differ(halves, right).tolist() == expected

    check()


@pytest.mark.parametrize(
    ("left", "right", "expected"),
    [
        (pa.array([1, 2, None], pa.int32()), pa.array([1, 3, None], pa.int64()), [False, True, False]),
        (pa.array([1, 2], pa.int64()), pa.array([1.0, 2.5], pa.float64()), [False, True]),
        (pa.array([0.5, -0.0], pa.float32()), pa.array([0.5, 0.0], pa.float64()), [False, True]),
        (pa.array([-1, 5], pa.int64()), pa.array([2**64 - 1, 5], pa.uint64()), [True, False]),
        (pa.array(["1", None]), pa.array([1, None], pa.int64()), [True, False]),
        (pa.array([[1]], pa.list_(pa.int32())), pa.array([[1]], pa.list_(pa.int64())), [False]),
        (pa.array(["a"]), pa.array(["a"], pa.large_string()), [False]),
        (
            pa.array([[1.0]], pa.list_(pa.float32(), 1)),
            pa.array([[1.0, 2.0]], pa.list_(pa.float32(), 2)),
            [True],
        ),
    ],
)
def test_columns_of_different_types_are_compared_by_what_they_mean(
    left: pa.Array, right: pa.Array, expected: list[bool]
) -> None:
    assert values_differ(left, right).tolist() == expected
    assert values_differ(right, left).tolist() == expected
