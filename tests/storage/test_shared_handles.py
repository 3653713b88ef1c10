"""Threads share the handle of a version, so whatever would have it for itself works on a copy."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pytest

from omnigraph.storage.index_parts import IndexPart, build_part
from omnigraph.storage.indexes import IndexSpec, stage_indexes
from omnigraph.storage.location import Location
from omnigraph.storage.staging import commit_staged, read_transaction, stage_append
from omnigraph.storage.tables import Table, Tables
from omnigraph.storage.upkeep import plan_compaction

SCHEMA = pa.schema([pa.field("id", pa.string(), nullable=False), pa.field("age", pa.int64())])
AGES = IndexSpec("age", "BTREE", "age_idx")
TIMES = 20


@contextmanager
def read_all_the_time(table: Table) -> Iterator[list[BaseException]]:
    """Another thread asks for the columns of a table, over and over; what goes wrong for it is collected."""
    ended, failed = threading.Event(), []

    def read() -> None:
        while not ended.is_set():
            try:
                assert table.schema.names == ["id", "age"]
            except BaseException as error:  # noqa: BLE001 - the test tells it
                failed.append(error)

    reader = threading.Thread(target=read)
    reader.start()
    try:
        yield failed
    finally:
        ended.set()
        reader.join()


@pytest.mark.parametrize(
    "doing", ["who made it", "part of an index", "an index", "a compaction", "its newest"]
)
def test_a_reader_of_the_same_version_is_in_nobodys_way(tmp_path: Path, doing: str) -> None:
    table = Tables().create(Location.parse(tmp_path / "people"), SCHEMA, primary_key="id")
    rows = pa.table({"id": ["ada", "bo"], "age": [36, 20]}, schema=SCHEMA)
    table = commit_staged(stage_append(table, rows))
    does = {
        "who made it": lambda: read_transaction(table, table.version),
        "part of an index": lambda: build_part(
            table, IndexPart(AGES.column, AGES.type, AGES.name, (0,), False)
        ),
        "an index": lambda: stage_indexes(table, [AGES]),
        "a compaction": lambda: plan_compaction(table),
        "its newest": table.latest,
    }[doing]
    with read_all_the_time(table) as failed:
        for _ in range(TIMES):
            does()
    assert failed == []
