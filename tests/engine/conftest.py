"""Roots for graphs: a folder, or a bucket on a loopback S3 server."""

from __future__ import annotations

from pathlib import Path

import pytest

from omnigraph.engine.opened import OpenGraph
from omnigraph.storage.location import Location
from tests.engine.graphs import new_graph
from tests.storage.conftest import s3_endpoint, s3_root, shared_root

__all__ = ["s3_endpoint", "s3_root", "shared_root"]


@pytest.fixture
def folder(tmp_path: Path) -> Location:
    """A place in a folder where no graph is yet."""
    return Location.parse(tmp_path / "graph")


@pytest.fixture
def graph(folder: Location) -> OpenGraph:
    """A new graph in a folder."""
    return new_graph(folder)
