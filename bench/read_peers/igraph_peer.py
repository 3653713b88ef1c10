"""igraph, a library for graphs in memory without storage or properties: what hops cost at the least."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import igraph
import pyarrow.parquet as pq

VERSION = igraph.__version__


def make(data: Path, place: Path) -> None:
    """There is no database; the edges are read when it is opened."""
    place.mkdir()
    for name in ("Person", "Follows"):
        shutil.copy(data / f"{name}.parquet", place)


class Engine:
    """The edges, in memory; a person's number is its place."""

    def __init__(self, place: Path) -> None:
        edges = pq.read_table(place / "Follows.parquet")
        count = pq.read_metadata(place / "Person.parquet").num_rows
        pairs = zip(edges["src"].to_pylist(), edges["dst"].to_pylist(), strict=True)
        self._graph = igraph.Graph(n=count, edges=list(pairs), directed=True)

    def ask(self, question: str, parameters: Mapping[str, Any]) -> list[tuple[Any, ...]]:
        """The persons within so many hops, or how many they are."""
        hops, what = question.split(" hops, ")
        found = self._graph.neighborhood(parameters["number"], order=int(hops), mode="out", mindist=1)
        return [(len(found),)] if what == "count" else [(number,) for number in found]

    def ask_arrow(self, question: str, parameters: Mapping[str, Any]) -> Any:
        """The list as igraph gives it; it has no Arrow."""
        hops, _ = question.split(" hops, ")
        return self._graph.neighborhood(parameters["number"], order=int(hops), mode="out", mindist=1)
