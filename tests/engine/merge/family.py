"""A family with branches: small changes by name, and looks at what a branch holds."""

from __future__ import annotations

import json
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any

import pyarrow as pa

from omnigraph.engine.commit.plan import DeleteRows, Effect, UpsertRows
from omnigraph.engine.graph.manifest import MAIN
from omnigraph.engine.graph.open_graph import AtBranch
from omnigraph.engine.graph.snapshot_tables import open_table
from omnigraph.engine.write.transaction import Author, PreparedWrite
from omnigraph.graph import Graph
from tests.engine.writing import write

SCHEMA = """
node Person {
    name: String @key
    age: I32?
    city: String?
    email: String? @unique
    level: enum(low, high)?
}
node Pet { name: String @key  tags: [String]?  vec: Vector(2)?  weight: F64?  photo: Blob? }
edge Knows: Person -> Person { since: I32? }
edge Owns: Person -> Pet @card(0..2)
"""
PERSON, PET, KNOWS, OWNS = "node:Person", "node:Pet", "edge:Knows", "edge:Owns"

Row = dict[str, Any]


def person(name: str, **values: Any) -> Row:
    """A person as loads have it."""
    return {"type": "Person", "data": {"name": name, **values}}


def pet(name: str, **values: Any) -> Row:
    """A pet as loads have it."""
    return {"type": "Pet", "data": {"name": name, **values}}


def knows(entity: str, source: str, target: str, **values: Any) -> Row:
    """An edge between people, with its id."""
    return {"edge": "Knows", "from": source, "to": target, "data": {"id": entity, **values}}


def owns(entity: str, source: str, target: str) -> Row:
    """An edge from a person to a pet, with its id."""
    return {"edge": "Owns", "from": source, "to": target, "data": {"id": entity}}


def put(graph: Graph, *records: Row, branch: str = MAIN) -> None:
    """Insert or replace entities in one commit."""
    with NamedTemporaryFile("w", suffix=".jsonl") as file:
        file.write("\n".join(map(json.dumps, records)))
        file.flush()
        graph.load(Path(file.name), mode="merge", branch=branch)


def remove(graph: Graph, type_name: str, entity: str, branch: str = MAIN) -> None:
    """Delete a node with its edges, or an edge, in one commit."""
    if type_name in ("Person", "Pet"):
        with graph.write(branch) as tx:
            tx.delete(type_name, ("name", "=", entity))
        return
    gone: dict[str, Effect] = {f"edge:{type_name}": DeleteRows(pa.array([entity]))}
    write(graph._opened, Author(branch), lambda _: PreparedWrite("Mutation", gone, strict=True))


def put_rows(graph: Graph, key: str, rows: pa.Table, branch: str = MAIN) -> None:
    """Rows with values that no file can have."""
    write(
        graph._opened,
        Author(branch),
        lambda _: PreparedWrite("Mutation", {key: UpsertRows(rows)}, strict=True),
    )


def rows(graph: Graph, key: str, branch: str = MAIN) -> dict[str, str]:
    """The entities of a type by id, each as a text that is equal exactly for equal values."""
    opened = graph._opened
    table = open_table(opened, opened.snapshot(AtBranch(branch)), key)
    found = table.scan(blob_bytes=True).to_pylist()
    return {row["id"]: repr(dict(sorted(row.items()))) for row in found}


def everything(graph: Graph, branch: str = MAIN) -> dict[str, dict[str, str]]:
    """All entities of a branch."""
    return {key: rows(graph, key, branch) for key in (PERSON, PET, KNOWS, OWNS)}


def value(graph: Graph, key: str, entity: str, name: str, branch: str = MAIN) -> Any:
    """A property of an entity."""
    opened = graph._opened
    table = open_table(opened, opened.snapshot(AtBranch(branch)), key)
    (found,) = table.scan([name], where=f"id = '{entity}'", blob_bytes=True).to_pylist()
    return found[name]


def heads(graph: Graph) -> dict[str, tuple[str | None, int]]:
    """The newest commit and the version of every branch: nothing was published while these stay."""
    found = {name: graph.snapshot(name) for name in graph.branches}
    return {name: (at.commit.id if at.commit else None, at.version) for name, at in found.items()}


def kinds(graph: Graph, source: str, into: str = MAIN, **how: Any) -> list[str]:
    """The kinds of all conflicts that a merge has."""
    return [conflict.kind.value for conflict in graph.merge(source, into, dry_run=True, **how).conflicts]
