"""A graph with many branches, made once, that no longer is where it was made."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.engine.moves.branching import branching_graph, picture
from tests.storage.conftest import s3_endpoint, s3_root

__all__ = ["s3_endpoint", "s3_root"]


@dataclass(frozen=True, slots=True)
class Moved:
    """A graph at a place where it was not made, and all that could be read of it where it was."""

    at: Path
    made_at: Path
    """There is nothing any more."""
    picture: dict[str, Any]


@pytest.fixture(scope="session")
def template(tmp_path_factory: pytest.TempPathFactory) -> Moved:
    """The files of the graph; they are not opened there."""
    made_at = tmp_path_factory.mktemp("made") / "graph"
    with branching_graph(made_at) as graph:
        seen = picture(graph)
    away = tmp_path_factory.mktemp("away") / "files"
    made_at.rename(away)
    return Moved(away, made_at, seen)


@pytest.fixture
def copied(template: Moved, tmp_path: Path) -> Callable[[str], Path]:
    """Makes a copy of the files below a name; all forks in it record a place where nothing is."""

    def copy(name: str) -> Path:
        shutil.copytree(template.at, tmp_path / name)
        return tmp_path / name

    return copy


@pytest.fixture
def moved(template: Moved, copied: Callable[[str], Path]) -> Moved:
    """The graph at a new place."""
    return Moved(copied("graph"), template.made_at, template.picture)
