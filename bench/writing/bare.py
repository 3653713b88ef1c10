"""The least that a write has to do, in the same order and through the same layers.

Stage, record, commit, confirm, publish, remove the record.
"""

from __future__ import annotations

import time
from itertools import count
from pathlib import Path

import pyarrow as pa

from omnigraph.engine import manifest
from omnigraph.engine.manifest import Records, TableVersion
from omnigraph.storage.cas import merge_rows
from omnigraph.storage.location import Location
from omnigraph.storage.objects import ObjectStore
from omnigraph.storage.staging import commit_staged, stage_append
from omnigraph.storage.tables import Tables

COLUMNS = pa.schema([pa.field("id", pa.string(), nullable=False), pa.field("text", pa.string())])


class Engine:
    """Tables and a manifest, one set for each number of tables that is written to."""

    def __init__(self, place: Path) -> None:
        self._sets = {tables: _Tables(Location.parse(place / str(tables)), tables) for tables in (1, 2)}

    def insert(self, tables: int) -> float:
        """One row into so many tables."""
        chosen = self._sets[tables]
        begun = time.perf_counter()
        chosen.write()
        return time.perf_counter() - begun


class _Tables:
    def __init__(self, place: Location, tables: int) -> None:
        self._record = place / "record.json"
        self._objects, store = ObjectStore.at(place), Tables()
        self._written = [store.create(place / f"t{n}", COLUMNS, primary_key="id") for n in range(tables)]
        self._book = store.create(place / "book", manifest.SCHEMA, primary_key=manifest.KEY)
        self._numbers = count()

    def write(self) -> None:
        number = next(self._numbers)
        rows = pa.table({"id": [f"i{number}"], "text": ["x"]}, schema=COLUMNS)
        staged = [stage_append(table, rows) for table in self._written]
        self._objects.write_text_if_absent(self._record, f"armed {number}")
        self._written = [commit_staged(one) for one in staged]
        self._objects.write_text(self._record, f"confirmed {number}")
        versions = [
            TableVersion(f"node:T{n}", table.version, None, 1) for n, table in enumerate(self._written)
        ]
        paths = {f"node:T{n}": f"t{n}" for n in range(len(self._written))}
        entry = manifest.encode(Records(versions=versions, heads={"main": f"c{number}"}), paths)
        self._book = merge_rows(self._book, entry, manifest.KEY).table
        self._objects.delete(self._record)
