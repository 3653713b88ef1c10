"""Ladybug, a graph database without history: an insert is one transaction."""

from __future__ import annotations

import time
from itertools import count
from pathlib import Path
from typing import Any

import ladybug

TABLES = ("A", "B")


class Engine:
    """A database that is open."""

    def __init__(self, place: Path) -> None:
        self._connection: Any = ladybug.Connection(ladybug.Database(str(place)))
        for table in TABLES:
            self._connection.execute(f"CREATE NODE TABLE {table} (id STRING PRIMARY KEY, text STRING)")
        self._inserts = [f"CREATE (:{table} {{id: $id, text: 'x'}})" for table in TABLES]
        self._numbers = count()

    def grow(self, depth: int) -> None:
        """Insert into both tables, one commit for each row."""
        for _ in range(depth):
            self.insert(2)

    def insert(self, tables: int) -> float:
        """One row into so many tables, in one transaction."""
        key = {"id": f"i{next(self._numbers)}"}
        begun = time.perf_counter()
        self._connection.execute("BEGIN TRANSACTION")
        for statement in self._inserts[:tables]:
            self._connection.execute(statement, key)
        self._connection.execute("COMMIT")
        return time.perf_counter() - begun

    def rows(self) -> tuple[int, ...]:
        """How many each table has."""
        counts = [f"MATCH (n:{table}) RETURN count(*)" for table in TABLES]
        return tuple(self._connection.execute(text).get_next()[0] for text in counts)
