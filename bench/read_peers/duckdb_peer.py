"""DuckDB, a native relational database."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import duckdb

from bench.social import EDGES, NODES
from bench.social_queries import SQL

VERSION = duckdb.__version__


def make(data: Path, place: Path) -> None:
    """Copy all files; nodes get an index on their key."""
    with duckdb.connect(str(place)) as connection:
        for name in (*NODES, *EDGES):
            connection.execute(f"CREATE TABLE {name} AS SELECT * FROM '{data / name}.parquet'")
        for name in NODES:
            connection.execute(f"CREATE UNIQUE INDEX {name}_number ON {name} (number)")


class Engine:
    """A database that is open."""

    def __init__(self, place: Path) -> None:
        self._connection = duckdb.connect(str(place), read_only=True)

    def ask(self, question: str, parameters: Mapping[str, Any]) -> list[tuple[Any, ...]]:
        """All rows as tuples."""
        asked = self._connection.execute(SQL[question], dict(parameters) or None)
        found: list[tuple[Any, ...]] = asked.fetchall()
        return found
