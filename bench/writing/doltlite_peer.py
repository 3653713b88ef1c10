"""Doltlite: SQLite with commits; an insert is a transaction, and a commit of the history."""

from __future__ import annotations

import time
from itertools import count
from pathlib import Path

TABLES = ("A", "B")


class Engine:
    """A database that is open."""

    def __init__(self, place: Path) -> None:
        import doltlite  # noqa: F401, I001 - before sqlite3, whose place it takes
        import sqlite3

        self._connection = sqlite3.connect(place, isolation_level=None)
        for table in TABLES:
            self._connection.execute(f"CREATE TABLE {table} (id TEXT PRIMARY KEY, text TEXT)")
        self._connection.execute("SELECT dolt_commit('-A', '-m', 'tables')").fetchall()
        self._numbers = count()

    def grow(self, depth: int) -> None:
        """Insert into both tables, one commit for each row."""
        for _ in range(depth):
            self.insert(2)

    def insert(self, tables: int) -> float:
        """One row into so many tables, in one commit."""
        key = f"i{next(self._numbers)}"
        begun = time.perf_counter()
        self._connection.execute("BEGIN")
        for table in TABLES[:tables]:
            self._connection.execute(f"INSERT INTO {table} VALUES (?, 'x')", (key,))
        self._connection.execute("COMMIT")
        self._connection.execute("SELECT dolt_commit('-A', '-m', 'insert')").fetchall()
        return time.perf_counter() - begun

    def rows(self) -> tuple[int, ...]:
        """How many each table has."""
        counts = [f"SELECT count(*) FROM {table}" for table in TABLES]
        return tuple(self._connection.execute(text).fetchone()[0] for text in counts)
