"""What Lance keeps of a graph stays inside a share of the memory that reads may keep."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from omnigraph.errors import InvalidValue
from omnigraph.storage.cache_budget import CACHE_BYTES
from omnigraph.storage.index_parts import IVF_FLAT
from omnigraph.storage.indexes import IndexSpec, stage_indexes
from omnigraph.storage.location import Location
from omnigraph.storage.search import find_vector_index, search_vectors
from omnigraph.storage.session import LEAST_BYTES, Access, drop_pinned_session, fork_session, pinned_session
from omnigraph.storage.staging import commit_staged, stage_append
from omnigraph.storage.tables import Tables

WIDTH = 192


def test_an_index_larger_than_the_budget_is_searched_and_not_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    vectors = np.random.default_rng(1).normal(size=(24_000, WIDTH)).astype(np.float32)
    schema = pa.schema(
        [pa.field("id", pa.string(), nullable=False), pa.field("at", pa.list_(pa.float32(), WIDTH))]
    )
    column = pa.FixedSizeListArray.from_arrays(pa.array(vectors.ravel()), WIDTH)
    rows = pa.table([pa.array([f"d{at}" for at in range(len(vectors))]), column], schema=schema)
    tables, place = Tables(cached_handles=0), Location.parse(tmp_path / "docs")
    made = commit_staged(stage_append(tables.create(place, schema, primary_key="id"), rows))
    spec = IndexSpec("at", IVF_FLAT, "by_at", {"num_partitions": 4, "metric": "L2"})
    version = commit_staged(stage_indexes(made, [spec])).version

    def kept() -> int:
        drop_pinned_session(tables.access)
        table = tables.open(place, version)
        index = find_vector_index(table, "at")
        assert index is not None
        for query in vectors[:4]:
            assert search_vectors(table, index, "at", query, 10) is not None
        return int(pinned_session(tables.access).size_bytes())

    for given in ("0", "40000000"):
        monkeypatch.setenv(CACHE_BYTES, given)
        assert kept() <= 2 * max(LEAST_BYTES, int(given) // 4)
    monkeypatch.delenv(CACHE_BYTES)
    assert kept() > vectors.nbytes // 2, "it is kept where there is room"


def test_a_setting_that_is_no_number_is_reported_before_anything_is_kept(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv(CACHE_BYTES, "much")
    sessions: list[Callable[[], object]] = [lambda: pinned_session(Access()), fork_session]
    for session in sessions:
        with pytest.raises(InvalidValue, match=f"{CACHE_BYTES} must be a number of bytes"):
            session()
