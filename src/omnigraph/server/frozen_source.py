"""What a source named when the server started, with copies of its files, for workers that start later."""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from omnigraph.deferred_dataclass import dataclass
from omnigraph.errors import BadRequest
from omnigraph.server.boot import ServingPlan
from omnigraph.server.stored_queries import list_files

FOLDER = "files"


@dataclass(frozen=True, slots=True)
class FrozenSource:
    """A plan that was made before."""

    name: str
    plan: ServingPlan

    def load(self) -> ServingPlan:
        """Return the plan."""
        return self.plan


def freeze(plan: ServingPlan, folder: Path) -> ServingPlan:
    """Copy the files that a plan names to a folder, and return the plan with the copies."""
    copies = _Copies(folder / FOLDER)
    graphs = [
        replace(graph, policy=copies.add(graph.policy), queries=tuple(copies.add_all(graph.queries)))
        for graph in plan.graphs
    ]
    return replace(plan, graphs=graphs, server_policy=copies.add(plan.server_policy))


class _Copies:
    """Copies of files, each in a folder of its own, so that all keep their names."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._count = 0

    def add(self, path: Path | None) -> Path | None:
        return None if path is None else self._copy(path)

    def add_all(self, paths: Iterable[Path]) -> list[Path]:
        return [self._copy(path) for path in list_files(paths)]

    def _copy(self, path: Path) -> Path:
        self._count += 1
        copy = self._folder / str(self._count) / path.name
        copy.parent.mkdir(parents=True)
        try:
            shutil.copyfile(path, copy)
        except OSError as error:
            raise BadRequest(f"'{path}' cannot be read: {error.strerror or error}") from error
        return copy
