"""A small graph with a value of every type, for what goes in and out of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import omnigraph as og
from omnigraph.graph import Graph

SCHEMA = """
node Person {
  name: String @key
  age: I32?
  score: U64?
  rank: U32?
  weight: F64?
  active: Bool?
  born: Date?
  seen: DateTime?
  tags: [String]?
  counts: [U64]?
  place: Vector(2)?
  photo: Blob?
}
node Team { title: String @key }
edge Knows: Person -> Person { since: I32? }
"""
FULL: dict[str, Any] = {
    "name": "ada",
    "age": 36,
    "score": 2**64 - 1,
    "rank": 2**32 - 1,
    "weight": 1.5,
    "active": True,
    "born": "1815-12-10",
    "seen": "2024-05-01T12:00:00.123Z",
    "tags": ["x", "y"],
    "counts": [1, 2**64 - 1],
    "place": [0.5, 1.5],
    "photo": "base64:AAEC",
}


def people(at: Path) -> Graph:
    """Ada with everything, Bo with a name alone, and two edges; one table in several fragments."""
    graph = og.init(at, schema=SCHEMA)
    with graph.write() as tx:
        tx.insert("Person", FULL)
        tx.insert_edge("Knows", "ada", "ada", {"since": 1})
    with graph.write() as tx:
        tx.insert("Person", name="bo")
        tx.insert_edge("Knows", "ada", "bo")
    return graph
