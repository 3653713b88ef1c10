"""Keys find the same bucket wherever and however they are stored."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from omnigraph.engine.tasks.buckets import hash_keys
from omnigraph.errors import InternalError

TEXTS = st.lists(st.text(max_size=20) | st.text(alphabet="ab", min_size=500, max_size=530), max_size=8)


@pytest.mark.fuzz
@given(before=TEXTS, keys=TEXTS, after=TEXTS)
def test_a_key_has_one_hash_in_every_layout(before: list[str], keys: list[str], after: list[str]) -> None:
    plain = hash_keys(pa.array(keys, pa.string()))
    whole = pa.array([*before, *keys, *after], pa.string())
    part = whole.slice(len(before), len(keys))
    assert hash_keys(part).tolist() == plain.tolist()
    for kind in (pa.large_string(), pa.binary(), pa.large_binary()):
        assert hash_keys(part.cast(kind)).tolist() == plain.tolist()
    chunked = pa.chunked_array([part, whole.slice(0, len(before))], pa.string())
    assert hash_keys(chunked).tolist() == [
        *plain.tolist(),
        *hash_keys(pa.array(before, pa.string())).tolist(),
    ]
    assert [hash_keys(pa.array([key]))[0] for key in keys] == plain.tolist()


def test_hashes_never_change() -> None:
    # Mappers and reducers of one job may run on different machines.
    keys = pa.array(["", "a", "12345678", "123456789", "é" * 300])
    assert [f"{value:016x}" for value in hash_keys(keys)] == [
        "d0bd7ff386ad0729",
        "91e65da193ec1656",
        "164e9d2c2cafabed",
        "1467547a069b48fe",
        "8084b686be81d3e5",
    ]


def test_no_keys_have_no_hashes() -> None:
    assert hash_keys(pa.array([], pa.string())).tolist() == []
    assert hash_keys(pa.chunked_array([], pa.string())).tolist() == []


@pytest.mark.parametrize(
    "pattern",
    ["{:08d}", "https://example.org/people/{:08d}/profile.html", "{:x}" + "-" * 40, "-" * 40 + "{:x}"],
)
def test_keys_that_look_alike_spread_over_the_buckets(pattern: str) -> None:
    keys = pa.array([pattern.format(number) for number in range(20_000)])
    counts = np.bincount((hash_keys(keys) % np.uint64(16)).astype(np.int64), minlength=16)
    assert counts.min() > 1_000
    assert counts.max() < 1_500


def test_zero_bytes_at_the_end_of_a_key_count() -> None:
    assert len(set(hash_keys(pa.array([b"a", b"a\0", b"a\0\0", b"", b"\0"])).tolist())) == 5


def test_a_null_key_is_refused() -> None:
    with pytest.raises(InternalError, match="null"):
        hash_keys(pa.array(["a", None]))


def test_keys_of_another_type_are_refused() -> None:
    with pytest.raises(InternalError, match="int64"):
        hash_keys(pa.array([1, 2]))
