"""Roots for graphs: a folder, or a bucket on a loopback S3 server."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from omnigraph.engine.graph.open_graph import OpenGraph
from omnigraph.engine.graph.root import Root
from omnigraph.storage.location import Location
from tests.engine.graphs import new_graph
from tests.storage.conftest import s3_endpoint, s3_root, shared_root

__all__ = ["s3_endpoint", "s3_root", "shared_root"]


@pytest.fixture
def folder(tmp_path: Path) -> Location:
    """A place in a folder where no graph is yet."""
    return Location.parse(tmp_path / "graph")


@pytest.fixture(scope="session")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A new, unused graph; copying it takes a fraction of the time of creating one."""
    at = tmp_path_factory.mktemp("template") / "graph"
    new_graph(Location.parse(at))
    return at


@pytest.fixture
def graph(folder: Location, template: Path) -> OpenGraph:
    """A new graph in a folder."""
    shutil.copytree(template, folder.path)
    return OpenGraph.open(Root.at(folder))
