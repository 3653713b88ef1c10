"""Rows on their way to buckets: each once, in order, equal keys together."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import Any

import pyarrow as pa
import pytest

from omnigraph.engine.tasks.buckets import MAX_BUCKETS
from omnigraph.errors import InternalError
from omnigraph.pipeline import map_reduce
from omnigraph.pipeline.map_reduce import BLOBS, emit

ROWS = pa.table({"key": [f"k{number % 300}" for number in range(1000)], "n": range(1000)})


def collect_rows(batches: Iterable[pa.RecordBatch]) -> dict[int, list[dict[str, Any]]]:
    found: dict[int, list[dict[str, Any]]] = defaultdict(list)
    for batch in batches:
        assert batch.schema == BLOBS
        for row in batch.to_pylist():
            assert row["tag"] == "t"
            found[row["bucket"]] += pa.ipc.open_stream(row["blob"]).read_all().to_pylist()
    return found


@pytest.mark.parametrize("buckets", [1, 2, 7, 1000, MAX_BUCKETS])
def test_every_row_arrives_once_and_equal_keys_together(buckets: int) -> None:
    found = collect_rows(emit("t", ROWS, "key", buckets))
    assert sorted(row["n"] for rows in found.values() for row in rows) == list(range(1000))
    assert all(0 <= bucket < buckets for bucket in found)
    homes: defaultdict[str, set[int]] = defaultdict(set)
    for bucket, rows in found.items():
        assert [row["n"] for row in rows] == sorted(row["n"] for row in rows)
        for row in rows:
            homes[row["key"]].add(bucket)
    assert {len(where) for where in homes.values()} == {1}


def test_the_bucket_of_a_key_does_not_depend_on_the_rows_beside_it() -> None:
    alone = collect_rows(emit("t", ROWS.slice(17, 1), "key", 64))
    among = collect_rows(emit("t", ROWS, "key", 64))
    (bucket,) = alone
    assert alone[bucket][0] in among[bucket]


def test_no_rows_emit_nothing() -> None:
    assert list(emit("t", ROWS.slice(0, 0), "key", 4)) == []


def test_a_large_bucket_travels_in_several_blobs_and_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(map_reduce, "BLOB_BYTES", 1000)
    monkeypatch.setattr(map_reduce, "BATCH_BYTES", 5000)
    batches = list(emit("t", ROWS, "key", 1))
    assert len(batches) > 1
    assert all(batch.num_rows == 1 or batch.nbytes < 6000 for batch in batches)
    assert [row["n"] for row in collect_rows(batches)[0]] == list(range(1000))


@pytest.mark.parametrize("buckets", [0, MAX_BUCKETS + 1])
def test_a_number_of_buckets_that_cannot_be_is_refused(buckets: int) -> None:
    with pytest.raises(InternalError, match=str(buckets)):
        list(emit("t", ROWS, "key", buckets))
