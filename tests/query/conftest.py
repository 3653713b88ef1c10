"""Stored graphs to read from, each made once in a session and kept in several conditions."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

import omnigraph as og
from omnigraph.engine.graph.manifest import MAIN
from omnigraph.engine.maintenance import ensure_indexes as indexing
from omnigraph.engine.upkeep import declared_indexes as index_intent
from omnigraph.graph import Graph
from omnigraph.query.read_cache import shared_cache
from tests.query.small_limits import through_indexes
from tests.reference_graphs import convert

CONDITIONS = ("cold", "warm", "indexed", "compacted", "branch", "reference")
BRANCH = "side"


@dataclass
class Shelf:
    """Graphs by schema, data and condition."""

    folder: Path
    _places: dict[tuple[str, str, str], Path] = field(default_factory=dict)
    _open: dict[Path, Graph] = field(default_factory=dict)

    @contextmanager
    def reading(self, schema: str, data: str, condition: str) -> Iterator[Graph]:
        """A graph in a condition: `cold` and `indexed` have nothing in memory, and an unused handle.

        With indexes a few rows are read as very many would be, which is where indexes are asked. `reference`
        has its tables as the reference implementation writes them, and indexes.
        """
        place = self._place(schema, data, condition)
        if condition in ("cold", "indexed", "reference"):
            shared_cache().forget()
            with og.open(place) as graph, nullcontext() if condition == "cold" else through_indexes():
                yield graph
            return
        if place not in self._open:
            self._open[place] = og.open(place)
        yield self._open[place]

    def close(self) -> None:
        for graph in self._open.values():
            graph.close()

    def _place(self, schema: str, data: str, condition: str) -> Path:
        plain = condition in ("cold", "warm")
        key = (schema, data, "plain" if plain else condition)
        if key not in self._places:
            original = None if plain else self._place(schema, data, "cold")
            place = self.folder / str(len(self._places))
            if original is None:
                self._make(place, schema, data)
            else:
                if condition == "reference":
                    convert(original, place, parts=2)
                else:
                    shutil.copytree(original, place)
                self._prepare(place, data, condition)
            self._places[key] = place
        return self._places[key]

    def _make(self, place: Path, schema: str, data: str) -> None:
        with og.init(place, schema=schema) as graph:
            for part in _parts(data):
                self._load(graph, part, "append")

    def _prepare(self, place: Path, data: str, condition: str) -> None:
        with og.open(place) as graph:
            if condition in ("indexed", "reference"):
                with every_index():
                    graph.ensure_indices()
            elif condition == "compacted":
                with every_index():
                    graph.optimize()
            else:
                # Every row is rewritten on the branch, and none of them changes.
                graph.branches.create(BRANCH)
                if data:
                    self._load(graph, data, "merge", branch=BRANCH)

    def _load(self, graph: Graph, data: str, mode: Any, branch: str = MAIN) -> None:
        file = self.folder / "input.jsonl"
        file.write_text(data, encoding="utf-8")
        graph.load(file, mode=mode, branch=branch)


@contextmanager
def every_index() -> Iterator[None]:
    """Indexes on all that can have one, declared or not, however little there is of it."""
    with pytest.MonkeyPatch.context() as changed:
        changed.setattr(index_intent, "_declared", lambda owner: list(owner.properties))
        changed.setattr(indexing, "VECTOR_ROWS", 1)
        yield


def _parts(data: str) -> list[str]:
    """Data in several loads, nodes before edges, so that tables have more than one piece."""
    lines = [line for line in data.splitlines() if line]
    nodes = [line for line in lines if line.startswith('{"type"')]
    edges = [line for line in lines if line not in nodes]
    parts = [nodes[::2], nodes[1::2], edges[::2], edges[1::2]]
    return ["\n".join(part) for part in parts if part]


@pytest.fixture(scope="session")
def shelf(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shelf]:
    made = Shelf(tmp_path_factory.mktemp("shelf"))
    yield made
    made.close()
