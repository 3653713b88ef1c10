"""A graph to change."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

import omnigraph
from omnigraph.graph import Graph
from tests.engine.changes.world import SCHEMA, hubs, load, thing


@pytest.fixture(scope="session")
def things(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A graph with the things a and b, that tests only copy."""
    at = tmp_path_factory.mktemp("things") / "graph"
    with omnigraph.init(at, schema=SCHEMA) as graph:
        load(graph, {**hubs(), **{("Thing", key): thing(key, i=1) for key in "ab"}})
    return at


@pytest.fixture
def graph(tmp_path: Path, things: Path) -> Iterator[Graph]:
    """A graph with the things a and b."""
    shutil.copytree(things, tmp_path / "graph")
    with omnigraph.open(tmp_path / "graph") as opened:
        yield opened
