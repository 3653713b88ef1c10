"""Ladybug, a native graph database."""

from __future__ import annotations

from pathlib import Path

import ladybug

from bench.read_peers.cypher import CypherEngine, fill

VERSION = ladybug.__version__


def make(data: Path, place: Path) -> None:
    """Copy all files."""
    with ladybug.Database(str(place)) as database, ladybug.Connection(database) as connection:
        fill(connection, data)


class Engine(CypherEngine):
    """A database that is open."""

    def __init__(self, place: Path) -> None:
        self._database = ladybug.Database(str(place), read_only=True)
        super().__init__(ladybug.Connection(self._database))
