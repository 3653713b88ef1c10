"""Documents written and read as users do."""

from __future__ import annotations

import json
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from omnigraph.embed.mock import MockEmbedder
from omnigraph.graph import Graph

GIVEN = [1.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0]


def put(graph: Graph, *docs: dict[str, Any], branch: str = "main", type_name: str = "Doc") -> None:
    """Documents that are new, or replace the stored ones, in one commit."""
    lines = (json.dumps({"type": type_name, "data": doc}) for doc in docs)
    with TemporaryDirectory() as folder:
        file = Path(folder, "docs.jsonl")
        file.write_text("\n".join(lines))
        graph.load(file, mode="merge", branch=branch, engine="local")


def change(graph: Graph, text: str, branch: str = "main") -> None:
    """A mutation."""
    graph.mutate(f"query change() {{ {text} }}", branch=branch)


def vectors(
    graph: Graph, branch: str = "main", type_name: str = "Doc", column: str = "about"
) -> dict[str, Any]:
    """The stored vectors by slug."""
    rows = graph.snapshot(branch).rows(type_name, columns=["slug", column]).to_pylist()
    return {row["slug"]: row[column] for row in rows}


def vector_of(text: str, dimension: int = 8) -> list[float]:
    """What the provider makes of a text."""
    (made,) = MockEmbedder().embed([text], dimension, "document")
    return [float(number) for number in np.asarray(made)]


def due(graph: Graph, branch: str = "main", **how: Any) -> int:
    """How many vectors are missing or out of date."""
    return sum(one.found for one in graph.embed(branch, dry_run=True, **how).properties)
