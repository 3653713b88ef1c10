"""What Ladybug and Kuzu, which is its ancestor, have in common."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bench.social import EDGES, NODES
from bench.social_queries import CYPHER

COLUMNS = {
    "Person": "number INT64, name STRING, gender STRING, birthday DATE, age INT64, isMarried BOOLEAN",
    "City": "number INT64, city STRING, state STRING, country STRING, lat DOUBLE, lon DOUBLE, "
    "population INT64",
    "State": "number INT64, state STRING, country STRING",
    "Country": "number INT64, country STRING",
    "Interest": "number INT64, interest STRING",
}


def fill(connection: Any, data: Path) -> None:
    """Make the tables and copy the files into them."""
    for name in NODES:
        connection.execute(f"CREATE NODE TABLE {name} ({COLUMNS[name]}, PRIMARY KEY (number))")
    for name, (source, target) in EDGES.items():
        connection.execute(f"CREATE REL TABLE {name} (FROM {source} TO {target})")
    for name in (*NODES, *EDGES):
        connection.execute(f"COPY {name} FROM '{data / name}.parquet'")


class CypherEngine:
    """A connection; statements are prepared once."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection
        self._prepared: dict[str, Any] = {}

    def ask(self, question: str, parameters: Mapping[str, Any]) -> list[tuple[Any, ...]]:
        """All rows as tuples."""
        found = self._run(question, parameters)
        rows = [tuple(row) for row in found.get_all()]
        found.close()
        return rows

    def ask_arrow(self, question: str, parameters: Mapping[str, Any]) -> Any:
        """The result as Arrow table."""
        found = self._run(question, parameters)
        table = found.get_as_arrow()
        found.close()
        return table

    def _run(self, question: str, parameters: Mapping[str, Any]) -> Any:
        statement = self._prepared.get(question)
        if statement is None:
            statement = self._prepared[question] = self._connection.prepare(CYPHER[question])
        return self._connection.execute(statement, dict(parameters))
