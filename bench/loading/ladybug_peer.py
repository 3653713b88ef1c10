"""Ladybug, a native graph database: COPY of Parquet files."""

from __future__ import annotations

import time
from itertools import count
from pathlib import Path
from typing import Any

import ladybug

VERSION = ladybug.__version__
_PERSON = "number INT64 PRIMARY KEY, name STRING, age INT64, score DOUBLE, active BOOLEAN"
_TABLES = (
    f"CREATE NODE TABLE Person ({_PERSON})",
    "CREATE REL TABLE Follows (FROM Person TO Person)",
)


class Engine:
    """Makes databases, one for each load."""

    def __init__(self, place: Path) -> None:
        self._place = place
        self._numbers = count()

    def load(self, folder: Path) -> tuple[float, int]:
        """Copy both files into a new database; the seconds, and how many rows there are."""
        at = self._place / f"database-{next(self._numbers)}"
        begun = time.perf_counter()
        with ladybug.Database(str(at)) as database, ladybug.Connection(database) as connection:
            for statement in _TABLES:
                connection.execute(statement)
            for name in ("Person", "Follows"):
                connection.execute(f"COPY {name} FROM '{folder / name}.parquet'")
            took = time.perf_counter() - begun
            return took, sum(_count(connection, each) for each in ("(:Person)", "()-[:Follows]->()"))


def _count(connection: Any, pattern: str) -> int:
    rows: int = connection.execute(f"MATCH {pattern} RETURN count(*)").get_next()[0]
    return rows
