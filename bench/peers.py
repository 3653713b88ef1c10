"""Other embedded databases, for comparison; each is measured when it is installed.

They are no dependencies of the project: `pip install doltlite==0.51.3 ladybug==0.22.0`. Each runs in a
process of its own, because doltlite has to be loaded before anything that uses SQLite; what is measured
includes a round trip through a pipe.
"""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import version
from itertools import count
from pathlib import Path
from typing import IO, Any

TABLES = ("A", "B")
NAMES = ("doltlite", "ladybug")


@dataclass(frozen=True, slots=True)
class Peer:
    """A database with two tables of `id` and `text`, both empty at first."""

    name: str
    _requests: IO[str]
    _answers: IO[str]

    def insert(self, tables: int) -> None:
        """Add one row to so many tables, in one commit."""
        assert self._ask(f"{tables}") == ["done"], "the peer failed"

    def rows(self) -> tuple[int, ...]:
        """How many rows each table has."""
        return tuple(map(int, self._ask("rows")))

    def _ask(self, request: str) -> list[str]:
        print(request, file=self._requests, flush=True)
        return self._answers.readline().split()


def missing() -> list[str]:
    """The peers that are not installed."""
    return [name for name in NAMES if importlib.util.find_spec(name) is None]


@contextmanager
def peer(name: str, at: Path) -> Iterator[Peer]:
    """A peer that is installed, with its data at a place."""
    command = [sys.executable, "-m", "bench.peers", name, str(at)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        yield Peer(f"{name} {version(name)}", process.stdin, process.stdout)
        process.stdin.close()


# --- in the process of a peer --------------------------------------------------------------------

Insert = Callable[[int], None]
Rows = Callable[[], tuple[int, ...]]


def main() -> None:
    name, at = sys.argv[1:]
    insert, rows = {"doltlite": _doltlite, "ladybug": _ladybug}[name](Path(at))
    for line in sys.stdin:
        if line.strip() == "rows":
            print(*rows(), flush=True)
        else:
            insert(int(line))
            print("done", flush=True)


def _doltlite(at: Path) -> tuple[Insert, Rows]:
    """SQLite with commits: a transaction, and a commit of the history."""
    import doltlite  # noqa: F401, I001 - before sqlite3, whose place it takes
    import sqlite3

    connection = sqlite3.connect(at, isolation_level=None)
    for table in TABLES:
        connection.execute(f"CREATE TABLE {table} (id TEXT PRIMARY KEY, text TEXT)")
    connection.execute("SELECT dolt_commit('-A', '-m', 'tables')").fetchall()
    numbers = count()

    def insert(tables: int) -> None:
        key = f"i{next(numbers)}"
        connection.execute("BEGIN")
        for table in TABLES[:tables]:
            connection.execute(f"INSERT INTO {table} VALUES (?, 'x')", (key,))
        connection.execute("COMMIT")
        connection.execute("SELECT dolt_commit('-A', '-m', 'insert')").fetchall()

    def rows() -> tuple[int, ...]:
        counts = [f"SELECT count(*) FROM {table}" for table in TABLES]
        return tuple(connection.execute(text).fetchone()[0] for text in counts)

    return insert, rows


def _ladybug(at: Path) -> tuple[Insert, Rows]:
    """A graph database without history: one transaction."""
    import ladybug

    connection: Any = ladybug.Connection(ladybug.Database(str(at)))
    for table in TABLES:
        connection.execute(f"CREATE NODE TABLE {table} (id STRING PRIMARY KEY, text STRING)")
    inserts = [f"CREATE (:{table} {{id: $id, text: 'x'}})" for table in TABLES]
    numbers = count()

    def insert(tables: int) -> None:
        key = {"id": f"i{next(numbers)}"}
        connection.execute("BEGIN TRANSACTION")
        for statement in inserts[:tables]:
            connection.execute(statement, key)
        connection.execute("COMMIT")

    def rows() -> tuple[int, ...]:
        counts = [f"MATCH (n:{table}) RETURN count(*)" for table in TABLES]
        return tuple(connection.execute(text).get_next()[0] for text in counts)

    return insert, rows


if __name__ == "__main__":
    main()
