"""A family to branch and merge."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

import omnigraph
from omnigraph.graph import Graph
from tests.engine.merge.family import SCHEMA, knows, person, pet, put


@pytest.fixture(scope="session")
def family(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A graph that tests only copy: ann knows bob, and there are cid and the cat."""
    at = tmp_path_factory.mktemp("family") / "graph"
    with omnigraph.init(at, schema=SCHEMA) as graph:
        people = [person(name, age=1, city="here") for name in ("ann", "bob", "cid")]
        put(graph, *people, pet("cat"), knows("k1", "ann", "bob"))
        graph.branches.create("work")
    return at


@pytest.fixture
def graph(tmp_path: Path, family: Path) -> Iterator[Graph]:
    """The family, and a branch `work` on which nothing happened yet."""
    shutil.copytree(family, tmp_path / "graph")
    with omnigraph.open(tmp_path / "graph") as opened:
        yield opened
