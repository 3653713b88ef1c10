"""What work on a branch costs, by the number of types in the graph: make it, write a row, delete it.

The bare calls fork one table of Lance's, append a row and delete the fork.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Protocol

import pyarrow as pa

import omnigraph
from bench.measure import AGAIN, AGED, OURS, QUICK, SHORT, WHOLE, Result, time_in_turns
from omnigraph.engine.graph.root import Root
from omnigraph.storage.location import Location
from omnigraph.storage.staging import commit_staged, stage_append
from omnigraph.storage.tables import Table

NAME = "work"
STEPS = ("create", "write", "delete")
ALL_STEPS = "create, write and delete"
BARE = "bare calls"


@dataclass(frozen=True, slots=True)
class Plan:
    """How many types there are: the last number is compared with the others."""

    types: tuple[int, ...]
    rounds: int
    commits: int


PLANS = {
    WHOLE: Plan((2, 8, 50, 140), 40, commits=500),
    QUICK: Plan((2, 140), 20, commits=100),
    SHORT: Plan((2, 5), 1, commits=2),
}


class Steps(Protocol):
    """What a branch goes through."""

    def create(self) -> object: ...
    def write(self) -> object: ...
    def delete(self) -> object: ...


def run(size: str) -> Result:
    """The three steps, and all of them together, in turns on small and large schemas."""
    plan = PLANS[size]
    *few, many = plan.types
    with tempfile.TemporaryDirectory() as created:
        folder = Path(created)
        graphs = {
            OURS: Graph(folder / "ours", many),
            AGAIN: Graph(folder / "again", many),
            AGED: Graph(folder / "aged", many, plan.commits),
            **{with_types(types): Graph(folder / str(types), types) for types in few},
        }
        parties: Mapping[str, Steps] = {**graphs, BARE: Bare(folder / "bare")}
        tasks: dict[tuple[str, str], Callable[[], object]] = {
            (step, name): getattr(one, step) for step in STEPS for name, one in parties.items()
        }
        times = time_in_turns(tasks, plan.rounds)
        for graph in graphs.values():
            graph.finish()
    times[ALL_STEPS] = {
        name: [sum(steps) for steps in zip(*(times[step][name] for step in STEPS), strict=True)]
        for name in parties
    }
    return Result(
        times=times,
        limits=(BARE,),
        facts={"types": list(plan.types), "rounds": plan.rounds, "commits of the aged": plan.commits},
    )


def with_types(types: int) -> str:
    """The name of the party with so many types."""
    return f"{OURS}, {types} types"


class Graph:
    """A graph with so many types and a branch that comes and goes."""

    def __init__(self, at: Path, types: int, commits: int = 0) -> None:
        schema = "".join(f"node Type{number} {{ name: String @key }}\n" for number in range(types))
        self._graph = omnigraph.init(at, schema=schema)
        self._numbers = count()
        for _ in range(1 + commits):
            self._insert("main")
        self._stored = 1 + commits

    def create(self) -> None:
        """Make the branch."""
        self._graph.branches.create(NAME)

    def write(self) -> None:
        """Add one row to it."""
        self._insert(NAME)

    def delete(self) -> None:
        """Delete it."""
        self._graph.branches.delete(NAME)

    def finish(self) -> None:
        """Fail unless every branch is gone and main is as it was."""
        assert self._graph.branches.list() == ["main"], "every branch must be gone"
        counted = self._graph.query("query q() { match { $t: Type1 } return { count($t) as rows } }")
        assert counted.tuples() == [(self._stored,)], "main must be as it was"
        self._graph.close()

    def _insert(self, branch: str) -> None:
        with self._graph.write(branch) as write:
            write.insert("Type1", name=f"row {next(self._numbers)}")


class Bare:
    """One table, and a fork of it that comes and goes."""

    def __init__(self, at: Path) -> None:
        self._root = Root.at(Location.parse(at))
        self._place = Location.parse(at) / "table"
        self._columns = pa.schema([pa.field("id", pa.string(), nullable=False)])
        rows = pa.table({"id": ["first"]}, schema=self._columns)
        self._root.tables.create(self._place, self._columns, primary_key="id", rows=rows)
        self._fork: Table | None = None

    def create(self) -> None:
        """Fork the table."""
        self._fork = self._root.forks.create(self._root.tables.tip(self._place), NAME)

    def write(self) -> None:
        """Append one row to the fork."""
        assert self._fork is not None
        commit_staged(stage_append(self._fork, pa.table({"id": ["row"]}, schema=self._columns)))

    def delete(self) -> None:
        """Delete the fork."""
        self._root.forks.delete(self._place, NAME)
