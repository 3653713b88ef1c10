"""Histories of any shape, with cleanups in between: a commit reads as made, or is reported as removed."""

from __future__ import annotations

from random import Random

import pytest

from omnigraph.engine.branches.manage import create_branch, delete_branch
from omnigraph.engine.graph.manifest import MAIN
from omnigraph.engine.graph.open_graph import OpenGraph
from omnigraph.engine.maintenance.optimize import optimize
from omnigraph.engine.write.transaction import Author
from omnigraph.storage.location import Location
from tests.engine.cleanup.world import add, clean, people_at
from tests.engine.crash.world import change, make_graph, require_settled
from tests.engine.upkeep_graph import commits_of

STEPS = 40


class World:
    """The graph, and for every commit the persons that it showed."""

    def __init__(self, at: Location, seed: int) -> None:
        self.random = Random(seed)
        self.graph: OpenGraph = make_graph(at)
        self.now: dict[str, frozenset[str]] = {MAIN: frozenset({"ada", "bo", "cy"})}
        self.seen = {self._head(MAIN): self.now[MAIN]}
        self.number = 0

    def step(self) -> None:
        branch = self.random.choice(list(self.now))
        match self.random.choice(
            ["insert"] * 4 + ["update", "delete", "create", "drop", "optimize", "clean"]
        ):
            case "insert":
                self.number += 1
                add(self.graph, f"p{self.number}", branch=branch)
                self.now[branch] |= {f"p{self.number}"}
            case "update":
                change(self.graph, f'update Person set {{ age: {self.number} }} where name = "bo"', branch)
            case "delete" if gone := sorted(self.now[branch] - {"ada", "bo", "cy"}):
                change(self.graph, f'delete Person where name = "{gone[0]}"', branch)
                self.now[branch] -= {gone[0]}
            case "create" if len(self.now) < 4:
                self.number += 1
                create_branch(self.graph, f"b{self.number}", from_branch=branch)
                self.now[f"b{self.number}"] = self.now[branch]
            case "drop" if leaves := self.leaves():
                delete_branch(self.graph, leaves[0])
                del self.now[leaves[0]]
            case "optimize":
                optimize(self.graph, Author(branch))
            case "clean":
                self.clean()
        for name, people in self.now.items():
            self.seen.setdefault(self._head(name), people)

    def leaves(self) -> list[str]:
        forks = self.graph.root.forks.list(self.graph.root.layout.manifest)
        used = {fork.parent for fork in forks.values()}
        shown = {
            entry.owner
            for name in self.now
            for entry in self.graph.load(name).state.entries().values()
            if entry.owner != name
        }
        return [name for name in self.now if name != MAIN and name not in used | shown]

    def clean(self) -> None:
        """What is to be kept reads after it as before; an earlier cleanup may have kept less."""
        keep = self.random.randint(1, 3)
        kept = [one.id for branch in self.now for one in commits_of(self.graph, branch)[-keep:]]
        before = {commit: people_at(self.graph, commit) for commit in kept}
        clean(self.graph, keep)
        assert {commit: people_at(self.graph, commit) for commit in kept} == before
        for branch, people in self.now.items():
            assert people_at(self.graph, self._head(branch)) == set(people)
        self.look()

    def look(self) -> None:
        """All commits that a branch still shows."""
        for branch in self.now:
            for commit in commits_of(self.graph, branch)[1:]:
                assert people_at(self.graph, commit.id) in (self.seen[commit.id], None)

    def _head(self, branch: str) -> str:
        return commits_of(self.graph, branch)[-1].id


@pytest.mark.parametrize("seed", range(3))
def test_kept_commits_read_as_they_were_made_and_others_so_or_not_at_all(folder: Location, seed: int) -> None:
    world = World(folder, seed)
    for _ in range(STEPS):
        world.step()
    world.clean()
    require_settled(world.graph)
