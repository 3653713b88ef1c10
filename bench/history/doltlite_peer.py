"""Doltlite: SQLite with commits, branches and merges."""

from __future__ import annotations

import time
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from bench.history.people import Edit

VERSION = version("doltlite")
WORK = "work"
_COMMIT = "SELECT dolt_commit('-A', '-m', 'change')"


def _connect(place: Path) -> Any:
    import doltlite  # noqa: F401, I001 - before sqlite3, whose place it takes
    import sqlite3

    return sqlite3.connect(place, isolation_level=None)


def make(data: Path, place: Path) -> None:
    """Insert the people."""
    connection = _connect(place)
    connection.execute("CREATE TABLE Person (number INTEGER PRIMARY KEY, name TEXT, city TEXT, age INTEGER)")
    columns = pq.read_table(data / "Person.parquet").to_pydict()
    connection.execute("BEGIN")
    connection.executemany("INSERT INTO Person VALUES (?, ?, ?, ?)", zip(*columns.values(), strict=True))
    connection.execute("COMMIT")
    connection.execute(_COMMIT).fetchall()
    connection.close()


class Engine:
    """A database that is open."""

    def __init__(self, place: Path) -> None:
        self._connection = _connect(place)

    def change(self, edit: Edit, branch: str = "main") -> None:
        """Change some people, in one commit."""
        self._checkout(branch)
        self._connection.execute("BEGIN")
        self._connection.executemany(
            "UPDATE Person SET age = ? WHERE number = ?",
            ((edit.age, number) for number in edit.numbers.tolist()),
        )
        self._connection.execute("COMMIT")
        self._connection.execute(_COMMIT).fetchall()
        self._checkout("main")

    def part(self) -> None:
        """Make a branch."""
        self._connection.execute(f"SELECT dolt_branch('{WORK}')").fetchall()

    def drop(self) -> None:
        """Delete the branch."""
        self._connection.execute(f"SELECT dolt_branch('-D', '{WORK}')").fetchall()

    def merge(self) -> float:
        """The seconds that taking the branch into main takes."""
        return self._timed(f"SELECT dolt_merge('{WORK}')")[0]

    def last_change(self) -> tuple[float, list[tuple[int, int]]]:
        """The seconds that showing the last commit takes, and the ages before and after in it."""
        return self._difference("HEAD~1", "HEAD")

    def branch_changes(self) -> tuple[float, list[tuple[int, int]]]:
        """The same for main and the branch."""
        return self._difference("main", WORK)

    def _difference(self, before: str, after: str) -> tuple[float, list[tuple[int, int]]]:
        took, rows = self._timed(f"SELECT from_age, to_age, * FROM dolt_diff_Person('{before}', '{after}')")
        return took, [row[:2] for row in rows]

    def totals(self) -> tuple[int, int]:
        """How many people there are, and the sum of their ages."""
        row: tuple[int, int] = self._connection.execute("SELECT count(*), sum(age) FROM Person").fetchone()
        return row

    def _checkout(self, branch: str) -> None:
        self._connection.execute(f"SELECT dolt_checkout('{branch}')").fetchall()

    def _timed(self, statement: str) -> tuple[float, list[Any]]:
        begun = time.perf_counter()
        rows = self._connection.execute(statement).fetchall()
        return time.perf_counter() - begun, rows
