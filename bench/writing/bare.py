"""The least that a write has to do, in the same order and through the same layers.

Stage, record, commit, confirm, publish, remove the record.
"""

from __future__ import annotations

import time
from itertools import count
from pathlib import Path

import pyarrow as pa

from omnigraph.engine.graph import manifest
from omnigraph.engine.graph.lineage import Commit
from omnigraph.engine.graph.manifest import Records, TableVersion
from omnigraph.engine.upkeep.manifest_upkeep import FRAGMENT_LIMIT
from omnigraph.engine.upkeep.table_rewrite import MIN_FRAGMENTS
from omnigraph.storage.cas import merge_rows
from omnigraph.storage.location import Location
from omnigraph.storage.staging import commit_staged, stage_append
from omnigraph.storage.stores import open_store
from omnigraph.storage.tables import Table, Tables
from omnigraph.storage.upkeep import compact

COLUMNS = pa.schema([pa.field("id", pa.string(), nullable=False), pa.field("text", pa.string())])
PATHS = {"node:T0": "t0", "node:T1": "t1"}


class Engine:
    """Two tables and a manifest, as the graph beside it has them."""

    def __init__(self, at: Path) -> None:
        place, store = Location.parse(at), Tables()
        self._objects = open_store(place)
        self._record = place / "record.json"
        self._tables = [store.create(place / f"t{n}", COLUMNS, primary_key="id") for n in range(2)]
        self._book = store.create(place / "book", manifest.SCHEMA, primary_key=manifest.KEY)
        self._numbers = count()

    def insert(self, tables: int) -> float:
        """One row into so many tables."""
        begun = time.perf_counter()
        self._write(next(self._numbers), tables)
        took = time.perf_counter() - begun
        # Not counted: somebody has to do it, but no single write.
        self._book = _in_order(self._book, FRAGMENT_LIMIT)
        self._tables = [_in_order(table, MIN_FRAGMENTS) for table in self._tables]
        return took

    def _write(self, number: int, tables: int) -> None:
        rows = pa.table({"id": [f"i{number}"], "text": ["x"]}, schema=COLUMNS)
        staged = [stage_append(table, rows) for table in self._tables[:tables]]
        self._objects.write_text_if_absent(self._record, f"armed {number}")
        written = [commit_staged(one) for one in staged]
        self._tables[:tables] = written
        self._objects.write_text(self._record, f"confirmed {number}")
        entry = manifest.encode(_make_records(number, written), PATHS)
        self._book = merge_rows(self._book, entry, manifest.KEY).table
        self._objects.delete(self._record)


def _in_order(table: Table, most: int) -> Table:
    """The table in one fragment, once it has more of them than a graph leaves alone."""
    return compact(table).table if table.fragment_count > most else table


def _make_records(number: int, written: list[Table]) -> Records:
    """What a publish tells: the new versions, the commit, and that it is the newest."""
    keys = zip(PATHS, written, strict=False)
    versions = [TableVersion(key, table.version, None, table.version) for key, table in keys]
    commit = Commit(f"c{number}", "main", number + 2, number, f"c{number - 1}")
    return Records(versions=versions, commits=[commit], heads={"main": commit.id})
