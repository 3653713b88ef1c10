"""Kuzu, a native graph database."""

from __future__ import annotations

from pathlib import Path

import kuzu

from bench.read_peers.cypher import CypherEngine, fill

VERSION = kuzu.__version__


def make(data: Path, place: Path) -> None:
    """Copy all files."""
    with kuzu.Database(str(place)) as database, kuzu.Connection(database) as connection:
        fill(connection, data)


class Engine(CypherEngine):
    """A database that is open."""

    def __init__(self, place: Path) -> None:
        self._database = kuzu.Database(str(place), read_only=True)
        super().__init__(kuzu.Connection(self._database))
