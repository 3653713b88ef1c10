"""Texts looked up as numbers are found exactly when they would be found as texts."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from omnigraph.engine.rows.lookup import find_absent, is_subset

_ODD = [
    "",
    "007",
    "+1",
    "-1",
    " 1",
    "1 ",
    "0x1f",
    "0xfffff",
    "1e3",
    "1.0",
    "\u0661",
    "a",
    "1\x00",
    "9" * 18,
    "9" * 19,
]
_NUMBERS = st.integers(0, 40).map(str)
_TEXTS = st.lists(_NUMBERS | st.sampled_from(_ODD), max_size=12)


def _cut_array(texts: list[str], cut: int) -> pa.ChunkedArray:
    whole = pa.array(["before", *texts], pa.string())[1:]
    return pa.chunked_array([whole[:cut], whole[cut:]], pa.string())


@pytest.mark.fuzz
@given(wanted=_TEXTS | st.lists(_NUMBERS), known=_TEXTS | st.lists(_NUMBERS), cut=st.integers(0, 12))
def test_all_are_found_that_are_there_and_no_others(wanted: list[str], known: list[str], cut: int) -> None:
    absent = find_absent(_cut_array(wanted, cut), _cut_array(known, cut)).to_pylist()
    assert sorted(absent) == sorted(set(wanted) - set(known))
    assert is_subset(_cut_array(wanted, cut), _cut_array(known, cut)) == (not absent)


@pytest.mark.parametrize("known", [["5", "9" * 18], ["5", "1048575", "31"]])
def test_what_only_reads_like_a_number_is_not_one(known: list[str]) -> None:
    for odd in ("05", "+5", "0xfffff", "0x1f", "5 ", "9" * 19):
        assert not is_subset(_cut_array([odd], 0), _cut_array(known, 1))
        assert is_subset(_cut_array([odd, "5"], 1), _cut_array([odd, *known], 2))
